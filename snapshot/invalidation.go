package snapshot

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/reason"
)

// Skew is how long after a change (of a definition, or of the server that answers for a group) some API servers may not
// know the change yet. Each API server learns of it by a watch of its own, and so does listproxy.
const Skew = 10 * time.Second

// Cause is why collections are dropped or verified. The metric of losses has its reason as a label.
type Cause reason.Reason

const (
	// CauseDefinition is a change of a resource's definition. The upstream then writes its objects in other bytes. Not
	// all API servers learn of the change at the same time, and watches from before go on with the old form.
	CauseDefinition = Cause(reason.Schema)
	// CauseCatalog is a change of the server that answers for a group and version. Another server has other objects, and
	// revisions of its own.
	CauseCatalog = Cause(reason.Moved)
	// CauseServers is a change of the API servers behind the upstream, or of the version in which they write a resource.
	// They may write the same objects in other bytes (new defaults, new fields, another encoding), and no event tells of
	// it. It is a cause of verifications only.
	CauseServers = Cause(reason.Upstream)
	// CauseMismatch is a difference that was found between a collection and the upstream.
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

// String returns the scope's name, for people. It leaves out the version of a collection.
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

// Invalidation says that what is known of the collections of a scope is not true any more.
type Invalidation struct {
	// Cause is CauseDefinition, CauseCatalog or CauseMismatch.
	Cause Cause
	Scope Scope
	// What says for people what has changed. It may be empty.
	What string
}

// Invalidate drops the collections of an Invalidation. Once it has returned, no answer comes from what they knew.
//
// After a mismatch the collections may be started again at once. After a change they may be started again once [Skew] has
// passed, and are then verified: they may have been loaded from an API server that did not know the change.
func (c *Collections) Invalidate(i Invalidation) {
	now := time.Now()
	var dropped []*runningCollection
	c.mu.Lock()
	c.changes = c.changes.withLatest(Change{At: now, Scope: i.Scope.String(), What: i.What, Cause: i.Cause})
	for key, r := range c.all {
		if i.Scope.selects(key) {
			dropped = append(dropped, r)
			delete(c.all, key)
		}
	}
	if i.Cause != CauseMismatch && c.ctx.Err() == nil { // no goroutine begins after Close
		c.bans.add(i.Scope, now.Add(Skew))
		c.loops.Go(func() { c.verifyAfterSkew(i.Scope) })
	}
	c.mu.Unlock()
	why := reason.Upstream
	if i.Cause == CauseMismatch {
		why = reason.Warming // a load begins at once
	}
	for _, r := range dropped {
		c.endDropped(r, why, reason.Reason(i.Cause))
	}
}

// bans maps a scope to the time before which its collections must not be started. After a change, Invalidate bans all
// collections of a resource or of a version. After a second mismatch, a self-check bans its one collection. Collections.mu
// guards bans.
type bans map[Scope]time.Time

// whyNotStart returns the reason why a collection must not be started; None if it may be.
func (b bans) whyNotStart(key CollectionKey, now time.Time) reason.Reason {
	for _, scope := range scopesOf(key) {
		switch {
		case !b[scope].After(now):
			continue
		case scope == OfCollection(key): // of a self-check
			return reason.Form
		default:
			return reason.Upstream
		}
	}
	return reason.None
}

// add adds a ban, and forgets those that are over.
func (b bans) add(scope Scope, until time.Time) {
	maps.DeleteFunc(b, func(_ Scope, until time.Time) bool { return !until.After(time.Now()) })
	b[scope] = until
}
