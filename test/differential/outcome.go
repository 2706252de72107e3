package differential

import (
	"fmt"
	"maps"
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
	Missing  Kind = "missing" // a NotOlderThan without what had been written by then
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

// Outcome is what every report has: how many answers were compared, how many of them came from
// memory, and what differed. It is safe for concurrent use.
type Outcome struct {
	mu          sync.Mutex
	begun       time.Time
	comparisons int
	fromMemory  int
	answerable  int
	hits        int // of the answerable ones
	behind      int // of the answerable ones, forwarded because the feed was late
	origins     map[string]int
	missed      map[string]int // answerable, but forwarded: by reason
	differences []Difference
	kinds       map[Kind]int
	found       chan struct{} // closed at the first difference
}

// NewOutcome returns an empty outcome.
func NewOutcome() *Outcome {
	return &Outcome{begun: time.Now(), origins: map[string]int{}, missed: map[string]int{}, kinds: map[Kind]int{}, found: make(chan struct{})}
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
}

// Compared counts a comparison.
func (o *Outcome) Compared(c Comparison) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.comparisons++
	o.origins[c.Origin]++
	if c.FromMemory {
		o.fromMemory++
	}
	switch {
	case !c.Answerable:
		return
	case c.FromMemory:
		o.hits++
	default:
		o.missed[c.Missed]++
		if c.Behind {
			o.behind++
		}
	}
	o.answerable++
}

// Differs notes a difference.
func (o *Outcome) Differs(d Difference) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.kinds) == 0 {
		close(o.found)
	}
	o.kinds[d.Kind]++
	if len(o.differences) < maxDifferences {
		o.differences = append(o.differences, d)
	}
}

// Found is closed when the first difference has been noted.
func (o *Outcome) Found() <-chan struct{} { return o.found }

// Comparisons is how many answers were compared.
func (o *Outcome) Comparisons() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.comparisons
}

// FromMemory is how many of them listproxy answered itself.
func (o *Outcome) FromMemory() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.fromMemory
}

// Share is the part of the answerable questions that listproxy answered itself, from 0 to 1. Those
// that it was behind for, by a revision or by the bound on age, do not count: how many these are
// says how late kube-apiserver's watches are, and nothing of listproxy. That it catches up is
// [Comparator.CaughtUp].
func (o *Outcome) Share() float64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.share()
}

func (o *Outcome) share() float64 {
	return float64(o.hits) / float64(max(1, o.answerable-o.behind))
}

// Kinds returns how many differences there were of each kind.
func (o *Outcome) Kinds() map[Kind]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.kinds)
}

// Summary is the outcome in two lines; more follows the first.
func (o *Outcome) Summary(more string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	took := time.Since(o.begun)
	return fmt.Sprintf("%d comparisons in %.1fs (%.0f a minute), %d from memory; %s\n"+
		"answerable: %d, of these from memory: %d (%.1f%% without the %d that it was behind for); the others: %v\n",
		o.comparisons, took.Seconds(), float64(o.comparisons)/took.Minutes(), o.fromMemory, more,
		o.answerable, o.hits, 100*o.share(), o.behind, o.missed)
}

// Origins are where answers came from, a line each.
func (o *Outcome) Origins() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return Counts(o.origins)
}

// Differing are the differences in full, as far as they are kept.
func (o *Outcome) Differing() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "differences: %v\n", o.kinds)
	for _, d := range o.differences {
		fmt.Fprintln(&b, d)
	}
	return b.String()
}

// Counts are counts by name, a line each.
func Counts(of map[string]int) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(of)) {
		fmt.Fprintf(&b, "  %-34s %d\n", name, of[name])
	}
	return b.String()
}
