package snapshot

import (
	"slices"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
)

// checkpointsPerHistory is the number of checkpoints that are kept for the history's time.
const checkpointsPerHistory = 256

// checkpoint says that a revision had been reached at a time.
type checkpoint struct {
	at       time.Time
	revision uint64
}

// addCheckpointLocked remembers that rev has been reached now, unless the last checkpoint is recent.
func (c *Collection) addCheckpointLocked(now time.Time, rev uint64) {
	if n := len(c.checkpoints); n > 0 && now.Sub(c.checkpoints[n-1].at) < c.limits.History/checkpointsPerHistory {
		return
	}
	c.checkpoints = append(c.checkpoints, checkpoint{at: now, revision: rev})
}

// trim forgets what is older than the history.
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

// shortenLocked frees memory: it drops the older half of the history, by time.
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

// cutLocked forgets what was before rev, but not the newest state.
func (c *Collection) cutLocked(rev uint64) {
	v := c.view.Load()
	if rev = min(rev, v.To); v.unavailable != reason.None || rev <= v.From {
		return
	}
	freed := int64(0)
	before := c.versions.FirstAfter(rev) - 1 // the newest at rev stays
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
