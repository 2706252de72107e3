package snapshot

import (
	"errors"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/watch"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// The functions here make a new View under c.mu, and publish it with publishLocked. Readers load c.view without a lock.

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
	// The old states leave the budget. The load has added the size of the new one already.
	c.addUsedBytesLocked(-c.usedBytes)
	c.usedBytes = l.size
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

// errFull says that a state, or a change of it, does not fit into the budget.
var errFull = errors.New("the byte bound leaves no room for this collection")

// applyChange advances the newest state by one change. It returns errFull if the change was applied, but the budget is exceeded.
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
		// When the version before this one is forgotten, these count as freed: its nodes that were copied for this version (the
		// copies are as large), the object that this version replaces or removes, and the deleted object in this version's event.
		SupersededBytes: nodesSize + sizeOf(old) + deletedSize,
	}
	if v.broadcaster != nil {
		next.Change = ch.forWatchers(old)
	}
	c.versions.Append(next)
	c.addUsedBytesLocked(nodesSize + sizeOf(ch.object) + deletedSize)
	c.advanceLocked(v, ch.revision, state)
	return c.fitBudgetLocked()
}

// fitBudgetLocked trims the history while the budget is exceeded: first half of it, then all but the newest state. If even that
// is not enough, it returns errFull.
func (c *Collection) fitBudgetLocked() error {
	if c.shared.budget.exceeded() {
		c.trimHalfLocked()
	}
	if c.shared.budget.exceeded() {
		c.trimBeforeLocked(c.view.Load().To)
	}
	if c.shared.budget.exceeded() {
		return errFull
	}
	return nil
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

// drop forgets the known states and begins a new epoch. Until the next load, requests get the reason why. drop does nothing if
// the collection is retired.
func (c *Collection) drop(why reason.Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.retired {
		c.dropLocked(why)
	}
}

// retire is a drop that cannot be undone: the collection also ignores what the feed still loads or reads. It reports whether
// there was a state.
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
	if old.unavailable == reason.None && v.unavailable != reason.None { // the state is lost, and the next load has new slots
		c.forwardSlotsLeft.Store(forwardSlotsPerLoad)
	}
	c.view.Store(v)
	close(old.replacedCh)
	if freshened {
		close(old.freshenedCh)
	}
}
