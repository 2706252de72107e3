package snapshot

import (
	"context"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/index"
)

// LoadKind says which loads a request waits for.
type LoadKind int

const (
	// FirstLoad is a load while no state is known.
	FirstLoad LoadKind = iota
	// AnyLoad is a FirstLoad, or a load that will replace the known state. Lists of the newest state wait for both, since no
	// probe proves the known state during a load.
	AnyLoad
)

// AwaitLoad waits for up to maxWait while a load of this kind is under way. It returns Warming if the load still goes on
// then; otherwise the reason why there is no state, or None if there is one.
func (c *Collection) AwaitLoad(ctx context.Context, maxWait time.Duration, kind LoadKind) reason.Reason {
	_, why := c.await(ctx, maxWait, reason.Warming, (*View).replaced, func(v *View) (Snapshot, reason.Reason) {
		if kind == AnyLoad && v.isReloading() {
			return Snapshot{}, reason.Warming
		}
		return Snapshot{}, v.unavailable
	})
	return why
}

// LoadTimeLeft returns what is left of the time limit of a load of this kind, or 0 if none is under way. The time of a
// FirstLoad counts from the loss of the last state, or from the beginning of the collection. The time of a load that will
// replace the known state counts from the beginning of the load.
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

// isReloading reports whether a load that will replace the known state is under way.
func (v *View) isReloading() bool { return !v.reloadingSince.IsZero() }

// LoadError returns the error of the last load, such as the upstream's answer. It is nil if no load has ended yet, or if the
// last one succeeded.
func (c *Collection) LoadError() error {
	if err := c.loadError.Load(); err != nil {
		return *err
	}
	return nil
}

const (
	// forwardSlotsPerLoad is the number of lists that are forwarded during a load. All others wait, so a crowd of lists costs
	// the upstream little more than the load.
	forwardSlotsPerLoad = 4
	// maxSmallWork bounds a small list, in bytes that kube-apiserver encodes for it. That takes some milliseconds, while a
	// proof that memory is up to date may take a second.
	maxSmallWork = 256 << 10
	// maxSmallForwards is the number of small lists of one collection that are forwarded at the same time.
	maxSmallForwards = 4
)

// TakeForwardSlot takes one of the few slots for lists that are forwarded during a load instead of waiting for the state. It
// returns false if no slot is left, or if no [FirstLoad] is under way. Slots are not given back: each load has new ones.
func (c *Collection) TakeForwardSlot() bool {
	isLoading := c.view.Load().unavailable == reason.Warming
	someLeft := c.forwardSlotsLeft.Load() > 0 // without this check, the number could fall until it wraps
	return isLoading && someLeft && c.forwardSlotsLeft.Add(-1) >= 0
}

// tryForward counts q among the lists that are being forwarded, and returns a function to call after q was forwarded. It
// returns nil if q should wait instead: q is not small, or maxSmallForwards small lists of the collection are being forwarded.
func (c *Collection) tryForward(v *View, q index.Query) (done func()) {
	if v.unavailable != reason.None || v.newest.Work(q) > maxSmallWork {
		return nil
	}
	if c.smallListsInFlight.Add(1) > maxSmallForwards {
		c.smallListsInFlight.Add(-1)
		return nil
	}
	return func() { c.smallListsInFlight.Add(-1) }
}

// TryForwardSmall returns a function to call after the list q of the newest state was forwarded. It returns nil if q should
// not be forwarded: a probe with a number above afterProbe has proven the state, q is not small, or too many small lists are
// being forwarded.
func (c *Collection) TryForwardSmall(q index.Query, afterProbe uint64) (done func()) {
	v := c.view.Load()
	if v.provenAfter(afterProbe) {
		return nil
	}
	return c.tryForward(v, q)
}

// TryForwardPage is TryForwardSmall for a later page of a list at a revision, which waits if memory has not reached the
// revision yet.
func (c *Collection) TryForwardPage(q index.Query, revision uint64) (done func()) {
	v := c.view.Load()
	if v.To >= revision {
		return nil
	}
	done = c.tryForward(v, q)
	if done != nil {
		c.requestProbe() // so that memory reaches the revision before the next page is asked for
	}
	return done
}
