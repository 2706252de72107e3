package snapshot

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
)

// Skew is how long after a change (of a definition, of the server that answers for a group) one API
// server may still go by what was before, while others go by what is now: each learns of it by a watch
// of its own. So does listproxy.
const Skew = 10 * time.Second

// Ground is one of the things that an answer from memory depends on. Each has a row in consequences.
type Ground int

const (
	// Definition is how a resource is defined. After a change the upstream writes its objects in
	// other bytes. Not all API servers see the change at the same time, and watches from before go
	// on with the old form.
	Definition Ground = iota
	// Catalog is which server answers for a group and version. Another server has other objects,
	// and revisions of its own.
	Catalog
	// Servers are the API servers behind the upstream, and the version in which they write a
	// resource. Other API servers may write the same objects in other bytes (new defaults, new
	// fields, another encoding), and no event tells of it.
	Servers
	// Past is the state and history of a collection.
	Past
	numGrounds
)

// consequence says what follows when a Ground has moved.
type consequence struct {
	// ended is the reason for requests that had already found a state.
	ended reason.Reason
	// banned is the reason for requests while nothing is kept.
	banned reason.Reason
	loss   reason.Reason
}

var consequences = [numGrounds]consequence{
	Definition: {ended: reason.Upstream, banned: reason.Upstream, loss: reason.Schema},
	Catalog:    {ended: reason.Upstream, banned: reason.Upstream, loss: reason.Moved},
	Servers:    {ended: reason.Upstream, banned: reason.Upstream, loss: reason.Upstream},
	Past:       {ended: reason.Warming, banned: reason.Form, loss: reason.Mismatch},
}

// Extent says which collections an [Invalidation] is about. The zero Extent is all of them.
type Extent struct{ of any } // nil, schema.GroupVersion, schema.GroupResource or Resource

// OfVersion is the Extent of all resources of a group and version.
func OfVersion(gv schema.GroupVersion) Extent { return Extent{gv} }

// OfResource is the Extent of one resource, in all its versions and representations.
func OfResource(gr schema.GroupResource) Extent { return Extent{gr} }

// OfCollection is the Extent of one resource in one version and representation.
func OfCollection(r Resource) Extent { return Extent{r} }

// extentsOf returns every Extent that has r in it.
func extentsOf(r Resource) [4]Extent {
	return [...]Extent{{}, {r.GroupVersion()}, {r.GroupResource()}, {r}}
}

func (e Extent) has(r Resource) bool {
	extents := extentsOf(r)
	return slices.Contains(extents[:], e)
}

// Until says when something may be kept again after an [Invalidation]. The zero Until is at once.
type Until struct {
	after      time.Duration
	told, over bool
}

// After lasts until d has passed in which the same Ground and Extent was not invalidated again.
func After(d time.Duration) Until { return Until{after: d} }

// Told lasts until another Invalidation of the same Ground and Extent has Over.
func Told() Until { return Until{told: true} }

// Over ends an Invalidation with Told. It drops nothing.
func Over() Until { return Until{over: true} }

// Invalidation says that a Ground has moved: what is kept of some resources is dropped at once, and
// nothing is kept of them for a while.
type Invalidation struct {
	Ground Ground
	Extent Extent
	Until  Until
	// What has changed, for people; it may be empty.
	What string
}

// bans say which collections must not be kept. Collections.mu guards them.
type bans map[banKey]ban

type banKey struct {
	ground Ground
	extent Extent
}

type ban struct {
	told  bool
	until time.Time
}

func (b ban) over(now time.Time) bool { return !b.told && !now.Before(b.until) }

// take applies an invalidation.
func (b bans) take(i Invalidation, now time.Time) {
	key := banKey{i.Ground, i.Extent}
	is := b[key]
	switch {
	case i.Until.told:
		is.told = true
	case i.Until.over:
		is.told = false
	default:
		is.until = now.Add(i.Until.after)
	}
	b[key] = is
}

// why returns why nothing is kept of r; None if it may be kept.
func (b bans) why(r Resource, now time.Time) reason.Reason {
	if len(b) == 0 {
		return reason.None
	}
	extents := extentsOf(r)
	for g := range numGrounds {
		for _, e := range extents {
			if is, found := b[banKey{g, e}]; found && !is.over(now) {
				return consequences[g].banned
			}
		}
	}
	return reason.None
}

// forget removes what is over, when verifyAfter needs it no longer.
func (b bans) forget(now time.Time) {
	maps.DeleteFunc(b, func(_ banKey, is ban) bool { return is.over(now.Add(-lagging)) })
}

// Invalidate drops what i says. When it returns, nothing that was learned before is given any more.
func (c *Collections) Invalidate(i Invalidation) {
	var ended []*running
	c.mu.Lock()
	now := time.Now()
	c.bans.take(i, now)
	c.changes = c.changes.with(i, now)
	if !i.Until.over {
		for r, running := range c.all {
			if i.Extent.has(r) {
				ended = append(ended, running)
				delete(c.all, r)
			}
		}
	}
	if (i.Ground == Definition || i.Ground == Catalog) && c.ctx.Err() == nil {
		c.feeds.Go(func() { c.verifyAfter(i, now) })
	}
	c.mu.Unlock()
	is := consequences[i.Ground]
	for _, r := range ended {
		c.giveUp(r, is.ended, is.loss)
	}
}

// Standing is what the answers of a collection depend on, at one moment.
type Standing struct {
	// Epoch is that of what the collection knows.
	Epoch uint64
	// Absence is why there is no newest state; None if there is one.
	Absence reason.Reason
	// Interval is that of the revisions whose states are known.
	Interval
	// Staleness is the age from which on the newest state is not given any more.
	Staleness time.Duration
}

// Standing returns what the collection stands on now.
func (c *Collection) Standing() Standing {
	v := c.view.Load()
	return Standing{Epoch: v.epoch, Absence: v.absence, Interval: v.Interval, Staleness: c.limits.Staleness}
}

// Doubt says why a state that was taken from the collection before must not be given at now; None
// if it may be. Its epoch must not have ended, its revision must still be known, and a newest
// state must not have become too old.
func (s Standing) Doubt(found Snapshot, now time.Time) reason.Reason {
	newest := !found.Heard.IsZero()
	switch {
	case newest && s.Absence != reason.None:
		return s.Absence
	case newest && clock.Age(found.Heard, now) >= s.Staleness:
		return reason.Stale
	}
	if absence := s.knows(found.Revision, s.Absence); absence != reason.None {
		return absence
	}
	if s.Epoch != found.epoch {
		return reason.Warming // what was known has been dropped, and loaded again since
	}
	return reason.None
}
