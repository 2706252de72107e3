package differential

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/test/harness/ask"
)

// differenceKind is a kind of differences.
type differenceKind string

// The kinds of differences of lists.
const (
	wrongStatus   differenceKind = "status"
	wrongHeader   differenceKind = "header"
	wrongBody     differenceKind = "body"
	tooOld        differenceKind = "too-old" // a notOlderThan or consistent list of a lower revision than it must have
	tooStale      differenceKind = "frozen"  // a list at anyRevision that lacks a write of more than bound ago
	noAnswer      differenceKind = "no-answer"
	noCacheStatus differenceKind = "unmarked" // an answer without a Cache-Status
)

// The kinds of differences of watches.
const (
	// wrongEvents are events that the track does not have, or has at another place.
	wrongEvents differenceKind = "events"
	// wrongBookmark is a bookmark with other bytes than kube-apiserver's.
	wrongBookmark differenceKind = "bookmarks"
	// wrongRefusal is an ERROR that only one side has sent, or with other bytes than kube-apiserver's.
	wrongRefusal differenceKind = "refusal"
	// wrongEnd is a stream that ended while the other side's went on.
	wrongEnd differenceKind = "ended"
	// wrongReference is a mistake of this package: kube-apiserver's own watch does not fit the track.
	wrongReference differenceKind = "reference"
	// incomparable is no difference, and is in no report. The two sides answered at moments that cannot be compared.
	incomparable differenceKind = "incomparable"
)

// maxDifferences is the number of differences that a report keeps in full.
const maxDifferences = 20

// difference is a difference between the answers of listproxy and kube-apiserver that a client could see.
type difference struct {
	Kind        differenceKind
	Question    string
	CacheStatus string // of listproxy's answer
	Detail      string
}

// newDifference returns a difference without its question.
func newDifference(kind differenceKind, format string, args ...any) *difference {
	return &difference{Kind: kind, Detail: fmt.Sprintf(format, args...)}
}

func (d difference) String() string {
	return fmt.Sprintf("%s: %s\n  Cache-Status: %s\n  %s", d.Kind, d.Question, d.CacheStatus, d.Detail)
}

// report counts what was compared and what came from memory, and keeps differences. Its methods are safe for concurrent use.
// Its fields may be read when all comparisons have ended.
type report struct {
	mu      sync.Mutex
	started time.Time

	all        int // the number of comparisons
	answerable int // those whose question listproxy should answer from memory
	hits       int // the answerable ones that were answered from memory
	behind     int // the answerable ones that were forwarded because memory was too old, or was not proven in time

	counts      map[string]int         // comparisons by representation, selector and so on, and events such as "walks"
	users       map[string]int         // comparisons by the user's name
	shardHits   int                    // the number of shards from memory
	lost        int                    // the number of answers at revisions that kube-apiserver no longer has
	classes     map[class]bool         // the classes of lists that were compared
	kinds       map[differenceKind]int // the number of differences of each kind
	differences []difference           // the first maxDifferences
}

// share returns the share of the answerable questions that listproxy answered from memory, from 0 to 1. Questions for which
// memory was behind do not count: their number depends on how late kube-apiserver's watches are. ([comparator.awaitCaughtUp]
// requires that memory catches up.)
func (r *report) share() float64 { return float64(r.hits) / float64(max(1, r.answerable-r.behind)) }

// lostRevision is the reason why some answers cannot be compared.
const lostRevision = "the API server no longer has the revision"

func newReport() *report {
	return &report{
		started: time.Now(), counts: map[string]int{}, users: map[string]int{},
		classes: map[class]bool{}, kinds: map[differenceKind]int{},
	}
}

// addComparison counts a comparison of listproxy's answer to a question. answerable means that the answer should come from
// memory. names are further counts to raise.
func (r *report) addComparison(q question, a ask.Answer, answerable bool, names ...string) {
	_, forwardReason, _ := strings.Cut(a.Source(), "detail=")
	source := forwardReason
	if a.FromMemory() {
		source = "memory"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all++
	r.users[q.User.Name]++
	for _, name := range append(names, fmt.Sprintf("from %-15s %s", q.Semantics, source)) {
		r.counts[name]++
	}
	if a.FromMemory() && q.Query.Has("shardSelector") {
		r.shardHits++
	}
	if !answerable {
		return
	}
	r.answerable++
	if a.FromMemory() {
		r.hits++
		return
	}
	isBehind := forwardReason == string(reason.Stale) || forwardReason == string(reason.NotProven)
	if isBehind {
		r.behind++
	}
	r.counts["missed: "+forwardReason+" "+q.Resource.Resource]++
}

// addList counts the comparison of a list.
func (r *report) addList(q question, a ask.Answer) {
	var names []string
	if class, ok := q.class(); ok && a.Code == http.StatusOK {
		names = []string{
			"representation " + string(class.Representation), "selector " + string(class.Selector), "scope " + string(class.Scope),
			fmt.Sprintf("semantics %s/%s", class.Semantics, class.Page),
		}
		r.mu.Lock()
		r.classes[class] = true
		r.mu.Unlock()
	}
	r.addComparison(q, a, q.shouldHit(), names...)
}

// count raises the count of the name by one.
func (r *report) count(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[name]++
}

// addLost counts an answer of a revision that kube-apiserver no longer has.
func (r *report) addLost() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost++
}

// addDifference adds a difference.
func (r *report) addDifference(d difference) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kinds[d.Kind]++
	if len(r.differences) < maxDifferences {
		r.differences = append(r.differences, d)
	}
}

// comparisons returns the number of comparisons so far.
func (r *report) comparisons() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all
}

// hasList reports whether a list of a class has been compared.
func (r *report) hasList(c class) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.classes[c]
}

// String returns the report as text.
func (r *report) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	took := time.Since(r.started)
	fmt.Fprintf(&b, "%d comparisons in %.1fs (%.0f a minute)\n", r.all, took.Seconds(), float64(r.all)/took.Minutes())
	fmt.Fprintf(&b, "answerable: %d, of these from memory: %d (%.1f%% without the %d that it was behind for)\n",
		r.answerable, r.hits, 100*r.share(), r.behind)
	for _, counts := range []map[string]int{r.users, r.counts} {
		for _, what := range slices.Sorted(maps.Keys(counts)) {
			fmt.Fprintf(&b, "  %-60s %6d\n", what, counts[what])
		}
	}
	fmt.Fprintf(&b, "shards from memory: %d; %s: %d\n", r.shardHits, lostRevision, r.lost)
	fmt.Fprintf(&b, "differences: %v\n", r.kinds)
	for _, d := range r.differences {
		fmt.Fprintln(&b, d)
	}
	return b.String()
}
