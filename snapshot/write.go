package snapshot

import (
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

// install replaces the known states by a loaded one. Clients' watches end unless l.watchesUpToDate is true.
func (c *Collection) install(l *stateLoad) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.retired {
		c.shared.budget.add(-l.size) // the load has added its size
		return
	}
	old := c.view.Load()
	c.epoch++
	c.highestSeen = max(c.highestSeen, l.revision)
	c.pendingProbes = nil
	c.addUsedBytesLocked(-c.usedBytes)
	c.usedBytes = l.size // not by addUsedBytesLocked: the load has added the size to the budget
	c.versions = index.History{}
	c.versions.Append(index.Version{Revision: l.revision, Tree: l.state})
	c.checkpoints = []checkpoint{{at: time.Now(), revision: l.revision}}
	v := &View{
		Interval:    Interval{From: l.revision, To: l.revision},
		newest:      l.state,
		envelope:    l.envelope,
		provenBy:    l.probe,
		loadAskedAt: l.probe.Sent,
		streaming:   true, // the feed reads the load's stream; after a load in pages, it opens a watch at once
	}
	if old.broadcaster != nil && l.watchesUpToDate {
		v.broadcaster = old.broadcaster
		v.broadcaster.Renew(*l.watchForm, watch.Span{Versions: c.versions, From: l.revision, To: l.revision})
	} else {
		v.broadcaster = c.newBroadcaster(l.watchForm, l.revision)
	}
	c.publishLocked(v)
}

// stateChange is a change of a state: an event of a watch that is no bookmark.
type stateChange struct {
	// kind is wire.Added, wire.Modified or wire.Deleted.
	kind     string
	key      string
	revision uint64
	// object is the object after the change; nil for a deletion.
	object *index.Object
	// deleted is the object in the event of a deletion; nil for other events, or if no watches are served.
	deleted *index.Object
}

// forWatchers returns the change in the form that watchers deliver. old is the object that the change replaces or removes,
// or nil.
func (ch stateChange) forWatchers(old *index.Object) index.Change {
	if ch.kind == wire.Deleted {
		return index.Change{Before: old, After: ch.deleted, Deleted: true}
	}
	return index.Change{Before: old, After: ch.object}
}

// applyTo makes the change in state, the caller's tree, and returns the object that it replaces or removes, or nil. After an
// error the caller must not use state any more, since it may have been changed.
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

// errFull says that a state, or a change of it, does not fit into the budget.
var errFull = errors.New("the byte bound leaves no room for this collection")

// applyChange advances the newest state by one change. If the budget is exceeded then, it trims the history. If even that is
// not enough, it returns errFull, although the change was applied.
func (c *Collection) applyChange(ch stateChange) error {
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
	nodesSize := state.VersionSize(old, ch.object)
	deletedSize := sizeOf(ch.deleted)
	next := index.Version{
		Revision: ch.revision,
		Tree:     state,
		Put:      ch.object,
		// When the version before this one is forgotten, three things are freed: the nodes that this version has copied (the
		// copies are as large), the old object, and the deleted object of this version's event.
		SupersededBytes: nodesSize + sizeOf(old) + deletedSize,
	}
	if v.broadcaster != nil {
		next.Change = ch.forWatchers(old)
	}
	c.versions.Append(next)
	c.addUsedBytesLocked(nodesSize + sizeOf(ch.object) + deletedSize)
	c.advanceLocked(v, ch.revision, state)
	if c.shared.budget.exceeded() {
		c.trimHalfLocked()
	}
	if c.shared.budget.exceeded() {
		c.trimBeforeLocked(ch.revision) // keeps only the newest state
	}
	if c.shared.budget.exceeded() {
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

// applyBookmark advances the interval to the revision of a bookmark, which must not be below the interval's end.
func (c *Collection) applyBookmark(revision uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view.Load()
	if v.unavailable != reason.None {
		return wire.Inconsistent("a bookmark of a state that is not known")
	}
	c.advanceLocked(v, revision, v.newest)
	return nil
}

// advanceLocked advances the interval from v.To to a revision with this state. Pending probes whose revision is reached now
// prove the state. An event or a bookmark alone proves nothing, since it may be old when it comes: the upstream may lag, or
// the connection or this process may have been suspended.
func (c *Collection) advanceLocked(v *View, revision uint64, state index.Tree) {
	c.highestSeen = max(c.highestSeen, revision)
	c.addCheckpointLocked(time.Now(), revision)
	next := v.clone()
	next.To = revision
	next.newest = state
	probe := c.takeReachedProbesLocked(revision)
	if probe.Number > v.provenBy.Number {
		next.provenBy = probe
	}
	c.publishLocked(next)
}

// takeReachedProbesLocked removes the pending probes that gave this revision or a lower one, and returns the last of them;
// the zero Probe if there are none.
func (c *Collection) takeReachedProbesLocked(revision uint64) (last source.Probe) {
	count := 0
	for count < len(c.pendingProbes) && c.pendingProbes[count].revision <= revision {
		last = c.pendingProbes[count].probe
		count++
	}
	c.pendingProbes = slices.Delete(c.pendingProbes, 0, count)
	return last
}

// maxPendingProbes bounds the number of pending probes. At the bound, a new probe replaces the last one.
const maxPendingProbes = 256

// recordProbe records the revision that a probe gave. If the interval has reached that revision, the probe proves the newest
// state at once, and recordProbe returns true. Otherwise the probe is pending until the interval reaches the revision.
// recordProbe must only be called while a stream is open.
func (c *Collection) recordProbe(result probeResult) (hasReached bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view.Load()
	if v.unavailable != reason.None {
		return false
	}
	n := len(c.pendingProbes)
	if n > 0 && (n == maxPendingProbes || c.pendingProbes[n-1].revision == result.revision) {
		c.pendingProbes[n-1] = result
	} else {
		c.pendingProbes = append(c.pendingProbes, result)
	}
	if v.To >= result.revision {
		c.advanceLocked(v, v.To, v.newest)
		return true
	}
	return false
}

// highestSeenRevision returns the highest revision that the upstream has given since the last drop. A later read of the
// upstream must not give a lower revision.
func (c *Collection) highestSeenRevision() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.highestSeen
}

// otherTimelineError says that a read of the upstream gave a lower revision, got, than an earlier read, before. Once a second
// read has confirmed this ([feed.confirmRevision]), the upstream has another timeline.
type otherTimelineError struct{ before, got uint64 }

func (e otherTimelineError) Error() string {
	return fmt.Sprintf("the upstream's revision went from %d to %d: its storage was restored or replaced", e.before, e.got)
}

// recordRevision records the revision that a read of the upstream gave. highestBefore is the highestSeenRevision from before
// that read: a lower revision is an [otherTimelineError]. A much higher revision is no error, since some control planes use
// the time in nanoseconds as the revision.
func (c *Collection) recordRevision(revision, highestBefore uint64) error {
	if revision < highestBefore {
		return otherTimelineError{before: highestBefore, got: revision}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.highestSeen = max(c.highestSeen, revision)
	return nil
}

// update publishes a copy of the view that edit has changed. It does nothing if no state is known.
func (c *Collection) update(edit func(next *View)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.view.Load(); v.unavailable == reason.None {
		next := v.clone()
		edit(next)
		c.publishLocked(next)
	}
}

// setEnvelope sets the envelope that knows the form of items, after the first object of an empty collection.
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
	if c.view.Load().streaming != streaming { // the comparison needs no lock, since only the feed changes streaming
		c.update(func(next *View) { next.streaming = streaming })
	}
}

// setReloadingSince records the time at which a load beside the known state began. The zero time records its end.
func (c *Collection) setReloadingSince(begun time.Time) {
	c.update(func(next *View) { next.reloadingSince = begun })
}

// hasState reports whether there is a state, however old.
func (c *Collection) hasState() bool { return c.view.Load().unavailable == reason.None }

// drop forgets the known states and begins a new epoch. From now on, requests get the reason why. drop does nothing if the
// collection is retired.
func (c *Collection) drop(why reason.Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.retired {
		c.dropLocked(why)
	}
}

// retire is drop for ever: the collection also ignores what the feed still loads or reads. retire reports whether there was a
// state.
func (c *Collection) retire(why reason.Reason) (hadState bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.retired {
		return false
	}
	hadState = c.hasState()
	c.retired = true
	c.dropLocked(why)
	return hadState
}

// dropLocked does the work of drop and retire.
func (c *Collection) dropLocked(why reason.Reason) {
	c.epoch++
	c.highestSeen = 0 // the next state may be of another timeline, with lower revisions
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

// publishLocked completes a view and makes it the current one. The broadcaster gets the view first, since a request that
// finds the view may begin a watch at its revision. The old view's channels are closed last, since a request that waits for
// them must find the new view.
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
	isLost := old.unavailable == reason.None && v.unavailable != reason.None
	if isLost { // the next load has new slots
		c.forwardSlotsLeft.Store(forwardSlotsPerLoad)
	}
	c.view.Store(v)
	close(old.replacedCh)
	if freshened {
		close(old.freshenedCh)
	}
}
