package snapshot

import (
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/index"
)

const (
	// largeListBytes is the bound between small and large lists. A list is large if its cost at kube-apiserver
	// ([index.Tree.Work]) is above that of encoding 256 KiB. With --consistent-lists=true, large lists are answered from
	// memory, and most small ones are forwarded: that takes some milliseconds, while a proof that memory has the newest state
	// may take a second.
	largeListBytes = 256 << 10
	// maxSmallForwards is the number of small lists of one collection that are forwarded at the same time.
	maxSmallForwards = 4
)

// beginSmallForward asks whether a small list q may be forwarded at once, although memory could answer it after a wait. If so,
// it counts q as in flight, and returns done, which the caller must call after q was forwarded. If q must wait, it returns nil:
// q is not small, no state is known, or maxSmallForwards (4) small lists of the collection are being forwarded already.
func (c *Collection) beginSmallForward(v *View, q index.Query) (done func()) {
	if v.unavailable != reason.None || v.newest.Work(q) > largeListBytes {
		return nil
	}
	if c.smallListsInFlight.Add(1) > maxSmallForwards {
		c.smallListsInFlight.Add(-1)
		return nil
	}
	return func() { c.smallListsInFlight.Add(-1) }
}

// BeginForwardUnproven is for a list that needs the newest state. Such a list waits until a probe with a number above
// afterProbe has proven the state (see [Collection.Consistent]). Before the wait, BeginForwardUnproven asks whether a small
// list may be forwarded instead. If so, it returns done, which the caller must call afterwards. It returns nil if the list must
// wait, or if the state is proven already.
func (c *Collection) BeginForwardUnproven(q index.Query, afterProbe uint64) (done func()) {
	v := c.view.Load()
	if v.isProvenAfter(afterProbe) {
		return nil
	}
	return c.beginSmallForward(v, q)
}

// BeginForwardPage is for a later page of a list at a revision, which waits until memory has reached the revision. Before the
// wait, BeginForwardPage asks whether a small page may be forwarded instead. If so, it returns done, which the caller must call
// afterwards. It returns nil if the page must wait, or if memory has reached the revision already.
func (c *Collection) BeginForwardPage(q index.Query, revision uint64) (done func()) {
	v := c.view.Load()
	if v.To >= revision {
		return nil
	}
	done = c.beginSmallForward(v, q)
	if done != nil {
		c.requestProbe() // so that memory reaches the revision before the next page is asked for
	}
	return done
}
