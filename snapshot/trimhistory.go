package snapshot

import (
	"slices"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
)

// checkpoint records the revision of the newest state at a time. Checkpoints show how old a state is, so that the history can
// be trimmed by age.
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

// trimByAge removes the states before the last checkpoint that is at least Limits.History old. An example with a History of an
// hour, at 11:35, when the newest state is at 190:
//
//	checkpoint            older than an hour   the state at its revision
//	10:00, revision 100   yes                  is removed, and so is the checkpoint
//	10:30, revision 140   yes                  stays, since it may have been the newest until 10:45: View.From becomes 140
//	10:45, revision 170   no                   stays
func (c *Collection) trimByAge(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	expired := 0
	for expired < len(c.checkpoints) && now.Sub(c.checkpoints[expired].at) >= c.limits.History {
		expired++
	}
	if expired > 0 {
		c.trimToCheckpointLocked(expired - 1) // the last expired checkpoint stays
	}
}

// trimHalf is trimHalfLocked for callers that do not hold the lock.
func (c *Collection) trimHalf() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trimHalfLocked()
}

// trimHalfLocked removes the states before the middle checkpoint. That is about half of the history by time if changes come
// evenly. (Checkpoints may be far apart in a quiet time.) If only one checkpoint is left, it removes all states but the newest.
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

// trimBeforeLocked removes the states before a revision, except the newest state: View.From becomes the revision. It does
// nothing if View.From is already as high, or if no state is known.
func (c *Collection) trimBeforeLocked(revision uint64) {
	v := c.view.Load()
	from := min(revision, v.To)
	if v.unavailable != reason.None || from <= v.From {
		return
	}
	next := v.clone()
	next.From = from
	firstKept := next.versions.FirstAfter(from) - 1 // the index of the version that has the state at from
	freed := int64(0)
	for i := range firstKept {
		freed += next.versions.At(i + 1).SupersededBytes // what counts as freed with version i
	}
	next.versions.Forget(firstKept)
	c.addUsedBytesLocked(-freed)
	c.publishLocked(next)
}
