package differential

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Kind of a difference.
type Kind string

// The kinds of differences.
const (
	Status   Kind = "status"
	Header   Kind = "header"
	Body     Kind = "body"
	TooOld   Kind = "too-old" // a NotOlderThan that is older
	Frozen   Kind = "frozen"  // an Any that misses what was written long ago
	Silent   Kind = "no-answer"
	Unmarked Kind = "unmarked" // an answer that does not say where it came from
)

// maxDifferences is how many differences are kept in full.
const maxDifferences = 20

// Difference is something that a client could have seen.
type Difference struct {
	Kind     Kind
	Question string
	// CacheStatus of listproxy's answer.
	CacheStatus string
	Detail      string
}

func (d Difference) String() string {
	return fmt.Sprintf("%s: %s\n  Cache-Status: %s\n  %s", d.Kind, d.Question, d.CacheStatus, d.Detail)
}

// Report says what was compared, how much of it came from memory, and what differed. Safe for
// concurrent use.
type Report struct {
	mu          sync.Mutex
	begun       time.Time
	all         tally
	fromMemory  int
	behind      int            // answerable, and forwarded because the feed was late
	missed      map[string]int // answerable, but forwarded: by reason
	of          map[string]tally
	classes     map[Class]bool
	counts      map[string]int
	differences []Difference
	kinds       map[Kind]int
}

// tally counts comparisons: all, those that listproxy is to answer from memory, and those of these
// that it did answer so.
type tally struct{ all, answerable, hits int }

// The counts that tests look at.
const expired = "of a revision that the API server has lost"

// NewReport returns an empty report.
func NewReport() *Report {
	return &Report{
		begun: time.Now(), missed: map[string]int{}, of: map[string]tally{}, classes: map[Class]bool{}, counts: map[string]int{}, kinds: map[Kind]int{},
	}
}

// Comparison is one that came to its end.
type Comparison struct {
	// Origin is where listproxy's answer came from, and FromMemory that it was from memory.
	Origin     string
	FromMemory bool
	// Answerable: it was to come from memory. Missed says why it did not, if it did not, and Behind
	// that this was because the feed was late.
	Answerable bool
	Missed     string
	Behind     bool
	// Of is what it was of: the report tells each apart.
	Of []string
}

// Compared counts a comparison.
func (r *Report) Compared(c Comparison) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := tally{all: 1}
	if c.FromMemory {
		r.fromMemory++
	}
	switch {
	case !c.Answerable:
	case c.FromMemory:
		one.answerable, one.hits = 1, 1
	default:
		one.answerable = 1
		r.missed[c.Missed]++
		if c.Behind {
			r.behind++
		}
	}
	r.counts["from "+c.Origin]++
	r.all = r.all.plus(one)
	for _, of := range c.Of {
		r.of[of] = r.of[of].plus(one)
	}
}

func (t tally) plus(o tally) tally {
	return tally{t.all + o.all, t.answerable + o.answerable, t.hits + o.hits}
}

// compared counts a list that was compared.
func (r *Report) compared(q Question, answer Answer) {
	origin := strings.TrimPrefix(answer.Header.Get("Cache-Status"), "listproxy; ")
	if i := strings.Index(origin, "detail="); i >= 0 && !strings.HasPrefix(origin, "hit") {
		origin = origin[i+len("detail="):]
	}
	hit := strings.HasPrefix(origin, "hit")
	if hit {
		origin = "hit"
	}
	of := []string{q.User.Name}
	if class, ok := q.Class(); ok && answer.Status == http.StatusOK {
		of = append(of, "representation "+string(class.Representation), "selector "+string(class.Selector), "scope "+string(class.Scope),
			fmt.Sprintf("semantics %s/%s", class.Semantics, class.Page))
		r.mu.Lock()
		r.classes[class] = true
		r.mu.Unlock()
	}
	r.Compared(Comparison{
		Origin: fmt.Sprintf("%-15s %s", q.Semantics, origin), FromMemory: hit, Answerable: q.Answerable, Of: of,
		Missed: origin + " " + q.Resource.Resource, Behind: origin == "stale" || origin == "not-proven",
	})
}

// Count counts what else happened.
func (r *Report) Count(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[what]++
}

// Differs notes a difference.
func (r *Report) Differs(d Difference) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kinds[d.Kind]++
	if len(r.differences) < maxDifferences {
		r.differences = append(r.differences, d)
	}
}

// Comparisons is how many answers were compared.
func (r *Report) Comparisons() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all.all
}

// Share is the part of the answerable questions that listproxy answered itself, from 0 to 1. Those
// that it was behind for, by a revision or by the bound on age, do not count: how many these are
// says how late kube-apiserver's watches are, and nothing of listproxy. That it catches up is
// [Comparator.CaughtUp].
func (r *Report) Share() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.share()
}

func (r *Report) share() float64 {
	return float64(r.all.hits) / float64(max(1, r.all.answerable-r.behind))
}

// Kinds returns how many differences there were of each kind.
func (r *Report) Kinds() map[Kind]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.kinds)
}

// AskedBy is how many of them a user asked for.
func (r *Report) AskedBy(user string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.of[user].all
}

// Expired is how many answers could not be compared, because the API server has lost the revision.
func (r *Report) Expired() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[expired]
}

// CoverageAfter is how many comparisons are enough for every class to be among them, on a cluster
// with all resources: what a machine of two cores makes in about a minute and a half.
const CoverageAfter = 7500

// Missing returns the classes of which not one list has been compared.
func (r *Report) Missing() []Class {
	return slices.DeleteFunc(classes(), r.has)
}

// has reports whether a list of a class has been compared.
func (r *Report) has(c Class) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.classes[c]
}

// String is the report for people.
func (r *Report) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	took := time.Since(r.begun)
	fmt.Fprintf(&b, "%d comparisons in %.1fs (%.0f a minute), %d from memory\n", r.all.all, took.Seconds(), float64(r.all.all)/took.Minutes(), r.fromMemory)
	fmt.Fprintf(&b, "answerable: %d, of these from memory: %d (%.1f%% without the %d that it was behind for); the others: %v\n",
		r.all.answerable, r.all.hits, 100*r.share(), r.behind, r.missed)
	for _, what := range slices.Sorted(maps.Keys(r.counts)) {
		fmt.Fprintf(&b, "  %-60s %6d\n", what, r.counts[what])
	}
	for _, of := range slices.Sorted(maps.Keys(r.of)) {
		t := r.of[of]
		fmt.Fprintf(&b, "  %-60s %6d, %d of %d from memory\n", of, t.all, t.hits, t.answerable)
	}
	fmt.Fprintf(&b, "differences: %v\n", r.kinds)
	for _, d := range r.differences {
		fmt.Fprintln(&b, d)
	}
	return b.String()
}
