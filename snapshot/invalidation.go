package snapshot

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
)

// Skew is the time after a change (of a definition, or of the server that answers for a group) in which some API
// servers may not know the change yet: each learns of it by a watch of its own. So does listproxy.
const Skew = 10 * time.Second

// The causes of an [Invalidation]. Losses are counted by them.
const (
	// Definition is a change of a resource's definition. The upstream then writes its objects in other bytes. Not all
	// API servers learn of the change at the same time, and watches from before go on with the old form.
	Definition = reason.Schema
	// Catalog is a change of the server that answers for a group and version. Another server has other objects, and
	// revisions of its own.
	Catalog = reason.Moved
	// Servers is a change of the API servers behind the upstream, or of the version in which they write a resource. They
	// may write the same objects in other bytes (new defaults, new fields, another encoding), and no event tells of it.
	Servers = reason.Upstream
	// Mismatch is a difference that was found between a collection and the upstream.
	Mismatch = reason.Mismatch
)

// Scope says which collections an [Invalidation] is about. The zero Scope is all of them.
type Scope struct{ target any } // nil, schema.GroupVersion, schema.GroupResource or CollectionKey

// OfVersion is the Scope of all resources of a group and version.
func OfVersion(gv schema.GroupVersion) Scope { return Scope{gv} }

// OfResource is the Scope of one resource, in all its versions and representations.
func OfResource(gr schema.GroupResource) Scope { return Scope{gr} }

// OfCollection is the Scope of one resource in one version and representation.
func OfCollection(key CollectionKey) Scope { return Scope{key} }

// scopesOf returns every Scope in which a collection is.
func scopesOf(key CollectionKey) [4]Scope {
	return [...]Scope{{}, {key.GroupVersion()}, {key.GroupResource()}, {key}}
}

// has reports whether a collection is in the scope.
func (s Scope) has(key CollectionKey) bool {
	scopes := scopesOf(key)
	return slices.Contains(scopes[:], s)
}

// Until says when collections may be kept again after an [Invalidation]. The zero Until is at once.
type Until struct {
	after                 time.Duration
	untilLifted, liftsNow bool
}

// For returns the Until that is d after the last Invalidation with the same Cause and Scope.
func For(d time.Duration) Until { return Until{after: d} }

// UntilLifted returns the Until that lasts until an Invalidation with the same Cause and Scope has [Lift].
func UntilLifted() Until { return Until{untilLifted: true} }

// Lift returns the Until of an Invalidation that ends one with [UntilLifted], and drops nothing.
func Lift() Until { return Until{liftsNow: true} }

// Invalidation drops the collections of a scope at once, because something changed on which their answers depend. They
// are not kept for a while.
type Invalidation struct {
	// Cause is Definition, Catalog, Servers or Mismatch.
	Cause reason.Reason
	Scope Scope
	Until Until
	// What says what has changed, for people; it may be empty.
	What string
}

// endReason returns the reason for requests that had already found a state.
func (i Invalidation) endReason() reason.Reason {
	if i.Cause == Mismatch {
		return reason.Warming
	}
	return reason.Upstream
}

// banReason returns the reason for requests that come while the collection must not be kept.
func banReason(cause reason.Reason) reason.Reason {
	if cause == Mismatch {
		return reason.Form
	}
	return reason.Upstream
}

// bans say which collections must not be kept. Collections.mu guards them.
type bans map[banKey]ban

// banKey names a ban by the invalidation that began it.
type banKey struct {
	cause reason.Reason
	scope Scope
}

// ban lasts until a time and, with untilLifted, until it is lifted.
type ban struct {
	untilLifted bool
	until       time.Time
}

func (b ban) isOver(now time.Time) bool { return !b.untilLifted && !now.Before(b.until) }

// take applies an invalidation.
func (b bans) take(i Invalidation, now time.Time) {
	key := banKey{i.Cause, i.Scope}
	current := b[key]
	switch {
	case i.Until.untilLifted:
		current.untilLifted = true
	case i.Until.liftsNow:
		current.untilLifted = false
	default:
		if until := now.Add(i.Until.after); until.After(current.until) {
			current.until = until
		}
	}
	b[key] = current
}

// reason returns the reason why a collection must not be kept; None if it may be kept.
func (b bans) reason(key CollectionKey, now time.Time) reason.Reason {
	if len(b) == 0 {
		return reason.None
	}
	for _, cause := range [...]reason.Reason{Definition, Catalog, Servers, Mismatch} {
		for _, scope := range scopesOf(key) {
			if ban, found := b[banKey{cause, scope}]; found && !ban.isOver(now) {
				return banReason(cause)
			}
		}
	}
	return reason.None
}

// forget removes bans that are over and that verifyAfter does not need any more.
func (b bans) forget(now time.Time) {
	maps.DeleteFunc(b, func(_ banKey, ban ban) bool { return ban.isOver(now.Add(-maxLag)) })
}

// Invalidate drops the collections of an Invalidation. When it returns, nothing is given any more that they knew.
func (c *Collections) Invalidate(i Invalidation) {
	var ended []*running
	c.mu.Lock()
	now := time.Now()
	c.bans.take(i, now)
	c.changes = c.changes.with(i, now)
	if !i.Until.liftsNow {
		for key, r := range c.all {
			if i.Scope.has(key) {
				ended = append(ended, r)
				delete(c.all, key)
			}
		}
	}
	if (i.Cause == Definition || i.Cause == Catalog) && c.ctx.Err() == nil {
		c.feeds.Go(func() { c.verifyAfter(i, now) })
	}
	c.mu.Unlock()
	for _, r := range ended {
		c.giveUp(r, i.endReason(), i.Cause)
	}
}

// Validity is what decides, at one moment, whether a state that was taken from the collection before may still be
// given.
type Validity struct {
	// Epoch is the epoch in which the present state was learned.
	Epoch uint64
	// Unavailable is the reason why there is no newest state; None if there is one.
	Unavailable reason.Reason
	// Interval has the revisions whose states are known.
	Interval
	// Staleness is [Limits].Staleness.
	Staleness time.Duration
}

// Validity returns what the collection's answers depend on now.
func (c *Collection) Validity() Validity {
	v := c.view.Load()
	return Validity{Epoch: v.epoch, Unavailable: v.unavailable, Interval: v.Interval, Staleness: c.limits.Staleness}
}

// WhyNot returns the reason why a state that was taken from the collection before must not be given now; None if it may
// be. Its epoch must not have ended, its revision must still be known, and a newest state must not be too old by now.
func (validity Validity) WhyNot(found Snapshot, now time.Time) reason.Reason {
	newest := !found.CurrentAt.IsZero()
	switch {
	case newest && validity.Unavailable != reason.None:
		return validity.Unavailable
	case newest && clock.Age(found.CurrentAt, now) >= validity.Staleness:
		return reason.Stale
	}
	if unavailable := validity.whyUnknown(found.Revision, validity.Unavailable); unavailable != reason.None {
		return unavailable
	}
	if validity.Epoch != found.epoch {
		return reason.Warming // what was known has been dropped, and loaded again since
	}
	return reason.None
}
