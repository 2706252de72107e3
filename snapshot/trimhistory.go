package snapshot

import (
	"slices"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
)

// marksPerHistory is how many marks are kept for the history's time.
const marksPerHistory = 256

// mark says that a revision had been reached at a time.
type mark struct {
	at       time.Time
	revision uint64
}

// markLocked remembers that rev has been reached now, unless the last mark is recent.
func (c *Collection) markLocked(now time.Time, rev uint64) {
	if n := len(c.marks); n > 0 && now.Sub(c.marks[n-1].at) < c.limits.History/marksPerHistory {
		return
	}
	c.marks = append(c.marks, mark{at: now, revision: rev})
}

// trim forgets what is older than the history.
func (c *Collection) trim(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cut := 0
	for cut < len(c.marks) && now.Sub(c.marks[cut].at) >= c.limits.History {
		cut++
	}
	if cut == 0 {
		return
	}
	c.cutLocked(c.marks[cut-1].revision)
	c.marks = slices.Delete(c.marks, 0, cut-1)
}

// shortenLocked frees memory: it drops the older half of the history, by time.
func (c *Collection) shortenLocked() {
	if len(c.marks) == 0 {
		return
	}
	half := len(c.marks) / 2
	rev := c.marks[half].revision
	if half == 0 {
		rev = c.view.Load().To
	}
	c.cutLocked(rev)
	c.marks = slices.Delete(c.marks, 0, half)
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
	if rev = min(rev, v.To); v.absence != reason.None || rev <= v.From {
		return
	}
	freed := int64(0)
	before := c.versions.FirstAfter(rev) - 1 // the newest at rev stays
	for i := range before {
		freed += c.versions.At(i + 1).Superseded
	}
	c.versions.Forget(before)
	c.accountLocked(-freed)
	c.publishLocked(v.with(func(v *View) { v.From = rev }))
}

// accountLocked adds bytes to the part of the budget that the collection uses.
func (c *Collection) accountLocked(bytes int64) {
	c.account += bytes
	c.budget.Add(bytes)
}
