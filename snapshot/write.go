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

// loadedState is a complete state, ready to be installed.
type loadedState struct {
	state    index.Tree
	size     int64 // bytes of all its objects
	revision uint64
	envelope *wire.Envelope
	// form is the form in which events are written; nil if no watches are served.
	form *watch.Form
	// watchesGoOn reports whether the clients' watches have been told all that led to this state.
	watchesGoOn bool
	// Probe is the request for the state. It says how new the state is, since reading it may have taken minutes.
	source.Probe
}

// install replaces all that was known by a state that was loaded. The budget has counted its size already.
// The clients' watches end, unless they were told all that led to this state.
func (c *Collection) install(l loadedState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.retired {
		c.budget.add(-l.size)
		return
	}
	old := c.view.Load()
	c.epoch++
	c.highest = max(c.highest, l.revision)
	c.pendingProbes = nil
	c.accountLocked(-c.account)
	c.account = l.size // which the load has added to the budget
	c.versions = index.History{}
	c.versions.Append(index.Version{Revision: l.revision, Tree: l.state})
	now := time.Now()
	c.checkpoints = []checkpoint{{at: now, revision: l.revision}}
	v := &View{
		Interval:  Interval{From: l.revision, To: l.revision},
		currentAt: l.Probe,
		loaded:    l.Probe.Sent,
		streaming: true, // after a load in pages, the watch is opened at once
		versions:  c.versions,
		newest:    l.state,
		envelope:  l.envelope,
	}
	if old.broadcaster != nil && l.watchesGoOn {
		v.broadcaster = old.broadcaster
		v.broadcaster.Renew(*l.form, v.span())
	} else {
		v.broadcaster = c.newBroadcaster(l.form, l.revision)
	}
	c.publishLocked(v)
}

// sameRevisions reports whether two states have the same objects at the same revisions.
func sameRevisions(a, b index.Tree) bool {
	if a.Len() != b.Len() {
		return false
	}
	same := true
	b.Ascend("", "", func(o *index.Object) bool {
		other, found := a.Get(o.Key)
		same = found && other.Revision == o.Revision
		return same
	})
	return same
}

// stateChange is one event of a watch, in the form in which it changes a state.
type stateChange struct {
	kind     string // wire.Added, wire.Modified or wire.Deleted
	key      string
	revision uint64
	object   *index.Object // nil for a deletion
	// deleted is the object that a deletion's event holds; nil if no watches are served.
	deleted *index.Object
}

// applyTo changes a state and returns the object that the change replaces or removes. After an error the state
// must not be used: the change may have been made.
func (ch stateChange) applyTo(state index.Tree) (*index.Object, error) {
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

// errFull says that a state, or a change of it, does not fit into memory.
var errFull = errors.New("the byte bound leaves no room for this collection")

// apply advances the newest state by one change. errFull means that the change was applied, but exceeds the byte bound.
func (c *Collection) apply(ch stateChange) error {
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
	old, err := ch.applyTo(state)
	if err != nil {
		return err
	}
	replaces := old != nil && ch.object != nil
	size := state.VersionSize(replaces)
	next := index.Version{Revision: ch.revision, Tree: state, Superseded: size, Put: ch.object}
	if old != nil {
		next.Superseded += old.Size()
	}
	if ch.object != nil {
		size += ch.object.Size()
	}
	if ch.deleted != nil {
		size += ch.deleted.Size()
		next.Superseded += ch.deleted.Size()
	}
	if v.broadcaster != nil {
		next.Change = index.Change{Before: old, After: cmp.Or(ch.object, ch.deleted), Deleted: ch.kind == wire.Deleted}
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

// progress advances the interval to the revision of a bookmark, which must not be below the interval's end.
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

// advanceLocked publishes that the interval now ends at rev with this state. The state is as new as the latest
// pending probe whose revision it has reached. Nothing else tells how new it is: an event or a bookmark may be
// old when it comes, because the upstream lags, or because the connection or this process was suspended.
func (c *Collection) advanceLocked(v *View, rev uint64, state index.Tree) {
	c.highest = max(c.highest, rev)
	c.addCheckpointLocked(time.Now(), rev)
	currentAt := v.currentAt
	reached := 0
	for reached < len(c.pendingProbes) && c.pendingProbes[reached].revision <= rev {
		if pending := c.pendingProbes[reached]; pending.Number > currentAt.Number {
			currentAt = pending.Probe
		}
		reached++
	}
	c.pendingProbes = slices.Delete(c.pendingProbes, 0, reached)
	next := v.clone()
	next.To = rev
	next.newest = state
	next.currentAt = currentAt
	c.publishLocked(next)
}

// maxPendingProbes bounds the pending probes. A new one beyond it replaces the last pending one.
const maxPendingProbes = 256

// expect records that a probe gave p.revision. It reports whether the interval has reached that revision. If not,
// the newest state becomes as new as the probe when it gets there. It must be called only while a stream is read.
func (c *Collection) expect(p probeResult) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view.Load()
	if v.unavailable != reason.None {
		return false
	}
	if v.To >= p.revision {
		c.pendingProbes = append(c.pendingProbes[:0], p) // earlier probes make the state no newer than this one
		c.advanceLocked(v, v.To, v.newest)
		return true
	}
	if n := len(c.pendingProbes); n > 0 && (n == maxPendingProbes || c.pendingProbes[n-1].revision == p.revision) {
		c.pendingProbes = c.pendingProbes[:n-1]
	}
	// A state that is only as new as such an old probe would be too stale to be given.
	tooOld := func(pending probeResult) bool { return p.Sent.Sub(pending.Sent) >= c.limits.Staleness }
	c.pendingProbes = append(slices.DeleteFunc(c.pendingProbes, tooOld), p)
	return false
}

// minRevision returns the lowest revision that a read of the upstream which begins now may give.
func (c *Collection) minRevision() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.highest
}

// otherTimelineError says that the upstream's revision is lower than one that it gave before.
type otherTimelineError struct{ highest, now uint64 }

func (e otherTimelineError) Error() string {
	return fmt.Sprintf("the upstream's revision went from %d to %d: its storage was restored or replaced", e.highest, e.now)
}

// observe records the revision that a read of the upstream gave; minRevision is from before that read. A lower
// revision is an [otherTimelineError]. One that is far above is no error: there are control planes whose revisions
// are the time in nanoseconds.
func (c *Collection) observe(rev, minRevision uint64) error {
	if rev < minRevision {
		return otherTimelineError{highest: minRevision, now: rev}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.highest = max(c.highest, rev)
	return nil
}

// setEnvelope replaces the envelope, in which the form of items was unknown, by one in which it is known.
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
	next := v.clone()
	next.envelope = envelope
	c.publishLocked(next)
}

// setStreaming records whether the feed reads a stream that goes on from the interval's end.
func (c *Collection) setStreaming(streaming bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.view.Load(); v.unavailable == reason.None && v.streaming != streaming {
		next := v.clone()
		next.streaming = streaming
		c.publishLocked(next)
	}
}

// setReloadingSince records when a load beside the known state began; the zero time means that there is none now.
func (c *Collection) setReloadingSince(begun time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.view.Load(); v.unavailable == reason.None {
		next := v.clone()
		next.reloadingSince = begun
		c.publishLocked(next)
	}
}

// known reports whether there is a state, however old.
func (c *Collection) known() bool { return c.view.Load().unavailable == reason.None }

// drop forgets everything. Requests are told why.
func (c *Collection) drop(why reason.Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.retired {
		c.dropLocked(why)
	}
}

// retire drops everything for ever: nothing that the feed still loads or reads is taken in. It reports whether there was
// a state.
func (c *Collection) retire(why reason.Reason) (wasKnown bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.retired {
		return false
	}
	wasKnown = c.known()
	c.retired = true
	c.dropLocked(why)
	return wasKnown
}

// dropLocked forgets everything. Requests are told why.
func (c *Collection) dropLocked(why reason.Reason) {
	c.epoch++
	c.highest = 0 // what comes next may have another timeline
	c.pendingProbes = nil
	c.checkpoints = nil
	c.versions = index.History{}
	c.accountLocked(-c.account)
	next := &View{unavailable: why, unavailableSince: time.Now(), retired: c.retired}
	if old := c.view.Load(); old.unavailable != reason.None {
		next.unavailableSince = old.unavailableSince
	}
	c.publishLocked(next)
}

// publishLocked makes a view the current one. It closes the old view's channels last: whoever they wake must find
// the new view.
func (c *Collection) publishLocked(v *View) {
	old := c.view.Load()
	v.versions = c.versions
	v.epoch = c.epoch
	c.publishToBroadcasterLocked(v, old)
	v.replacedCh = make(chan struct{})
	v.outdatedCh = old.outdatedCh
	outdated := v.currentAt != old.currentAt || v.unavailable != old.unavailable
	if outdated {
		v.outdatedCh = make(chan struct{})
	}
	if old.unavailable == reason.None && v.unavailable != reason.None {
		// A new load begins, during which as many lists may be forwarded again.
		c.forwardSlotsLeft.Store(forwardSlots)
	}
	c.view.Store(v)
	close(old.replacedCh)
	if outdated {
		close(old.outdatedCh)
	}
}
