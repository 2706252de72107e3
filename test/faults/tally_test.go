package faults

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/listproxy/listproxy/test/ask"
)

// tally counts what a case has seen. Safe for concurrent use.
type tally struct {
	mu sync.Mutex

	answers  int // lists that were answered with 200 and could come from memory
	hits     int // of these, from memory
	compared int // of these, right: all byte for byte but for recorded
	recorded int // held against the record of a past
	refused  int // other statuses
	notYet   int // of these, kube-apiserver's own 504
	failed   int // no answer at all
	refusals map[string]int
	mistakes []string
	behind   time.Duration // of an answer of the newest state, at most
	followed int           // followers that have come to the true state
	broken   []error       // ends of watches that were not in order
}

func (t *tally) right(recorded bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.compared++
	if recorded {
		t.recorded++
	}
}

// wrong notes what must not be.
func (t *tally) wrong(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mistakes = append(t.mistakes, fmt.Sprintf(format, args...))
}

// heard notes an answer, or that there was none.
func (t *tally) heard(a ask.Answer, err error, answerable bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	note := func(what string) {
		if t.refusals == nil {
			t.refusals = map[string]int{}
		}
		t.refusals[what]++
	}
	switch {
	case err != nil:
		t.failed++
		note(err.Error())
	case a.Code != 200:
		t.refused++
		if a.NotThereYet() {
			t.notYet++
		}
		note(a.String())
	case answerable:
		t.answers++
		if a.FromMemory() {
			t.hits++
		}
	}
}

// brokeOff notes the end of a watch that was not in order.
func (t *tally) brokeOff(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.broken = append(t.broken, err)
}

// brokenOff returns how watches ended that did not end in order.
func (t *tally) brokenOff() []error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.broken)
}

func (t *tally) lag(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.behind = max(t.behind, d)
}

func (t *tally) came() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.followed++
}

// comparisons returns how many were made.
func (t *tally) comparisons() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.compared
}

// lost returns what was not answered, and why.
func (t *tally) lost() (int, map[string]int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed + t.refused - t.notYet, t.refusals
}

// report is what a case says at its end.
type report struct {
	name                             string
	compared, recorded, wrong        int
	answers, hits, refused, followed int
	behind                           time.Duration
	recovered, noticed               time.Duration // 0 where it is not measured; noticed: of an etcd that was replaced
}

func (t *tally) report(name string) report {
	t.mu.Lock()
	defer t.mu.Unlock()
	return report{
		name: name, compared: t.compared, recorded: t.recorded, wrong: len(t.mistakes),
		answers: t.answers, hits: t.hits, refused: t.refused + t.failed, followed: t.followed, behind: t.behind,
	}
}

// table of reports, in Markdown.
func table(reports []report) string {
	var b strings.Builder
	b.WriteString("| case | compared | wrong | from memory | not answered | followers true | most behind | back after | past noticed |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range reports {
		compared := fmt.Sprint(r.compared)
		if r.recorded > 0 {
			compared += fmt.Sprintf(" (%d recorded)", r.recorded)
		}
		_, _ = fmt.Fprintf(&b, "| %s | %s | %d | %.0f %% | %d | %d | %s | %s | %s |\n", r.name, compared, r.wrong,
			100*float64(r.hits)/float64(max(r.answers, 1)), r.refused, r.followed, seconds(r.behind), measured(r.recovered), measured(r.noticed))
	}
	return b.String()
}

// measured is a time, if it was measured.
func measured(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return seconds(d)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
