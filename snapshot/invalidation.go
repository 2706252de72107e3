package snapshot

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
)

// Skew is the time, after a change (of a definition, of the server that answers for a group), in which one API
// server may still go by what was before, while others go by what is now: each learns of it by a watch
// of its own. So does listproxy.
const Skew = 10 * time.Second

// What an answer from memory depends on, named by the reason with which losses are counted that are caused
// by a change of it.
const (
	// Definition is how a resource is defined. After a change the upstream writes its objects in
	// other bytes. Not all API servers see the change at the same time, and watches from before go
	// on with the old form.
	Definition = reason.Schema
	// Catalog is which server answers for a group and version. Another server has other objects,
	// and revisions of its own.
	Catalog = reason.Moved
	// Servers are the API servers behind the upstream, and the version in which they write a
	// resource. Other API servers may write the same objects in other bytes (new defaults, new
	// fields, another encoding), and no event tells of it.
	Servers = reason.Upstream
	// Mismatch is a difference that was found between a collection and the upstream.
	Mismatch = reason.Mismatch
)

// Scope says which collections an [Invalidation] is about. The zero Scope is all of them.
type Scope struct{ target any } // nil, schema.GroupVersion, schema.GroupResource or Resource

// OfVersion is the Scope of all resources of a group and version.
func OfVersion(gv schema.GroupVersion) Scope { return Scope{gv} }

// OfResource is the Scope of one resource, in all its versions and representations.
func OfResource(gr schema.GroupResource) Scope { return Scope{gr} }

// OfCollection is the Scope of one resource in one version and representation.
func OfCollection(r CollectionKey) Scope { return Scope{r} }

// scopesOf returns every Scope that has r in it.
func scopesOf(r CollectionKey) [4]Scope {
	return [...]Scope{{}, {r.GroupVersion()}, {r.GroupResource()}, {r}}
}

func (s Scope) has(r CollectionKey) bool {
	scopes := scopesOf(r)
	return slices.Contains(scopes[:], s)
}

// Until says when something may be kept again after an [Invalidation]. The zero Until is at once.
type Until struct {
	after                 time.Duration
	untilLifted, liftsNow bool
}

// For lasts for d, since the last Invalidation of the same Cause and Scope.
func For(d time.Duration) Until { return Until{after: d} }

// UntilLifted lasts until another Invalidation of the same Cause and Scope has [Lift].
func UntilLifted() Until { return Until{untilLifted: true} }

// Lift ends an Invalidation with [UntilLifted]. It drops nothing.
func Lift() Until { return Until{liftsNow: true} }

// Invalidation says that something has changed on which answers depend: what is kept of some resources is
// dropped at once, and nothing is kept of them for a while.
type Invalidation struct {
	// Cause is Definition, Catalog, Servers or Mismatch.
	Cause reason.Reason
	Scope Scope
	Until Until
	// What has changed, for people; it may be empty.
	What string
}

// ended is the reason for requests that had already found a state.
func (i Invalidation) ended() reason.Reason {
	if i.Cause == Mismatch {
		return reason.Warming
	}
	return reason.Upstream
}

// banReason is the reason for requests that come while nothing is kept.
func banReason(cause reason.Reason) reason.Reason {
	if cause == Mismatch {
		return reason.Form
	}
	return reason.Upstream
}

// bans say which collections must not be kept. Collections.mu guards them.
type bans map[banKey]ban

type banKey struct {
	cause reason.Reason
	scope Scope
}

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

// reason returns the reason why nothing is kept of r; None if it may be kept.
func (b bans) reason(r CollectionKey, now time.Time) reason.Reason {
	if len(b) == 0 {
		return reason.None
	}
	for _, cause := range [...]reason.Reason{Definition, Catalog, Servers, Mismatch} {
		for _, scope := range scopesOf(r) {
			if ban, found := b[banKey{cause, scope}]; found && !ban.isOver(now) {
				return banReason(cause)
			}
		}
	}
	return reason.None
}

// forget removes what is over, when verifyAfter needs it no longer.
func (b bans) forget(now time.Time) {
	maps.DeleteFunc(b, func(_ banKey, ban ban) bool { return ban.isOver(now.Add(-maxLag)) })
}

// Invalidate drops what i says. When it returns, nothing that was learned before is given any more.
func (c *Collections) Invalidate(i Invalidation) {
	var ended []*running
	c.mu.Lock()
	now := time.Now()
	c.bans.take(i, now)
	c.changes = c.changes.with(i, now)
	if !i.Until.liftsNow {
		for r, running := range c.all {
			if i.Scope.has(r) {
				ended = append(ended, running)
				delete(c.all, r)
			}
		}
	}
	if (i.Cause == Definition || i.Cause == Catalog) && c.ctx.Err() == nil {
		c.feeds.Go(func() { c.verifyAfter(i, now) })
	}
	c.mu.Unlock()
	for _, r := range ended {
		c.giveUp(r, i.ended(), i.Cause)
	}
}

// Validity is what the answers of a collection depend on, at one moment.
type Validity struct {
	// Epoch is that of what the collection knows.
	Epoch uint64
	// Unavailable is the reason why there is no newest state; None if there is one.
	Unavailable reason.Reason
	// Interval is that of the revisions whose states are known.
	Interval
	// Staleness is the age from which on the newest state is not given any more.
	Staleness time.Duration
}

// Validity returns what the collection's answers depend on now.
func (c *Collection) Validity() Validity {
	v := c.view.Load()
	return Validity{Epoch: v.epoch, Unavailable: v.unavailable, Interval: v.Interval, Staleness: c.limits.Staleness}
}

// WhyNot returns the reason why a state that was taken from the collection before must not be given at now; None
// if it may be. Its epoch must not have ended, its revision must still be known, and a newest
// state must not have become too old.
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
