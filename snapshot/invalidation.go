package snapshot

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/reason"
)

// Skew is the time within which an API server usually learns of a change: a definition is another, or another server answers for a
// group. Each API server learns of it by its own watch, as does listproxy.
const Skew = 10 * time.Second

// Cause says why collections are dropped or verified. The metric of losses has it as a label.
//
//	Cause             what has changed                              the collections are
//	CauseDefinition   a resource's definition                       dropped, banned for Skew, and verified later
//	CauseCatalog      the server that answers for a version         dropped, banned for Skew, and verified later
//	CauseServers      the API servers, or the version they store    verified
//	CauseMismatch     nothing: a comparison found a difference      dropped, and started again or banned (see restart)
type Cause reason.Reason

const (
	// CauseDefinition means that the upstream may write the same objects in other bytes now. Open watches go on in the old form.
	CauseDefinition = Cause(reason.Schema)
	// CauseCatalog means that another server answers, with other objects and its own revisions.
	CauseCatalog = Cause(reason.Moved)
	// CauseServers means that the bytes of the same objects may have changed (new defaults, new fields, another encoding),
	// without an event.
	CauseServers = Cause(reason.Upstream)
	// CauseMismatch means that a self-check or a verification has found a difference.
	CauseMismatch = Cause(reason.Mismatch)
)

// Scope selects collections. The zero Scope selects all.
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

// String returns the scope's name for people. It leaves out the version of a collection.
func (s Scope) String() string {
	switch target := s.target.(type) {
	case nil:
		return "all"
	case CollectionKey:
		return fmt.Sprintf("%s/%s", target.GroupResource(), target.Representation)
	default:
		return fmt.Sprint(target)
	}
}

// Invalidation says that the states of the collections in a scope are no longer true.
type Invalidation struct {
	// Cause is CauseDefinition or CauseCatalog.
	Cause Cause
	Scope Scope
	// What describes the change to people; it may be empty.
	What string
}

// Invalidate drops the collections of an Invalidation. Once it has returned, no answer comes from their states.
//
// The collections cannot be started again before [Skew] has passed. Even then, a slow API server that has not learned of the
// change may answer the load, so the collections are verified later.
func (c *Collections) Invalidate(i Invalidation) {
	now := time.Now()
	c.recordChange(Change{At: now, Scope: i.Scope.String(), What: i.What, Cause: i.Cause})
	c.mu.Lock()
	c.bans.add(i.Scope, ban{until: now.Add(Skew), why: reason.Upstream})
	c.mu.Unlock()
	// By then, even the slowest API server has learned of the change.
	time.AfterFunc(Skew+maxLag, func() { c.requireVerification(i.Scope, time.Now()) })
	for _, r := range c.list() { // no collection of the scope can have started since the ban
		if i.Scope.selects(r.key) {
			c.drop(r, reason.Reason(i.Cause))
		}
	}
}

// bans has the scopes whose collections must not be started now: Invalidate bans a scope after a change, and a self-check
// bans a collection after a second mismatch. Collections.mu guards the map.
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

// add bans a scope, and forgets bans that are over.
func (b bans) add(scope Scope, added ban) {
	maps.DeleteFunc(b, func(_ Scope, old ban) bool { return !old.until.After(time.Now()) })
	b[scope] = added
}
