package snapshot

import (
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/index"
)

const (
	// forwardSlotsPerLoad is the number of lists that are forwarded while a state is loaded; all others wait for it. So a crowd
	// that comes to a collection which is not loaded costs the upstream little more than the load.
	forwardSlotsPerLoad = 4
	// maxSmallWork bounds the work of a small list: the bytes that kube-apiserver encodes for it, in some milliseconds. A
	// proof that memory is up to date may take a second, so small lists are forwarded.
	maxSmallWork = 256 << 10
	// maxSmallForwards is the number of small lists of one collection that are forwarded at the same time.
	maxSmallForwards = 4
)

// TakeForwardSlot takes one of the few slots for lists that are forwarded, instead of waiting, while there is no state.
// It returns false if none is left, or if nothing is loading. Slots are not given back: each load has new ones.
func (c *Collection) TakeForwardSlot() bool {
	isLoading := c.view.Load().unavailable == reason.Warming
	mayBeLeft := c.forwardSlotsLeft.Load() > 0 // without this, the number would fall without end
	return isLoading && mayBeLeft && c.forwardSlotsLeft.Add(-1) >= 0
}

// TryForwardSmall decides whether q, a list of the newest state, is better forwarded than proven: q is small, no probe with
// a number higher than afterProbe has proven the state yet, and few other lists are being forwarded. If so, the caller must
// call done when the list was forwarded.
func (c *Collection) TryForwardSmall(q index.Query, afterProbe uint64) (done func(), forward bool) {
	v := c.view.Load()
	if v.provenBy.Number > afterProbe {
		return nil, false
	}
	return c.tryForward(v, q)
}

// TryForwardPage decides whether q, a page after the first of a list at a revision, is better forwarded than waited for:
// memory has not reached the revision, q is small, and few other lists are being forwarded. If so, the caller must call
// done when the page was forwarded.
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

// tryForward counts q as a list that is being forwarded, until done is called. It returns false if q is not small, or if
// too many are being forwarded already.
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
