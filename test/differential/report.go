package differential

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/listproxy/listproxy/test/harness/ask"
)

// kind of a difference.
type kind string

// The kinds of differences; the last ones are those of watches.
const (
	wrongStatus kind = "status"
	wrongHeader kind = "header"
	wrongBody   kind = "body"
	tooOld      kind = "too-old" // a notOlderThan that is older
	frozen      kind = "frozen"  // an anyRevision that misses what was written long ago
	silent      kind = "no-answer"
	unmarked    kind = "unmarked" // an answer that does not say where it came from

	// wrongEvents are other ones than the API server's, or at another place.
	wrongEvents kind = "events"
	// wrongBookmark is made of other bytes.
	wrongBookmark kind = "bookmarks"
	// wrongRefusal is an ERROR that the API server does not send, or sends and listproxy does not.
	wrongRefusal kind = "refusal"
	// wrongEnd is of a stream that ended while kube-apiserver's went on, or the other way round.
	wrongEnd kind = "ended"
	// wrongReference is a mistake of this package: the API server is not what it demands.
	wrongReference kind = "reference"
	// elsewhere is none: the two sides were asked at moments that cannot be compared.
	elsewhere kind = "elsewhere"
)

// maxDifferences is how many differences are kept in full.
const maxDifferences = 20

// difference is something that a client could have seen.
type difference struct {
	Kind     kind
	Question string
	// CacheStatus of listproxy's answer.
	CacheStatus string
	Detail      string
}

// differs makes a difference.
func differs(k kind, format string, args ...any) *difference {
	return &difference{Kind: k, Detail: fmt.Sprintf(format, args...)}
}

// kind of a difference, or "" if there is none.
func (d *difference) kind() kind {
	if d == nil {
		return ""
	}
	return d.Kind
}

func (d difference) String() string {
	return fmt.Sprintf("%s: %s\n  Cache-Status: %s\n  %s", d.Kind, d.Question, d.CacheStatus, d.Detail)
}

// report says what was compared, how much of it came from memory, and what differed. Safe for
// concurrent use; who reads its fields waits until all comparisons have ended.
type report struct {
	mu    sync.Mutex
	begun time.Time
	// all comparisons, those that listproxy is to answer from memory, those of these that it did answer
	// so, and those that it forwarded because its feed was late.
	all, answerable, hits, behind int

	counts      map[string]int // of comparisons by user, representation, selector, …, and of what else happened
	classes     map[class]bool
	kinds       map[kind]int
	differences []difference
}

// share is the part of the answerable questions that listproxy answered itself, from 0 to 1. Those
// that it was behind for, by a revision or by the bound on age, do not count: how many these are
// says how late kube-apiserver's watches are, and nothing of listproxy. That it catches up is
// [comparator.caughtUp].
func (r *report) share() float64 { return float64(r.hits) / float64(max(1, r.answerable-r.behind)) }

// expired is the count of answers that could not be compared.
const expired = "of a revision that the API server has lost"

func newReport() *report {
	return &report{begun: time.Now(), classes: map[class]bool{}, counts: map[string]int{}, kinds: map[kind]int{}}
}

// compared counts a comparison that came to its end: of an answer that is to come from memory if it is
// answerable. of says what it was of.
func (r *report) compared(q question, a ask.Answer, answerable bool, of ...string) {
	_, why, _ := strings.Cut(a.Source(), "detail=")
	if a.FromMemory() {
		why = "memory"
	}
	if q.Query.Has("shardSelector") {
		of = append(of, "shards from "+why)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all++
	for _, what := range append(of, q.User.Name, fmt.Sprintf("from %-15s %s", q.Semantics, why)) {
		r.counts[what]++
	}
	if !answerable {
		return
	}
	r.answerable++
	switch why {
	case "memory":
		r.hits++
		return
	case "stale", "not-proven":
		r.behind++
	}
	r.counts["missed: "+why+" "+q.Resource.Resource]++
}

// list counts a list that was compared.
func (r *report) list(q question, a ask.Answer) {
	var of []string
	if class, ok := q.class(); ok && a.Code == http.StatusOK {
		of = []string{
			"representation " + string(class.Representation), "selector " + string(class.Selector), "scope " + string(class.Scope),
			fmt.Sprintf("semantics %s/%s", class.Semantics, class.Page),
		}
		r.mu.Lock()
		r.classes[class] = true
		r.mu.Unlock()
	}
	r.compared(q, a, q.memory(), of...)
}

// count counts what else happened.
func (r *report) count(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[what]++
}

// differs notes a difference.
func (r *report) differs(d difference) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kinds[d.Kind]++
	if len(r.differences) < maxDifferences {
		r.differences = append(r.differences, d)
	}
}

// comparisons is how many there were so far.
func (r *report) comparisons() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all
}

// has reports whether a list of a class has been compared.
func (r *report) has(c class) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.classes[c]
}

// String is the report for people.
func (r *report) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	took := time.Since(r.begun)
	fmt.Fprintf(&b, "%d comparisons in %.1fs (%.0f a minute)\n", r.all, took.Seconds(), float64(r.all)/took.Minutes())
	fmt.Fprintf(&b, "answerable: %d, of these from memory: %d (%.1f%% without the %d that it was behind for)\n",
		r.answerable, r.hits, 100*r.share(), r.behind)
	for _, what := range slices.Sorted(maps.Keys(r.counts)) {
		fmt.Fprintf(&b, "  %-60s %6d\n", what, r.counts[what])
	}
	fmt.Fprintf(&b, "differences: %v\n", r.kinds)
	for _, d := range r.differences {
		fmt.Fprintln(&b, d)
	}
	return b.String()
}
