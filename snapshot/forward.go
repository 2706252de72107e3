package snapshot

import (
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/index"
)

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
	someLeft := c.forwardSlotsLeft.Load() > 0 // so that Add is not called by every waiting list, and the number cannot wrap
	return isLoading && someLeft && c.forwardSlotsLeft.Add(-1) >= 0
}

// tryForward reports whether q should be forwarded rather than wait: q is small, and fewer than maxSmallForwards small lists of
// the collection are being forwarded. If so, q counts as one of them until the caller calls done, after q was forwarded.
func (c *Collection) tryForward(v *View, q index.Query) (done func(), forward bool) {
	if v.unavailable != reason.None || v.newest.Work(q) > maxSmallWork {
		return nil, false
	}
	if c.smallListsInFlight.Add(1) > maxSmallForwards {
		c.smallListsInFlight.Add(-1)
		return nil, false
	}
	return func() { c.smallListsInFlight.Add(-1) }, true
}

// TryForwardSmall is tryForward for a list of the newest state, if no probe with a number above afterProbe has proven the state
// yet.
func (c *Collection) TryForwardSmall(q index.Query, afterProbe uint64) (done func(), forward bool) {
	v := c.view.Load()
	if v.provenBy.Number > afterProbe {
		return nil, false
	}
	return c.tryForward(v, q)
}

// TryForwardPage is tryForward for a later page of a list at a revision, if memory has not reached the revision yet.
func (c *Collection) TryForwardPage(q index.Query, revision uint64) (done func(), forward bool) {
	v := c.view.Load()
	if v.To >= revision {
		return nil, false
	}
	done, forward = c.tryForward(v, q)
	if forward {
		c.requestProbe() // so that memory reaches the revision before the next page is asked for
	}
	return done, forward
}
