package faults

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/listproxy/listproxy/test/harness/ask"
)

// tally counts what a case has seen. Safe for concurrent use.
type tally struct {
	mu sync.Mutex

	answers  []time.Time // when lists were asked for that were answered with 200 and could come from memory
	hits     int         // of these, from memory
	lastHit  time.Time   // when the last of these was asked for
	compared []time.Time // when of these those were asked for that are right: all byte for byte but for recorded
	recorded int         // held against the record of a past
	refused  int         // other statuses
	notYet   int         // of these, kube-apiserver's own 504
	failed   int         // no answer at all
	refusals map[string]int
	mistakes []string
	behind   time.Duration // of an answer of the newest state, at most
	followed int           // followers that have come to the true state
	broken   []error       // ends of watches that were not in order
	newest   []news        // from memory
}

// right notes that an answer from memory is right, and when it was asked for.
func (t *tally) right(asked time.Time, recorded bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.compared = append(t.compared, asked)
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

// heard notes an answer, or that there was none, and when it was asked for.
func (t *tally) heard(asked time.Time, a ask.Answer, err error, answerable bool) {
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
		t.answers = append(t.answers, asked)
		if a.FromMemory() {
			t.hits++
			t.lastHit = asked
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

// renewed notes a newest state from memory, given now.
func (t *tally) renewed(asked time.Time, revision uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.newest = append(t.newest, news{asked, time.Now(), revision})
}

func (t *tally) came() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.followed++
}

// given returns how many answers were given to what was asked since a time, and whether any came from memory.
func (t *tally) given(from time.Time) (answers int, hit bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return window{from, time.Now()}.count(t.answers), t.lastHit.After(from)
}

// comparisons returns how many were made.
func (t *tally) comparisons() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.compared)
}

// firstNews returns when a newest state came from memory first that was asked for since a time and is newer than a
// revision, or nil.
func (t *tally) firstNews(from time.Time, than uint64) *time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return firstNews(t.newest, from, than)
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
	// While the fault lasted: answers of listproxy, and of these from memory, and right.
	during, duringRight int
	unserved            string // why there need be none of these
	// Since the end of the fault; nil where it is not measured: when something new came from memory first, and when
	// all that is kept was new. noticed: since kube-apiserver was back, of one that was restarted or whose etcd was replaced.
	fresh, recovered, noticed *time.Duration
}

func (t *tally) report(name string, broken window) report {
	t.mu.Lock()
	defer t.mu.Unlock()
	return report{
		name: name, compared: len(t.compared), recorded: t.recorded, wrong: len(t.mistakes),
		during: broken.count(t.answers), duringRight: broken.count(t.compared),
		answers: len(t.answers), hits: t.hits, refused: t.refused + t.failed, followed: t.followed, behind: t.behind,
	}
}

// table of reports, in Markdown.
func table(reports []report) string {
	var b strings.Builder
	b.WriteString("| case | compared | wrong | during it | from memory | not answered | followers true | most behind | first new | all back | noticed |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range reports {
		compared := fmt.Sprint(r.compared)
		if r.recorded > 0 {
			compared += fmt.Sprintf(" (%d recorded)", r.recorded)
		}
		during := fmt.Sprintf("%d of %d", r.duringRight, r.during)
		if r.unserved != "" {
			during += ": " + r.unserved
		}
		_, _ = fmt.Fprintf(&b, "| %s | %s | %d | %s | %.0f %% | %d | %d | %s | %s | %s | %s |\n", r.name, compared, r.wrong, during,
			100*float64(r.hits)/float64(max(r.answers, 1)), r.refused, r.followed, seconds(r.behind), measured(r.fresh), measured(r.recovered), measured(r.noticed))
	}
	return b.String()
}

// measured is a time, if it was measured.
func measured(d *time.Duration) string {
	if d == nil {
		return ""
	}
	return seconds(*d)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
