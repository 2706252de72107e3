package snapshot

import (
	"slices"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/source"
)

// maxPendingProbes bounds the number of pending probes.
const maxPendingProbes = 256

// recordProbe records the revision that a probe gave. If the newest state (View.To) has reached that revision, the probe proves
// the state at once, and recordProbe returns true. Otherwise the probe is pending until the state reaches the revision.
// recordProbe must only be called while a stream is open.
func (c *Collection) recordProbe(result probeResult) (hasReached bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view.Load()
	if v.unavailable != reason.None {
		return false
	}
	n := len(c.pendingProbes)
	// The new probe replaces the last one if both gave the same revision, or if there is no room: the later probe proves more.
	if n > 0 && (n == maxPendingProbes || c.pendingProbes[n-1].revision == result.revision) {
		c.pendingProbes = c.pendingProbes[:n-1]
	}
	c.pendingProbes = append(c.pendingProbes, result)
	if v.To >= result.revision {
		c.advanceLocked(v.clone()) // the same state, now proven by the probe just added
		return true
	}
	return false
}

// takeReachedProbesLocked removes the pending probes that gave this revision or a lower one, and returns the last of them;
// the zero Probe if there are none.
func (c *Collection) takeReachedProbesLocked(revision uint64) (last source.Probe) {
	count := 0
	for count < len(c.pendingProbes) && c.pendingProbes[count].revision <= revision {
		last = c.pendingProbes[count].probe
		count++
	}
	c.pendingProbes = slices.Delete(c.pendingProbes, 0, count)
	return last
}
