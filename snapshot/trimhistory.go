package snapshot

import (
	"slices"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
)

// checkpointsPerHistory is the number of checkpoints that are kept for the whole history.
const checkpointsPerHistory = 256

// checkpoint is a revision and a time at which the interval ended there.
type checkpoint struct {
	at       time.Time
	revision uint64
}

// addCheckpointLocked adds a checkpoint, unless the last one is recent.
func (c *Collection) addCheckpointLocked(now time.Time, rev uint64) {
	if n := len(c.checkpoints); n > 0 && now.Sub(c.checkpoints[n-1].at) < c.limits.History/checkpointsPerHistory {
		return
	}
	c.checkpoints = append(c.checkpoints, checkpoint{at: now, revision: rev})
}

// trim forgets the states that are older than Limits.History.
func (c *Collection) trim(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cut := 0
	for cut < len(c.checkpoints) && now.Sub(c.checkpoints[cut].at) >= c.limits.History {
		cut++
	}
	if cut == 0 {
		return
	}
	c.cutLocked(c.checkpoints[cut-1].revision)
	c.checkpoints = slices.Delete(c.checkpoints, 0, cut-1)
}

// shortenLocked forgets the older half of the history, by time.
func (c *Collection) shortenLocked() {
	if len(c.checkpoints) == 0 {
		return
	}
	half := len(c.checkpoints) / 2
	rev := c.checkpoints[half].revision
	if half == 0 {
		rev = c.view.Load().To
	}
	c.cutLocked(rev)
	c.checkpoints = slices.Delete(c.checkpoints, 0, half)
}

// shorten is shortenLocked for the janitor.
func (c *Collection) shorten() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shortenLocked()
}

// cutLocked forgets the states before rev, but not the newest one.
func (c *Collection) cutLocked(rev uint64) {
	v := c.view.Load()
	rev = min(rev, v.To)
	if v.unavailable != reason.None || rev <= v.From {
		return
	}
	freed := int64(0)
	before := c.versions.FirstAfter(rev) - 1 // the version that is the state at rev stays
	for i := range before {
		freed += c.versions.At(i + 1).Superseded
	}
	c.versions.Forget(before)
	c.accountLocked(-freed)
	next := v.clone()
	next.From = rev
	c.publishLocked(next)
}

// accountLocked adds bytes to the part of the budget that the collection uses.
func (c *Collection) accountLocked(bytes int64) {
	c.account += bytes
	c.budget.add(bytes)
}
