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
	answers  []time.Time // of lists with a 200 that could come from memory
	hits     []time.Time // of lists that did
	compared []time.Time // of hits that were compared and are right
	sums     Counts      // the counts that do not depend on a window
}

// addCompared counts an answer from memory that is right. It was compared with kube-apiserver, or fromRecord with a [LostHistory].
func (t *Tally) addCompared(asked time.Time, fromRecord bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.compared = append(t.compared, asked)
	if fromRecord {
		t.sums.Recorded++
	}
}

// AddMistake adds the description of a mistake, which must not happen.
func (t *Tally) AddMistake(format string, args ...any) {
	t.Add(func(c *Counts) { c.Mistakes = append(c.Mistakes, fmt.Sprintf(format, args...)) })
}

// maxReported is how many mistakes are reported one by one.
const maxReported = 10

// ReportMistakes makes mistakes errors of a test.
func (t *Tally) ReportMistakes(test interface{ Error(args ...any) }) {
	mistakes := t.Counts(Window{}).Mistakes
	for _, mistake := range mistakes[:min(maxReported, len(mistakes))] {
		test.Error(mistake)
	}
	if more := len(mistakes) - maxReported; more > 0 {
		test.Error(fmt.Sprintf("… and %d more", more))
	}
}

// AddAnswer counts an answer, or an error without one, to a request that was sent at a time. A cacheable answer could come from
// memory.
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

func (t *Tally) addFailureLocked(a ask.Answer, message string) {
	t.sums.Failed++
	if !a.NotThereYet() {
		t.sums.Lost++
	}
	// 403 does not count: an API server that starts says so until it has read its roles.
	if slices.Contains([]int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusGone}, a.Code) {
		t.sums.Rejected++
	}
	if t.sums.Failures == nil {
		t.sums.Failures = map[string]int{}
	}
	t.sums.Failures[message]++
}

// Add calls change with the counts that do not depend on a window.
func (t *Tally) Add(change func(*Counts)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.sums)
}

// Counts are what a [Tally] has counted.
type Counts struct {
	// Answers is the number of lists that could come from memory.
	Answers int
	// Hits is the number of Answers that came from memory.
	Hits int
	// Compared is the number of Hits that were compared, and are right.
	Compared int
	// Recorded is the number of Compared that were compared with a [LostHistory], and not with kube-apiserver, byte for byte.
	Recorded int
	// InWindow, HitsInWindow and ComparedInWindow are Answers, Hits and Compared of requests in a window.
	InWindow, HitsInWindow, ComparedInWindow int
	// Consistent are lists from memory that had to hold everything written before.
	Consistent int
	// Converged are followers that have reached the true state.
	Converged int
	// Failed is the number of requests with a status other than 200, or without an answer. Failures has them by message.
	Failed   int
	Failures map[string]int
	// Lost is the number of Failed without those that got kube-apiserver's own 504 ([ask.Answer.NotThereYet]).
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

// Counts returns what was counted.
func (t *Tally) Counts(window Window) Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.sums
	c.Answers, c.InWindow = len(t.answers), window.count(t.answers)
	c.Hits, c.HitsInWindow = len(t.hits), window.count(t.hits)
	c.Compared, c.ComparedInWindow = len(t.compared), window.count(t.compared)
	c.Failures = maps.Clone(c.Failures)
	return c
}

// HitPercent returns the share of answers that came from memory.
func (c Counts) HitPercent() float64 { return 100 * float64(c.Hits) / float64(max(1, c.Answers)) }

// Window is the time in which something was broken. To is not in it.
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
