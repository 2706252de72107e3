package snapshot

import (
	"context"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
)

// LoadKind says for which loads a request waits.
type LoadKind int

const (
	// FirstLoad is a load while no state is known.
	FirstLoad LoadKind = iota
	// AnyLoad is a FirstLoad, or a reload: a load that will replace the known state. Lists that need the newest state wait for
	// a reload, too, since no probe proves the known state until the reload has ended. (A probe asks the upstream for its
	// revision, to prove that the state is the newest.)
	AnyLoad
)

// AwaitLoad waits for up to maxWait while a load of this kind is under way. It returns Warming if the load still goes on after
// maxWait. Otherwise it returns None, or the reason why there is no state.
func (c *Collection) AwaitLoad(ctx context.Context, maxWait time.Duration, kind LoadKind) reason.Reason {
	// read returns Warming while the load goes on. Its Snapshot is always empty: await needs only the reason.
	read := func(v *View) (Snapshot, reason.Reason) {
		if kind == AnyLoad && v.isReloading() {
			return Snapshot{}, reason.Warming
		}
		return Snapshot{}, v.unavailable
	}
	_, why := c.await(ctx, maxWait, reason.Warming, whenReplaced, read)
	return why
}

// LoadTimeLeft returns what is left of the time limit of a load of this kind; 0 if no such load is under way. The limit of a
// first load counts from the loss of the last state, or from the beginning of the collection. The limit of a reload counts from
// the beginning of the reload.
func (c *Collection) LoadTimeLeft(limit time.Duration, kind LoadKind) time.Duration {
	v := c.view.Load()
	switch {
	case v.unavailable == reason.Warming && !v.retired:
		return max(0, limit-time.Since(v.unavailableSince))
	case kind == AnyLoad && v.isReloading():
		return max(0, limit-time.Since(v.reloadingSince))
	}
	return 0
}

// isReloading reports whether a reload is under way.
func (v *View) isReloading() bool { return !v.reloadingSince.IsZero() }

// LoadError returns the error of the last load, such as the upstream's answer. It is nil if no load has ended yet, or if the
// last one succeeded.
func (c *Collection) LoadError() error {
	if err := c.loadError.Load(); err != nil {
		return *err
	}
	return nil
}

// forwardSlotsPerLoad is the number of lists that are forwarded during a load. All others wait, so a crowd of lists costs the
// upstream little more than the load.
const forwardSlotsPerLoad = 4

// TakeForwardSlot takes one of the few slots for lists that are forwarded during a load instead of waiting for the state. It
// returns false if no slot is left, or if no [FirstLoad] is under way. Slots are not given back: each load has new ones.
func (c *Collection) TakeForwardSlot() bool {
	isLoading := c.view.Load().unavailable == reason.Warming
	hasSlots := c.forwardSlotsLeft.Load() > 0 // without this check, each list would lower the number, until it wraps
	if !isLoading || !hasSlots {
		return false
	}
	return c.forwardSlotsLeft.Add(-1) >= 0 // negative if other lists have taken the last slots meanwhile
}
