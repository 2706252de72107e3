package load

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/listproxy/listproxy/test/harness/ask"
)

// Tally counts what was seen. The zero Tally is empty. Safe for concurrent use.
type Tally struct {
	mu sync.Mutex
	// The times at which lists were asked for.
	answers  []time.Time // all lists with a 200 that could come from memory
	hits     []time.Time // those of the answers that came from memory
	compared []time.Time // those of the hits that were compared and are right
	// totals has the counts that do not depend on a window.
	totals Counts
}

// addCompared counts an answer from memory that was compared and is right. fromRecord means that it was compared with a
// [LostHistory], and not with kube-apiserver.
func (t *Tally) addCompared(asked time.Time, fromRecord bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.compared = append(t.compared, asked)
	if fromRecord {
		t.totals.Recorded++
	}
}

// AddMistake adds the description of a mistake, which must not happen.
func (t *Tally) AddMistake(format string, args ...any) {
	t.Add(func(c *Counts) { c.Mistakes = append(c.Mistakes, fmt.Sprintf(format, args...)) })
}

// maxReported is the number of mistakes that are reported one by one.
const maxReported = 10

// ReportMistakes fails a test with the mistakes, if there are any.
func (t *Tally) ReportMistakes(test interface{ Error(args ...any) }) {
	mistakes := t.Counts(Window{}).Mistakes
	for _, mistake := range mistakes[:min(maxReported, len(mistakes))] {
		test.Error(mistake)
	}
	if more := len(mistakes) - maxReported; more > 0 {
		test.Error(fmt.Sprintf("… and %d more", more))
	}
}

// AddAnswer counts an answer to a request that was sent at the time asked. err is not nil if there was no answer. cacheable
// means that the answer could come from memory.
func (t *Tally) AddAnswer(asked time.Time, a ask.Answer, err error, cacheable bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case a.Code != 0 && a.Code != http.StatusOK:
		t.addFailureLocked(a, a.String())
	case err != nil:
		t.addFailureLocked(a, err.Error())
	case cacheable:
		t.answers = append(t.answers, asked)
		if a.FromMemory() {
			t.hits = append(t.hits, asked)
		}
	}
}

// addFailureLocked counts an answer other than 200, or a missing answer. The caller holds mu.
func (t *Tally) addFailureLocked(a ask.Answer, message string) {
	t.totals.Failed++
	if !a.NotThereYet() {
		t.totals.Lost++
	}
	// 403 does not count: an API server that starts says so until it has read its roles.
	if slices.Contains([]int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusGone}, a.Code) {
		t.totals.Rejected++
	}
	if t.totals.Failures == nil {
		t.totals.Failures = map[string]int{}
	}
	t.totals.Failures[message]++
}

// Add calls change with the counts that do not depend on a window.
func (t *Tally) Add(change func(*Counts)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.totals)
}

// Counts are what a [Tally] has counted.
type Counts struct {
	// Answers is the number of lists that could come from memory.
	Answers int
	// Hits is the number of Answers that came from memory.
	Hits int
	// Compared is the number of Hits that were compared, and are right.
	Compared int
	// Recorded is the number of Compared that were compared with a [LostHistory]. The others were compared with
	// kube-apiserver's answer, byte for byte.
	Recorded int
	// InWindow, HitsInWindow and ComparedInWindow are like Answers, Hits and Compared, but count only requests sent in a
	// window.
	InWindow, HitsInWindow, ComparedInWindow int
	// Consistent is the number of consistent lists from memory.
	Consistent int
	// Converged is the number of times that a follower (an informer or a watcher) was found to have the true state.
	Converged int
	// Failed is the number of requests with a status other than 200, or without an answer. Failures has them by message.
	Failed   int
	Failures map[string]int
	// Lost is the number of Failed without those that got kube-apiserver's own 504, which says that its cache has not reached
	// the revision ([ask.Answer.NotThereYet]).
	Lost int
	// Rejected is the number of Failed that got 400, 401 or 410: the request, or its sender, was refused.
	Rejected int
	// Unserved are lists of any version and next pages that were not given in an outage.
	Unserved []string
	// Mistakes are what must not happen.
	Mistakes []string
	// BrokenWatches are the errors of watches that did not end in order.
	BrokenWatches []error
}

// Counts returns what was counted so far. With the zero Window, the three counts of a window are 0.
func (t *Tally) Counts(window Window) Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.totals
	c.Answers, c.InWindow = len(t.answers), window.count(t.answers)
	c.Hits, c.HitsInWindow = len(t.hits), window.count(t.hits)
	c.Compared, c.ComparedInWindow = len(t.compared), window.count(t.compared)
	c.Failures = maps.Clone(c.Failures)
	return c
}

// HitPercent returns the share of answers that came from memory.
func (c Counts) HitPercent() float64 { return 100 * float64(c.Hits) / float64(max(1, c.Answers)) }

// Window is the time in which something was broken: from From until just before To.
type Window struct{ From, To time.Time }

// count returns how many of these times are in the window.
func (w Window) count(times []time.Time) (n int) {
	for _, at := range times {
		if !at.Before(w.From) && at.Before(w.To) {
			n++
		}
	}
	return n
}
