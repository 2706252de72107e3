package snapshot

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/watch"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// install replaces all that was known by a state that was loaded. Clients' watches end, unless they are up to date.
func (c *Collection) install(l *stateLoad) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.retired {
		c.budget.add(-l.size)
		return
	}
	old := c.view.Load()
	c.epoch++
	c.highestSeen = max(c.highestSeen, l.revision)
	c.pendingProbes = nil
	c.addUsedBytesLocked(-c.usedBytes)
	c.usedBytes = l.size // which the load has added to the budget
	c.versions = index.History{}
	c.versions.Append(index.Version{Revision: l.revision, Tree: l.state})
	c.checkpoints = []checkpoint{{at: time.Now(), revision: l.revision}}
	v := &View{
		Interval:    Interval{From: l.revision, To: l.revision},
		newest:      l.state,
		envelope:    l.envelope,
		provenBy:    l.askedBy,
		loadAskedAt: l.askedBy.Sent,
		streaming:   true, // after a load in pages, the watch is opened at once
	}
	if old.broadcaster != nil && l.watchesUpToDate {
		v.broadcaster = old.broadcaster
		v.broadcaster.Renew(*l.watchForm, watch.Span{Versions: c.versions, From: l.revision, To: l.revision})
	} else {
		v.broadcaster = c.newBroadcaster(l.watchForm, l.revision)
	}
	c.publishLocked(v)
}

// stateChange is one event of a watch, in the form in which it changes a state.
type stateChange struct {
	kind     string // wire.Added, wire.Modified or wire.Deleted
	key      string
	revision uint64
	object   *index.Object // the object after the change; nil for a deletion
	// deleted is the object in the event of a deletion; nil for other events, or if no watches are served.
	deleted *index.Object
}

// change returns the change as watchers see it. old is the object that it replaces or removes, or nil.
func (ch stateChange) change(old *index.Object) index.Change {
	if ch.kind == wire.Deleted {
		return index.Change{Before: old, After: ch.deleted, Deleted: true}
	}
	return index.Change{Before: old, After: ch.object}
}

// applyTo makes the change in a state, and returns the object that it replaces or removes, or nil. (A Tree refers to its
// nodes, so the caller's state changes.) After an error the state must not be used: the change may have been made.
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

// apply advances the newest state by one change. If that exceeds the byte bound, history is trimmed. After errFull the
// change was applied, but the bound is exceeded even so.
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
	overhead := state.VersionSize(old, ch.object)
	deletedSize := sizeOf(ch.deleted)
	next := index.Version{
		Revision: ch.revision,
		Tree:     state,
		Put:      ch.object,
		// When the version before this one is forgotten, this is freed: as many nodes as this version has copied, the
		// object that this version does not have any more, and the object of a deletion's event, which no watcher needs
		// then.
		SupersededBytes: overhead + sizeOf(old) + deletedSize,
	}
	if v.broadcaster != nil {
		next.Change = ch.change(old)
	}
	c.versions.Append(next)
	c.addUsedBytesLocked(overhead + sizeOf(ch.object) + deletedSize)
	c.advanceLocked(v, ch.revision, state)
	if c.budget.exceeded() {
		c.trimHalfLocked()
	}
	if c.budget.exceeded() {
		c.forgetBeforeLocked(ch.revision) // all of its history
	}
	if c.budget.exceeded() {
		return errFull
	}
	return nil
}

// sizeOf returns the size of an object; 0 for nil.
func sizeOf(o *index.Object) int64 {
	if o == nil {
		return 0
	}
	return o.Size()
}

// advanceTo advances the interval to the revision of a bookmark. The caller must have checked that this is not below the
// interval's end.
func (c *Collection) advanceTo(revision uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view.Load()
	if v.unavailable != reason.None {
		return wire.Inconsistent("a bookmark of a state that is not known")
	}
	c.advanceLocked(v, revision, v.newest)
	return nil
}

// advanceLocked publishes that the interval now ends at a revision with this state. The state is as new as the latest
// pending probe whose revision the interval has reached. Nothing else says how new the state is: an event or a
// bookmark may be old when it comes, because the upstream lags, or because the connection or this process was
// suspended.
func (c *Collection) advanceLocked(v *View, revision uint64, state index.Tree) {
	c.highestSeen = max(c.highestSeen, revision)
	c.addCheckpointLocked(time.Now(), revision)
	provenBy := v.provenBy
	reached := 0
	for reached < len(c.pendingProbes) && c.pendingProbes[reached].revision <= revision {
		if probe := c.pendingProbes[reached].probe; probe.Number > provenBy.Number {
			provenBy = probe
		}
		reached++
	}
	c.pendingProbes = slices.Delete(c.pendingProbes, 0, reached)
	next := v.clone()
	next.To = revision
	next.newest = state
	next.provenBy = provenBy
	c.publishLocked(next)
}

// maxPendingProbes bounds the pending probes. A new one beyond it replaces the last pending one.
const maxPendingProbes = 256

// recordProbe records the revision that a probe gave. It reports whether the interval has reached that revision. If
// not, the newest state becomes as new as the probe when it gets there. It must be called only while a stream is open.
func (c *Collection) recordProbe(result probeResult) (hasReached bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view.Load()
	if v.unavailable != reason.None {
		return false
	}
	if v.To >= result.revision {
		c.pendingProbes = []probeResult{result} // earlier probes would make the state no newer
		c.advanceLocked(v, v.To, v.newest)      // takes the probe at once
		return true
	}
	n := len(c.pendingProbes)
	if n > 0 && (n == maxPendingProbes || c.pendingProbes[n-1].revision == result.revision) {
		c.pendingProbes[n-1] = result
	} else {
		c.pendingProbes = append(c.pendingProbes, result)
	}
	return false
}

// highestRevision returns the highest revision that the upstream has given. A read of the upstream that begins now must not
// give a lower one.
func (c *Collection) highestRevision() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.highestSeen
}

// otherTimelineError says that a read of the upstream gave a lower revision than one before that read. Once this has been
// confirmed ([feed.confirmRevision]), the upstream has another timeline.
type otherTimelineError struct{ before, got uint64 }

func (e otherTimelineError) Error() string {
	return fmt.Sprintf("the upstream's revision went from %d to %d: its storage was restored or replaced", e.before, e.got)
}

// recordRevision records the revision that a read of the upstream gave. seenBefore is the highestRevision from before that
// read. A lower revision is an [otherTimelineError]. One that is far above is no error: there are control planes whose
// revisions are the time in nanoseconds.
func (c *Collection) recordRevision(revision, seenBefore uint64) error {
	if revision < seenBefore {
		return otherTimelineError{before: seenBefore, got: revision}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.highestSeen = max(c.highestSeen, revision)
	return nil
}

// update publishes a copy of the view that edit has changed. Without a state it does nothing.
func (c *Collection) update(edit func(next *View)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.view.Load(); v.unavailable == reason.None {
		next := v.clone()
		edit(next)
		c.publishLocked(next)
	}
}

// setEnvelope replaces the envelope, in which the form of items was unknown, by one in which it is known.
func (c *Collection) setEnvelope(envelope *wire.Envelope) {
	c.update(func(next *View) {
		next.envelope = envelope
		if next.broadcaster != nil {
			next.broadcaster.SetEnvelope(envelope)
		}
	})
}

// setStreaming records whether the feed reads a stream that goes on from the interval's end.
func (c *Collection) setStreaming(streaming bool) {
	if c.view.Load().streaming != streaming { // only the feed changes that
		c.update(func(next *View) { next.streaming = streaming })
	}
}

// setReloadingSince records when a load beside the known state began; the zero time means that there is none now.
func (c *Collection) setReloadingSince(begun time.Time) {
	c.update(func(next *View) { next.reloadingSince = begun })
}

// known reports whether there is a state, however old.
func (c *Collection) known() bool { return c.view.Load().unavailable == reason.None }

// drop forgets everything. why is the reason that requests get from now on.
func (c *Collection) drop(why reason.Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.retired {
		c.dropLocked(why)
	}
}

// retire is drop for ever: nothing that the feed still loads or reads is kept. It reports whether there was a state.
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

// dropLocked is drop, also of a collection that is retired.
func (c *Collection) dropLocked(why reason.Reason) {
	c.epoch++
	c.highestSeen = 0 // what comes next may have another timeline
	c.pendingProbes = nil
	c.checkpoints = nil
	c.versions = index.History{}
	c.addUsedBytesLocked(-c.usedBytes)
	next := &View{unavailable: why, unavailableSince: time.Now(), retired: c.retired}
	if old := c.view.Load(); old.unavailable != reason.None {
		next.unavailableSince = old.unavailableSince
	}
	c.publishLocked(next)
}

// publishLocked makes a view the current one. It completes the view with what the collection has. If the state was lost,
// lists may be forwarded again while another is loaded. publishLocked closes the old view's channels last: requests that
// wait for these must find the new view.
func (c *Collection) publishLocked(v *View) {
	old := c.view.Load()
	v.versions = c.versions
	v.epoch = c.epoch
	c.publishToBroadcasterLocked(v, old)
	v.replacedCh = make(chan struct{})
	v.freshenedCh = old.freshenedCh
	freshened := v.provenBy != old.provenBy || v.unavailable != old.unavailable
	if freshened {
		v.freshenedCh = make(chan struct{})
	}
	if old.unavailable == reason.None && v.unavailable != reason.None {
		c.forwardSlotsLeft.Store(loadForwards)
	}
	c.view.Store(v)
	close(old.replacedCh)
	if freshened {
		close(old.freshenedCh)
	}
}
