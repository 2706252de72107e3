package snapshot

import (
	"context"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
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
