package snapshot

import (
	"slices"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
)

// checkpointsPerHistory bounds the number of checkpoints within Limits.History.
const checkpointsPerHistory = 256

// checkpoint records the revision of the newest state at a time.
type checkpoint struct {
	at       time.Time
	revision uint64
}

// addCheckpointLocked adds a checkpoint, if the last one is old enough for checkpointsPerHistory.
func (c *Collection) addCheckpointLocked(now time.Time, revision uint64) {
	if n := len(c.checkpoints); n > 0 && now.Sub(c.checkpoints[n-1].at) < c.limits.History/checkpointsPerHistory {
		return
	}
	c.checkpoints = append(c.checkpoints, checkpoint{at: now, revision: revision})
}

// trimByAge removes from the history the states that were replaced more than Limits.History ago.
func (c *Collection) trimByAge(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	expired := 0
	for expired < len(c.checkpoints) && now.Sub(c.checkpoints[expired].at) >= c.limits.History {
		expired++
	}
	if expired > 0 {
		c.trimToCheckpointLocked(expired - 1) // its state was the newest one until the next checkpoint, so it stays
	}
}

// trimHalf removes the older half of the history, by time. If only one checkpoint is left, it removes all states but the
// newest.
func (c *Collection) trimHalf() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trimHalfLocked()
}

// trimHalfLocked is trimHalf with the lock held.
func (c *Collection) trimHalfLocked() {
	n := len(c.checkpoints)
	if n > 1 {
		c.trimToCheckpointLocked(n / 2)
	} else if n == 1 {
		c.trimBeforeLocked(c.view.Load().To)
	}
}

// trimToCheckpointLocked removes the states and the checkpoints before checkpoint i.
func (c *Collection) trimToCheckpointLocked(i int) {
	c.trimBeforeLocked(c.checkpoints[i].revision)
	c.checkpoints = slices.Delete(c.checkpoints, 0, i)
}

// trimBeforeLocked removes the states before a revision, except the newest state. The interval then begins at the revision.
// If the interval already begins there or later, or if no state is known, it does nothing.
func (c *Collection) trimBeforeLocked(revision uint64) {
	v := c.view.Load()
	from := min(revision, v.To)
	if v.unavailable != reason.None || from <= v.From {
		return
	}
	count := c.versions.FirstAfter(from) - 1 // the version at this index is the state at from, and stays
	freed := int64(0)
	for i := range count {
		freed += c.versions.At(i + 1).SupersededBytes // version i+1 knows the bytes that are freed with version i
	}
	c.versions.Forget(count)
	c.addUsedBytesLocked(-freed)
	next := v.clone()
	next.From = from
	c.publishLocked(next)
}
