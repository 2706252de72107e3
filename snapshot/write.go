package snapshot

import (
	"errors"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// The functions here change what a collection knows. Each makes a new View under c.mu, and publishes the View with
// publishLocked. Requests load c.view without a lock.

// install replaces the known states by a loaded state, and begins a new epoch. Clients' watches end unless
// loaded.watchesUpToDate is true.
func (c *Collection) install(loaded *stateLoad) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.view.Load()
	if old.retired {
		c.shared.budget.add(-loaded.size) // the load has added its size
		return
	}
	c.highestSeen = max(c.highestSeen, loaded.revision)
	// The bytes of the old states leave the budget. The load has added those of the new state already.
	c.addUsedBytesLocked(-c.usedBytes)
	c.usedBytes = loaded.size
	c.checkpoints = []checkpoint{{at: time.Now(), revision: loaded.revision}}
	next := &View{
		epoch:       old.epoch + 1,
		Interval:    Interval{From: loaded.revision, To: loaded.revision},
		newest:      loaded.state,
		envelope:    loaded.envelope,
		provenBy:    loaded.probe,
		loadAskedAt: loaded.probe.Sent,
		streaming:   true, // the feed reads the load's stream; after a load in pages, it opens a watch at once
	}
	next.versions.Append(index.Version{Revision: loaded.revision, Tree: loaded.state})
	if old.broadcaster != nil && loaded.watchesUpToDate {
		next.broadcaster = old.broadcaster
		next.broadcaster.Renew(*loaded.watchForm, next.span())
	} else {
		next.broadcaster = c.newBroadcaster(loaded.watchForm, loaded.revision)
	}
	c.publishLocked(next)
}

// errFull says that a state, or a change of it, does not fit into the budget.
var errFull = errors.New("the byte bound leaves no room for this collection")

// applyChange advances the newest state by one change. After errFull, the change is applied, but the budget is exceeded.
func (c *Collection) applyChange(change stateChange) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view.Load()
	if v.unavailable != reason.None {
		return wire.Inconsistent("a change of a state that is not known")
	}
	if change.revision <= v.To {
		return wire.Inconsistent("a change at revision %d comes after revision %d", change.revision, v.To)
	}
	state := v.newest.Clone()
	old, err := change.applyTo(state)
	if err != nil {
		return err
	}
	nodesSize := state.VersionSize(old, change.object)
	deletedSize := sizeOf(change.deleted)
	version := index.Version{
		Revision: change.revision,
		Tree:     state,
		Put:      change.object,
		// Three things count as freed once the version before this one is forgotten:
		//   - the nodes of that version's tree which this version has replaced by copies of the same size;
		//   - the object that this version replaces or removes;
		//   - the object in this version's event, if it is a deletion.
		SupersededBytes: nodesSize + sizeOf(old) + deletedSize,
	}
	if v.broadcaster != nil {
		version.Change = change.forWatchers(old)
	}
	c.addUsedBytesLocked(nodesSize + sizeOf(change.object) + deletedSize)
	next := v.clone()
	next.To = change.revision
	next.newest = state
	next.versions.Append(version)
	c.advanceLocked(next)
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
	next := v.clone()
	next.To = revision
	c.advanceLocked(next)
	return nil
}

// advanceLocked publishes a view whose interval ends where the interval of the current view ends, or later.
func (c *Collection) advanceLocked(next *View) {
	c.highestSeen = max(c.highestSeen, next.To)
	c.addCheckpointLocked(time.Now(), next.To)
	c.publishLocked(next)
}

// prove records that the newest state has reached the revision that a probe gave. So the state has everything that was written
// before the probe was sent. The zero Probe proves nothing.
//
// An event or a bookmark alone proves nothing either, since it may be old when it comes: the upstream may lag, or the
// connection or this process may have been suspended.
func (c *Collection) prove(probe source.Probe) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.view.Load(); v.unavailable == reason.None && probe.Number > v.provenBy.Number {
		next := v.clone()
		next.provenBy = probe
		c.advanceLocked(next) // adds a checkpoint, since the same state is the newest at this time, too
	}
}

// updateView publishes a copy of the view that edit has changed. It does nothing if no state is known.
func (c *Collection) updateView(edit func(next *View)) {
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
	c.updateView(func(next *View) {
		next.envelope = envelope
		if next.broadcaster != nil {
			next.broadcaster.SetEnvelope(envelope)
		}
	})
}

// setStreaming records whether the feed reads a stream that goes on from the interval's end.
func (c *Collection) setStreaming(streaming bool) {
	if c.view.Load().streaming != streaming { // the comparison needs no lock, since only the feed changes streaming
		c.updateView(func(next *View) { next.streaming = streaming })
	}
}

// setReloadingSince records the time at which a reload began: a load that will replace the known state. The zero time records
// that the reload has ended.
func (c *Collection) setReloadingSince(begun time.Time) {
	c.updateView(func(next *View) { next.reloadingSince = begun })
}

// hasState reports whether there is a state, however old.
func (c *Collection) hasState() bool { return c.view.Load().unavailable == reason.None }

// drop forgets the known states and begins a new epoch. Until the next load, requests get the reason why. It does nothing if
// the collection is retired.
func (c *Collection) drop(why reason.Reason) { c.forget(&View{unavailable: why}) }

// retire drops the known states for ever: the collection ignores whatever the feed still loads or reads. It returns whether
// there was a state.
func (c *Collection) retire() (hadState bool) {
	return c.forget(&View{unavailable: reason.Warming, retired: true})
}

// forget does the work of drop and retire. It completes and publishes next, a view without a state.
func (c *Collection) forget(next *View) (hadState bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.view.Load()
	if old.retired {
		return false
	}
	c.highestSeen = 0 // the next state may be of another timeline, with lower revisions
	c.checkpoints = nil
	c.addUsedBytesLocked(-c.usedBytes)
	next.epoch = old.epoch + 1
	next.unavailableSince = old.unavailableSince
	hadState = old.unavailable == reason.None
	if hadState {
		next.unavailableSince = time.Now()
	}
	c.publishLocked(next)
	return hadState
}

// publishLocked completes a view and makes it the current one. The order of three steps matters:
//
//  1. The broadcaster gets the view, since a request that finds the view may begin a watch at its revision.
//  2. The view becomes the current one.
//  3. The old view's channels are closed, since a request that waits for one of them must find the new view.
func (c *Collection) publishLocked(v *View) {
	old := c.view.Load()
	endReplacedBroadcaster(old, v)
	if v.broadcaster != nil {
		v.broadcaster.Publish(v.span())
	}
	v.replacedCh = make(chan struct{})
	v.provenCh = old.provenCh
	isProvenOrLost := v.provenBy != old.provenBy || v.unavailable != old.unavailable
	if isProvenOrLost {
		v.provenCh = make(chan struct{})
	}
	if old.unavailable == reason.None && v.unavailable != reason.None { // the state is lost, and the next load has new slots
		c.forwardSlotsLeft.Store(forwardSlotsPerLoad)
	}
	c.view.Store(v)
	close(old.replacedCh)
	if isProvenOrLost {
		close(old.provenCh)
	}
}
