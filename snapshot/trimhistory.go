package snapshot

import (
	"slices"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
)

// checkpointsPerHistory is the number of checkpoints that are kept for the whole history.
const checkpointsPerHistory = 256

// checkpoint says at which revision the interval ended at a time.
type checkpoint struct {
	at       time.Time
	revision uint64
}

// addCheckpointLocked adds a checkpoint, unless the last one is recent.
func (c *Collection) addCheckpointLocked(now time.Time, revision uint64) {
	if n := len(c.checkpoints); n > 0 && now.Sub(c.checkpoints[n-1].at) < c.limits.History/checkpointsPerHistory {
		return
	}
	c.checkpoints = append(c.checkpoints, checkpoint{at: now, revision: revision})
}

// trimByAge forgets the states that are older than Limits.History.
func (c *Collection) trimByAge(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	expired := 0
	for expired < len(c.checkpoints) && now.Sub(c.checkpoints[expired].at) >= c.limits.History {
		expired++
	}
	if expired > 0 {
		c.trimToLocked(expired - 1) // the state at the last expired checkpoint was the newest when the history's time began
	}
}

// trimHalf forgets the older half of the history, by time. Of a history with only one checkpoint, it forgets all but the
// newest state.
func (c *Collection) trimHalf() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trimHalfLocked()
}

// trimHalfLocked is trimHalf with the lock held.
func (c *Collection) trimHalfLocked() {
	n := len(c.checkpoints)
	if n > 1 {
		c.trimToLocked(n / 2)
	} else if n == 1 {
		c.forgetBeforeLocked(c.view.Load().To)
	}
}

// trimToLocked forgets the states and the checkpoints before checkpoint i.
func (c *Collection) trimToLocked(i int) {
	c.forgetBeforeLocked(c.checkpoints[i].revision)
	c.checkpoints = slices.Delete(c.checkpoints, 0, i)
}

// forgetBeforeLocked forgets the states before a revision, but not the newest state.
func (c *Collection) forgetBeforeLocked(revision uint64) {
	v := c.view.Load()
	from := min(revision, v.To)
	if v.unavailable != reason.None || from <= v.From {
		return
	}
	oldest := c.versions.FirstAfter(from) - 1 // the version that is the state at from stays
	freed := int64(0)
	for i := range oldest {
		freed += c.versions.At(i + 1).SupersededBytes // what is freed with a version is counted in the next one
	}
	c.versions.Forget(oldest)
	c.addUsedBytesLocked(-freed)
	next := v.clone()
	next.From = from
	c.publishLocked(next)
}

// addUsedBytesLocked adds bytes that the collection stores to its part of the budget; a negative number says that they are
// no longer stored.
func (c *Collection) addUsedBytesLocked(bytes int64) {
	c.usedBytes += bytes
	c.budget.add(bytes)
}
