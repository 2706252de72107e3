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

// Report counts what was compared. Safe for concurrent use.
type Report struct {
	*Outcome
	mu        sync.Mutex
	classes   map[Class]tally
	callers   map[string]tally
	tokens    int
	indexEnds int
	ages      int // compared but for ages
	expired   int
	again     int
	walks     int
	lag       []time.Duration
}

// tally counts the comparisons of a class: all, those that listproxy is to answer from memory, and
// those of these that it did answer so.
type tally struct{ all, answerable, hits int }

// add counts one more.
func (t tally) add(q Question, hit bool) tally {
	t.all++
	if q.Answerable {
		t.answerable++
		if hit {
			t.hits++
		}
	}
	return t
}

func (t tally) share() float64 { return float64(t.hits) / float64(max(1, t.answerable)) }

// NewReport returns an empty report.
func NewReport() *Report {
	return &Report{Outcome: NewOutcome(), classes: map[Class]tally{}, callers: map[string]tally{}}
}

// compared counts a comparison that came to its end.
func (r *Report) compared(q Question, answer Answer) {
	origin := strings.TrimPrefix(answer.Header.Get("Cache-Status"), "listproxy; ")
	if i := strings.Index(origin, "detail="); i >= 0 && !strings.HasPrefix(origin, "hit") {
		origin = origin[i+len("detail="):]
	}
	hit := strings.HasPrefix(origin, "hit")
	if hit {
		origin = "hit"
	}
	r.Compared(Comparison{
		Origin:     fmt.Sprintf("%-15s %s", q.Semantics, origin),
		FromMemory: hit,
		Answerable: q.Answerable,
		Missed:     origin + " " + q.Resource.Resource,
		Behind:     origin == "stale" || origin == "not-proven",
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.classify(q, answer.Status, hit)
	r.callers[q.User.Name] = r.callers[q.User.Name].add(q, hit)
}

// classify counts a list in its class.
func (r *Report) classify(q Question, status int, hit bool) {
	class, ok := q.Class()
	if !ok || status != http.StatusOK {
		return
	}
	r.classes[class] = r.classes[class].add(q, hit)
}

func (r *Report) count(what *int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*what++
}

func (r *Report) lagged(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lag = append(r.lag, d)
}

// AskedBy is how many of them a user asked for.
func (r *Report) AskedBy(user string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.callers[user].all
}

// Expired is how many answers could not be compared, because the API server has lost the revision.
func (r *Report) Expired() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.expired
}

// String is the report for people.
func (r *Report) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	b.WriteString(r.Summary(fmt.Sprintf("%d walks", r.walks)))
	fmt.Fprintf(&b, "tokens that differed in the slash: %d; pages that ended with the index: %d; tables that differed in ages: %d; expired upstream: %d; asked again: %d\n",
		r.tokens, r.indexEnds, r.ages, r.expired, r.again)
	if len(r.lag) > 0 {
		slices.Sort(r.lag)
		fmt.Fprintf(&b, "from a write to an Any with it: median %v, longest %v, of %d\n",
			r.lag[len(r.lag)/2].Round(time.Millisecond), r.lag[len(r.lag)-1].Round(time.Millisecond), len(r.lag))
	}
	b.WriteString(r.Origins())
	for _, caller := range slices.Sorted(maps.Keys(r.callers)) {
		t := r.callers[caller]
		fmt.Fprintf(&b, "  %-60s %6d, %d of %d from memory\n", caller, t.all, t.hits, t.answerable)
	}
	b.WriteString(table(r.classes))
	b.WriteString(r.Differing())
	return b.String()
}

// CoverageAfter is how many comparisons are enough for every class to be among them, on a cluster
// with all resources: what a machine of two cores makes in about a minute and a half.
const CoverageAfter = 7500

// Missing returns the classes of which not one list has been compared.
func (r *Report) Missing() []Class {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(classes(), func(c Class) bool { return r.classes[c].all > 0 })
}

// has reports whether a list of a class has been compared.
func (r *Report) has(c Class) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.classes[c].all > 0
}

// table shows how often each class was compared, and how much of what is to come from memory did:
// representation, selector and scope by semantics and page.
func table(counts map[Class]tally) string {
	if len(counts) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("lists compared, with the share from memory where they are to be answered so\n")
	columns := make([]string, len(moments))
	for i, m := range moments {
		columns[i] = fmt.Sprintf("%s/%s", short[m.semantics], m.page)
	}
	line := func(head [3]string, cells []string) {
		fmt.Fprintf(&b, "  %-17s %-8s %-9s", head[0], head[1], head[2])
		for _, cell := range cells {
			fmt.Fprintf(&b, " %12s", cell)
		}
		b.WriteByte('\n')
	}
	line([3]string{"representation", "selector", "scope"}, columns)
	asked := map[Representation]bool{}
	for class := range counts {
		asked[class.Representation] = true
	}
	for _, representation := range representations {
		if !asked[representation] {
			continue
		}
		for _, selector := range selectorKinds {
			for _, scope := range scopes {
				cells := make([]string, len(moments))
				for i, m := range moments {
					t := counts[Class{representation, selector, scope, m.semantics, m.page}]
					cells[i] = fmt.Sprint(t.all)
					if t.answerable > 0 {
						cells[i] += fmt.Sprintf(" %3.0f%%", 100*t.share())
					}
				}
				line([3]string{string(representation), string(selector), string(scope)}, cells)
			}
		}
	}
	return b.String()
}

var short = map[Semantics]string{Any: "any", NotOlderThan: "nolder", Exact: "exact", Legacy: "legacy", MostRecent: "recent"}
