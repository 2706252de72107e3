package snapshot

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/reason"
)

// Skew is the time within which an API server usually learns that a definition has changed, or that another server answers for
// a group. listproxy and each API server have watches of their own that tell them, some earlier and some later.
const Skew = 10 * time.Second

// maxLag is how much longer than [Skew] the slowest API server may take to learn of a change.
const maxLag = time.Minute

// Scope selects collections: those of a version, of a resource, or of one key. The zero Scope selects all.
type Scope struct{ target any } // nil, schema.GroupVersion, schema.GroupResource or CollectionKey

// OfVersion is the Scope of all resources of a group and version.
func OfVersion(gv schema.GroupVersion) Scope { return Scope{gv} }

// OfResource is the Scope of one resource, in all its versions and representations.
func OfResource(gr schema.GroupResource) Scope { return Scope{gr} }

// OfCollection is the Scope of one resource in one version and representation.
func OfCollection(key CollectionKey) Scope { return Scope{key} }

// scopesOf returns every Scope that selects a collection.
func scopesOf(key CollectionKey) [4]Scope {
	return [...]Scope{{}, OfVersion(key.GroupVersion()), OfResource(key.GroupResource()), OfCollection(key)}
}

// selects reports whether the scope selects a collection.
func (s Scope) selects(key CollectionKey) bool {
	scopes := scopesOf(key)
	return slices.Contains(scopes[:], s)
}

// Invalidate drops the collections of a scope, since something has changed at the upstream. Each loss of a state is counted
// under the cause:
//
//	cause           what has changed                            the upstream's answers may now have
//	reason.Schema   a resource's definition                     the same objects, written with other bytes
//	reason.Moved    which server answers for a group's version  other objects, with the revisions of another storage
//
// Once Invalidate has returned, no request is answered from the dropped states. A feed cannot notice the change by itself,
// since the upstream's open watches go on in the old form.
//
// The collections cannot be started again before [Skew] has passed. Even then, a load may be answered by a slow API server that
// has not learned of the change. So the collections are verified later, when each API server must have learned of it.
func (c *Collections) Invalidate(scope Scope, cause reason.Reason) {
	c.ban(scope, Skew, reason.Upstream)
	// After this time, even the slowest API server has learned of the change.
	time.AfterFunc(Skew+maxLag, func() { c.Verify(scope) })
	for _, r := range c.list() { // the list is complete: the ban lets no other collection of the scope start
		if scope.selects(r.key) {
			c.drop(r, cause)
		}
	}
}

// bans has the scopes whose collections must not be started now. Invalidate bans a scope after a change, and a self-check bans
// a collection after a second mismatch. Collections.mu guards the map.
type bans map[Scope]ban

// ban says until when collections must not be started, and why.
type ban struct {
	until time.Time
	why   reason.Reason
}

// whyNotStart returns the reason why a collection must not be started; None if it may be.
func (b bans) whyNotStart(key CollectionKey, now time.Time) reason.Reason {
	for _, scope := range scopesOf(key) {
		if b[scope].until.After(now) {
			return b[scope].why
		}
	}
	return reason.None
}

// ban bans a scope from now on for a time. It replaces an earlier ban of the scope, and forgets bans that are over.
func (c *Collections) ban(scope Scope, duration time.Duration, why reason.Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(c.bans, func(_ Scope, old ban) bool { return !old.until.After(now) })
	c.bans[scope] = ban{until: now.Add(duration), why: why}
}
