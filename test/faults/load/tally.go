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
	// These are times at which lists were asked for. answers has those that got a 200 and could come from memory,
	// hits those of answers that did, and compared those of hits that are right: byte for byte, unless they were
	// held against a record of the past.
	answers, hits, compared []time.Time
	// sums has all that does not depend on when it was.
	sums Counts
}

// right notes that an answer from memory is right, and when it was asked for.
func (t *Tally) right(asked time.Time, recorded bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.compared = append(t.compared, asked)
	if recorded {
		t.sums.Recorded++
	}
}

// Wrong notes what must not be.
func (t *Tally) Wrong(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sums.Mistakes = append(t.sums.Mistakes, fmt.Sprintf(format, args...))
}

// told is how many mistakes are told one by one.
const told = 10

// Judge makes mistakes errors of the test.
func (t *Tally) Judge(test interface{ Error(args ...any) }) {
	mistakes := t.Counts(Window{}).Mistakes
	for _, mistake := range mistakes[:min(told, len(mistakes))] {
		test.Error(mistake)
	}
	if more := len(mistakes) - told; more > 0 {
		test.Error(fmt.Sprintf("… and %d more", more))
	}
}

// Heard notes an answer, or that there was none, and when it was asked for.
func (t *Tally) Heard(asked time.Time, a ask.Answer, err error, answerable bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	refused := func(why string) {
		t.sums.Refused++
		if !a.NotThereYet() {
			t.sums.Lost++
		}
		if t.sums.Why == nil {
			t.sums.Why = map[string]int{}
		}
		t.sums.Why[why]++
	}
	switch {
	case a.Code != 0 && a.Code != http.StatusOK:
		refused(a.String())
		// An API server that starts says 403 until it has read its roles.
		if slices.Contains([]int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusGone}, a.Code) {
			t.sums.NotRight++
		}
	case err != nil:
		refused(err.Error())
	case answerable:
		t.answers = append(t.answers, asked)
		if a.FromMemory() {
			t.hits = append(t.hits, asked)
		}
	}
}

// leftUnserved notes a list that was not given, though memory may know it.
func (t *Tally) leftUnserved(q Question, why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sums.Unserved = append(t.sums.Unserved, fmt.Sprintf("%s: %v", q, why))
}

// BrokeOff notes the end of a watch that was not in order.
func (t *Tally) BrokeOff(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sums.BrokenOff = append(t.sums.BrokenOff, err)
}

// gaveRecent notes a list from memory that is to hold all that was written before it was asked for.
func (t *Tally) gaveRecent() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sums.Recent++
}

// Came notes a follower that has come to the true state.
func (t *Tally) Came() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sums.Followed++
}

// Counts are a tally's.
type Counts struct {
	// Answers could come from memory, Hits did, and Compared ones are right, of which Recorded were held
	// against the record of a past. Refused got another status, or no answer.
	Answers, Hits, Compared, Recorded, Refused int
	// Recent are lists from memory that name no revision, and so hold all that was written before.
	Recent int
	// Followed is how many followers have come to the true state.
	Followed int
	// Unserved are lists of any version and next pages that were not given while nobody answered upstream.
	Unserved []string
	// Mistakes are what must not be.
	Mistakes []string
	// During, DuringHits and DuringRight are Answers, Hits and Compared of what was asked in a window.
	During, DuringHits, DuringRight int
	// Lost is how many requests were not answered, NotRight how many of them because they, or who
	// sent them, are not right, and Why says why. kube-apiserver's own 504 is an answer.
	Lost, NotRight int
	Why            map[string]int
	// BrokenOff is how watches ended that did not end in order.
	BrokenOff []error
}

// Counts returns what was counted.
func (t *Tally) Counts(during Window) Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.sums
	c.Answers, c.Hits, c.Compared = len(t.answers), len(t.hits), len(t.compared)
	c.During, c.DuringHits, c.DuringRight = during.count(t.answers), during.count(t.hits), during.count(t.compared)
	c.Why = maps.Clone(c.Why)
	return c
}

// Share is the part of answers that came from memory, in percent.
func (c Counts) Share() float64 { return 100 * float64(c.Hits) / float64(max(1, c.Answers)) }

// Window is a time in which something was broken.
type Window struct{ From, To time.Time }

// count says how many of these were within the window.
func (w Window) count(all []time.Time) (n int) {
	for _, at := range all {
		if !at.Before(w.From) && at.Before(w.To) {
			n++
		}
	}
	return n
}
