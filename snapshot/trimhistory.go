package snapshot

import (
	"slices"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/index"
)

// versionOverhead is how many bytes one version needs in addition to its objects: the paths that it
// copied in the trees. It was measured with BenchmarkHistory.
const versionOverhead = 1650

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
		rev = c.view.Load().to()
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

// forgetPast forgets all that was before the live span's end, at which the state is what it was, as
// if it had been loaded there. Nobody is told more of what was before.
func (c *Collection) forgetPast() {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view.Load()
	if v.absence != reason.None {
		return
	}
	for _, hub := range c.leaving {
		hub.End(true)
	}
	rev := v.to()
	c.cutLocked(rev)
	c.marks = slices.DeleteFunc(c.marks, func(m mark) bool { return m.revision < rev })
	c.versions.Forget(c.versions.Len())
	c.versions.Append(index.Version{Revision: rev, Tree: v.newest})
	c.publishLocked(c.view.Load().with(func(*View) {}))
}

// cutLocked forgets what was before rev. A span that ended at or before rev is dropped as a whole;
// the live one keeps its state at rev.
func (c *Collection) cutLocked(rev uint64) {
	v := c.view.Load()
	spans := slices.Clone(v.spans)
	changed := false
	for len(spans) > 0 && (len(spans) > 1 || v.absence != reason.None) && spans[0].To <= rev {
		c.versions.Forget(c.versions.FirstAfter(spans[0].To))
		c.accountLocked(0, -c.accounts[0])
		c.accounts = slices.Delete(c.accounts, 0, 1)
		spans = slices.Delete(spans, 0, 1)
		changed = true
	}
	if len(spans) > 0 && spans[0].From < rev {
		spans[0].From = min(rev, spans[0].To)
		freed := int64(0)
		before := c.versions.FirstAfter(spans[0].From) - 1 // the newest at From stays
		for i := range before {
			freed += c.versions.At(i + 1).Superseded
		}
		c.versions.Forget(before)
		c.accountLocked(0, -freed)
		changed = true
	}
	if changed {
		c.publishLocked(v.with(func(v *View) { v.spans = spans }))
	}
}

// accountLocked adds bytes to the part of the budget that a span uses.
func (c *Collection) accountLocked(span int, bytes int64) {
	c.accounts[span] += bytes
	c.budget.Add(bytes)
}
