package snapshot

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/watch"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// complete is a state that was loaded as a whole.
type complete struct {
	state    index.Tree
	size     int64 // bytes of all its objects
	revision uint64
	envelope *wire.Envelope
	// form is how events are written; nil if no watches are served.
	form *watch.Form
	// watchesGoOn reports whether the clients' watches have been told all that led to this state.
	watchesGoOn bool
	// Probe is the request for the state, which is as new as that: reading it may have taken minutes.
	source.Probe
}

// open makes a complete state what is known, in place of what was known before. Its size is on the budget's
// account already. The clients' watches end, unless they were told all that led to this state.
func (c *Collection) open(l complete) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.retired {
		c.budget.add(-l.size)
		return
	}
	old := c.view.Load()
	c.epoch++
	c.highest, c.pendingProbes = max(c.highest, l.revision), nil
	c.accountLocked(-c.account)
	c.account = l.size
	c.versions = index.History{}
	c.versions.Append(index.Version{Revision: l.revision, Tree: l.state})
	now := time.Now()
	c.checkpoints = []checkpoint{{at: now, revision: l.revision}}
	v := &View{
		Interval:  Interval{From: l.revision, To: l.revision},
		currentAt: l.Probe,
		loaded:    l.Probe.Sent,
		streams:   true, // in a moment, if it came in pages
		versions:  c.versions,
		newest:    l.state,
		envelope:  l.envelope,
	}
	if old.broadcaster != nil && l.watchesGoOn {
		v.broadcaster = old.broadcaster
		v.broadcaster.Renew(*l.form, v.span())
	} else {
		v.broadcaster = c.newHub(l.form, l.revision)
	}
	c.publishLocked(v)
}

// sameRevisions reports whether two states have the same objects at the same revisions.
func sameRevisions(a, b index.Tree) bool {
	same := a.Len() == b.Len()
	if same {
		b.Ascend("", "", func(o *index.Object) bool {
			was, found := a.Get(o.Key)
			same = found && was.Revision == o.Revision
			return same
		})
	}
	return same
}

// change is one event of a watch, as the state takes it.
type change struct {
	kind     string // wire.Added, wire.Modified or wire.Deleted
	key      string
	revision uint64
	object   *index.Object // nil for a deletion
	// gone is the object of a deletion as the event has it, if watches are served.
	gone *index.Object
}

// apply executes the change on a state and returns the object that it replaces or removes.
func (ch change) apply(state index.Tree) (*index.Object, error) {
	if ch.kind == wire.Deleted {
		old := state.Remove(ch.key)
		if old == nil {
			return nil, wire.Inconsistent("revision %d deletes an object that is not there", ch.revision)
		}
		return old, nil
	}
	old := state.Set(ch.object)
	switch {
	case ch.kind == wire.Added && old != nil:
		return nil, wire.Inconsistent("revision %d adds an object that is there already", ch.revision)
	case ch.kind == wire.Modified && old == nil:
		return nil, wire.Inconsistent("revision %d modifies an object that is not there", ch.revision)
	}
	return old, nil
}

var errFull = errors.New("the byte bound leaves no room for this collection")

// apply advances the newest state by one change. errFull says that it has, and that there is no room for it.
func (c *Collection) apply(ch change) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view.Load()
	if v.unavailable != reason.None {
		return wire.Inconsistent("a change of a state that is not known")
	}
	if ch.revision <= v.To {
		return wire.Inconsistent("a change at revision %d comes after revision %d", ch.revision, v.To)
	}
	state := v.newest.Clone()
	old, err := ch.apply(state)
	if err != nil {
		return err
	}
	size := state.VersionSize(old != nil && ch.object != nil)
	next := index.Version{Revision: ch.revision, Tree: state, Superseded: size, Put: ch.object}
	if old != nil {
		next.Superseded += old.Size()
	}
	if ch.object != nil {
		size += ch.object.Size()
	}
	if ch.gone != nil {
		size += ch.gone.Size()
		next.Superseded += ch.gone.Size()
	}
	if v.broadcaster != nil {
		next.Change = index.Change{Before: old, After: cmp.Or(ch.object, ch.gone), Deleted: ch.kind == wire.Deleted}
	}
	c.versions.Append(next)
	c.accountLocked(size)
	c.advanceLocked(v, ch.revision, state)
	if c.budget.full() {
		c.shortenLocked()
		if c.budget.full() {
			return errFull
		}
	}
	return nil
}

// progress advances the interval to rev, which a bookmark has proved, and which is not below the interval's end.
func (c *Collection) progress(rev uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view.Load()
	if v.unavailable != reason.None {
		return wire.Inconsistent("a bookmark of a state that is not known")
	}
	c.advanceLocked(v, rev, v.newest)
	return nil
}

// advanceLocked publishes that the interval reaches rev with this state, and is as new as the last
// of the pendingProbes that it has reached. Nothing else says how new it is: an event or a bookmark may be
// old when it comes, because the upstream lags, or because the connection or this process was
// suspended.
func (c *Collection) advanceLocked(v *View, rev uint64, state index.Tree) {
	c.highest = max(c.highest, rev)
	c.addCheckpointLocked(time.Now(), rev)
	currentAt, reached := v.currentAt, 0
	for reached < len(c.pendingProbes) && c.pendingProbes[reached].revision <= rev {
		if pendingProbe := c.pendingProbes[reached]; pendingProbe.Number > currentAt.Number {
			currentAt = pendingProbe.Probe
		}
		reached++
	}
	c.pendingProbes = slices.Delete(c.pendingProbes, 0, reached)
	c.publishLocked(v.with(func(v *View) { v.To, v.currentAt, v.newest = rev, currentAt, state }))
}

// maxPendingProbes is the number of pendingProbes that are kept at most. With more, the last two become one: the state is as
// new as the second when it comes there.
const maxPendingProbes = 256

// expect records that the upstream had reached p.revision. It reports whether the interval has reached
// it too; if not, the newest state counts as new as the probe once it has. The caller reads a stream.
func (c *Collection) expect(p probed) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view.Load()
	if v.unavailable != reason.None {
		return false
	}
	next := pendingProbe{p.Probe, p.revision}
	if v.To >= p.revision {
		c.pendingProbes = append(c.pendingProbes[:0], next) // those before it are lower
		c.advanceLocked(v, v.To, v.newest)
		return true
	}
	if n := len(c.pendingProbes); n > 0 && (n == maxPendingProbes || c.pendingProbes[n-1].revision == p.revision) {
		c.pendingProbes = c.pendingProbes[:n-1]
	}
	// What is older than the bound would not make the state any newer.
	c.pendingProbes = slices.DeleteFunc(c.pendingProbes, func(g pendingProbe) bool { return p.Sent.Sub(g.Sent) >= c.limits.Staleness })
	c.pendingProbes = append(c.pendingProbes, next)
	return false
}

// minRevision is the revision that each read of the upstream must give, or a higher one, if it begins now.
func (c *Collection) minRevision() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.highest
}

// otherTimelineError is a revision that cannot follow the highest one that was seen before.
type otherTimelineError struct{ highest, now uint64 }

func (e otherTimelineError) Error() string {
	return fmt.Sprintf("the upstream's revision went from %d to %d: its storage was restored or replaced", e.highest, e.now)
}

// observe takes in the revision that a read of the upstream gave, and the minRevision from before that read. A
// revision below the minRevision is an [otherTimelineError]. One that is far above says nothing: there are control
// planes whose revisions are the time in nanoseconds.
func (c *Collection) observe(rev, minRevision uint64) error {
	if rev < minRevision {
		return otherTimelineError{highest: minRevision, now: rev}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.highest = max(c.highest, rev)
	return nil
}

// setEnvelope replaces the envelope by one that also knows the form of items.
func (c *Collection) setEnvelope(envelope *wire.Envelope) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view.Load()
	if v.unavailable != reason.None {
		return
	}
	if v.broadcaster != nil {
		v.broadcaster.SetEnvelope(envelope)
	}
	c.publishLocked(v.with(func(v *View) { v.envelope = envelope }))
}

// follows notes whether the feed reads a stream that goes on from the interval's end.
func (c *Collection) follows(stream bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.view.Load(); v.unavailable == reason.None && v.streams != stream {
		c.publishLocked(v.with(func(v *View) { v.streams = stream }))
	}
}

// reloads notes since when the state is loaded anew, beside the one that is known; zero: it is not.
func (c *Collection) reloads(since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.view.Load(); v.unavailable == reason.None {
		c.publishLocked(v.with(func(v *View) { v.reloads = since }))
	}
}

// known reports whether there is a state, however old.
func (c *Collection) known() bool { return c.view.Load().unavailable == reason.None }

// drop forgets everything, and says why nothing is known.
func (c *Collection) drop(why reason.Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.retired {
		c.dropLocked(why)
	}
}

// retire drops everything for ever, whatever the feed may still bring.
func (c *Collection) retire(why reason.Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.retired {
		return
	}
	c.retired = true
	c.dropLocked(why)
}

func (c *Collection) dropLocked(why reason.Reason) {
	c.epoch++
	c.highest, c.pendingProbes, c.checkpoints, c.versions = 0, nil, nil, index.History{}
	c.accountLocked(-c.account)
	c.publishLocked(&View{unavailable: why, retired: c.retired})
}

// publishLocked makes a view the current one.
func (c *Collection) publishLocked(v *View) {
	old := c.view.Load()
	v.versions, v.epoch = c.versions, c.epoch
	c.tellHubLocked(v, old)
	v.next, v.newer = make(chan struct{}), old.newer
	newer := v.currentAt != old.currentAt || v.unavailable != old.unavailable
	if newer {
		v.newer = make(chan struct{})
	}
	if old.unavailable == reason.None && v.unavailable != reason.None {
		c.forwardSlotsLeft.Store(forwardSlots)
	}
	c.view.Store(v)
	close(old.next)
	if newer {
		close(old.newer)
	}
}
