package snapshot

import (
	"slices"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
)

// checkpoint records the revision of the newest state at a time. Suppose that History is an hour, the checkpoints are 10:00
// at revision 100, 10:30 at 140 and 10:45 at 170, and the newest state is at 190. At 11:35, those of 10:00 and 10:30 are
// older than an hour. The state at 140 may have been the newest until 10:45, so it stays: View.From becomes 140, and the
// checkpoint of 10:00 is removed.
type checkpoint struct {
	at       time.Time
	revision uint64
}

// checkpointsPerHistory bounds the number of checkpoints within Limits.History.
const checkpointsPerHistory = 256

// addCheckpointLocked adds a checkpoint, unless the last one is younger than Limits.History/checkpointsPerHistory.
func (c *Collection) addCheckpointLocked(now time.Time, revision uint64) {
	if n := len(c.checkpoints); n > 0 && now.Sub(c.checkpoints[n-1].at) < c.limits.History/checkpointsPerHistory {
		return
	}
	c.checkpoints = append(c.checkpoints, checkpoint{at: now, revision: revision})
}

// trimByAge removes the states before the last checkpoint that is at least Limits.History old (see checkpoint).
func (c *Collection) trimByAge(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	expired := 0
	for expired < len(c.checkpoints) && now.Sub(c.checkpoints[expired].at) >= c.limits.History {
		expired++
	}
	if expired > 0 {
		c.trimToCheckpointLocked(expired - 1)
	}
}

// trimHalf is trimHalfLocked for callers that do not hold the lock.
func (c *Collection) trimHalf() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trimHalfLocked()
}

// trimHalfLocked removes the states before the middle checkpoint: about half of the history, by time. With one checkpoint left, it
// removes all but the newest state.
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

// trimBeforeLocked removes the states before a revision, except the newest state: View.From becomes the revision. Nothing
// happens if View.From is already as high, or if no state is known.
func (c *Collection) trimBeforeLocked(revision uint64) {
	v := c.view.Load()
	from := min(revision, v.To)
	if v.unavailable != reason.None || from <= v.From {
		return
	}
	next := v.clone()
	next.From = from
	oldest := next.versions.FirstAfter(from) - 1 // the index of the version at from, the oldest to be kept
	freed := int64(0)
	for i := 1; i <= oldest; i++ {
		freed += next.versions.At(i).SupersededBytes // what version i has replaced
	}
	next.versions.Forget(oldest) // all before it
	c.addUsedBytesLocked(-freed)
	c.publishLocked(next)
}
