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
	mu       sync.Mutex
	answers  []time.Time // when lists were asked for that were answered with 200 and could come from memory
	hits     int         // of these, from memory
	lastHit  time.Time   // when the last of these was asked for
	compared []time.Time // when of these those were asked for that are right: all byte for byte but for recorded
	recorded int         // held against the record of a past
	refused  int         // other statuses
	notYet   int         // of these, kube-apiserver's own 504
	failed   int         // no answer at all
	refusals map[string]int
	notRight int // of these, those that say that a request, or who sent it, is not right
	recent   int // from memory, with all that was written before
	mistakes []string
	followed int     // followers that have come to the true state
	broken   []error // ends of watches that were not in order
}

// right notes that an answer from memory is right, and when it was asked for.
func (t *Tally) right(asked time.Time, recorded bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.compared = append(t.compared, asked)
	if recorded {
		t.recorded++
	}
}

// Wrong notes what must not be.
func (t *Tally) Wrong(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mistakes = append(t.mistakes, fmt.Sprintf(format, args...))
}

// Mistakes returns what was [Tally.Wrong].
func (t *Tally) Mistakes() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.mistakes)
}

// told is how many mistakes are told one by one.
const told = 10

// Judge makes mistakes errors of the test.
func (t *Tally) Judge(test interface{ Error(args ...any) }) {
	mistakes := t.Mistakes()
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
	note := func(what string) {
		if t.refusals == nil {
			t.refusals = map[string]int{}
		}
		t.refusals[what]++
	}
	switch {
	case a.Code != 0 && a.Code != http.StatusOK:
		t.refused++
		if a.NotThereYet() {
			t.notYet++
		}
		note(a.String())
		// An API server that starts says 403 until it has read its roles.
		if slices.Contains([]int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusGone}, a.Code) {
			t.notRight++
		}
	case err != nil:
		t.failed++
		note(err.Error())
	case answerable:
		t.answers = append(t.answers, asked)
		if a.FromMemory() {
			t.hits++
			t.lastHit = asked
		}
	}
}

// BrokeOff notes the end of a watch that was not in order.
func (t *Tally) BrokeOff(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.broken = append(t.broken, err)
}

// gaveRecent notes a list from memory that is to hold all that was written before it was asked for.
func (t *Tally) gaveRecent() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.recent++
}

// Came notes a follower that has come to the true state.
func (t *Tally) Came() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.followed++
}

// Given returns how many answers were given to what was asked since a time, and whether any came
// from memory.
func (t *Tally) Given(from time.Time) (answers int, hit bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Window{from, time.Now()}.count(t.answers), t.lastHit.After(from)
}

// Comparisons returns how many were made.
func (t *Tally) Comparisons() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.compared)
}

// Counts are a tally's.
type Counts struct {
	Compared, Recorded, Wrong, Answers, Hits, Refused, Followed int
	// Recent are lists from memory that name no revision, and so hold all that was written before.
	Recent int
	// During are answers of listproxy in a window, and DuringRight those that came from memory and
	// are right.
	During, DuringRight int
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
	return Counts{
		Compared: len(t.compared), Recorded: t.recorded, Wrong: len(t.mistakes),
		During: during.count(t.answers), DuringRight: during.count(t.compared),
		Answers: len(t.answers), Hits: t.hits, Refused: t.refused + t.failed, Followed: t.followed, Recent: t.recent,
		Lost: t.failed + t.refused - t.notYet, NotRight: t.notRight, Why: maps.Clone(t.refusals), BrokenOff: slices.Clone(t.broken),
	}
}

// Share is the part of answers that came from memory, in percent.
func (c Counts) Share() float64 { return 100 * float64(c.Hits) / float64(max(1, c.Answers)) }

// Window is a time in which something was broken.
type Window struct{ From, To time.Time }

func (w Window) has(at time.Time) bool { return !at.Before(w.From) && at.Before(w.To) }

// count says how many of these were within the window.
func (w Window) count(all []time.Time) (n int) {
	for _, at := range all {
		if w.has(at) {
			n++
		}
	}
	return n
}
