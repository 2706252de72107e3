package watches

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/listproxy/listproxy/test/differential"
)

// maxDifferences is how many differences are kept in full.
const maxDifferences = 20

// Report counts what was compared. It is safe for concurrent use.
type Report struct {
	mu          sync.Mutex
	begun       time.Time
	comparisons int
	events      int
	bookmarks   int
	answerable  int
	hits        int            // of the answerable ones
	fromMemory  int            // of all
	compressed  int            // of those from memory
	missed      map[string]int // answerable, but forwarded: by reason
	origins     map[string]int
	classes     map[string]int
	again       int // asked again
	elsewhere   int // given up: the two sides could never be compared
	expired     int // the API server had lost the revision
	refused     int // by both
	unknown     int // bookmarks that could not be compared
	resumes     int // of followers
	followed    int // streams of followers that came from memory
	differences []differential.Difference
	kinds       map[differential.Kind]int
	found       chan struct{} // closed at the first difference
}

// NewReport returns an empty report.
func NewReport() *Report {
	return &Report{
		begun: time.Now(), missed: map[string]int{}, origins: map[string]int{}, classes: map[string]int{},
		kinds: map[differential.Kind]int{}, found: make(chan struct{}),
	}
}

// Found is closed when the first difference has been reported.
func (r *Report) Found() <-chan struct{} { return r.found }

func (r *Report) count(what *int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*what++
}

// compared counts a comparison that came to its end.
func (r *Report) compared(f form, p *pair) {
	said, _, _ := p.proxied.said()
	origin, hit := originOf(p.proxied)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.comparisons++
	for _, e := range said {
		if e.kind == bookmark {
			r.bookmarks++
		} else {
			r.events++
		}
	}
	r.origins[origin]++
	if hit {
		r.fromMemory++
		if p.proxied.header.Get("Content-Encoding") != "" {
			r.compressed++
		}
	}
	r.classes[fmt.Sprintf("%-17s %s", f.representation, f.selector)]++
	r.classes[fmt.Sprintf("rv=%s sie=%s", f.start, f.initial)]++
	if f.answerable && p.proxied.status == http.StatusOK {
		r.answerable++
		if hit {
			r.hits++
		} else {
			r.missed[fmt.Sprintf("%s %s rv=%s", origin, f.Resource.Resource, f.start)]++
		}
	}
}

// originOf returns what listproxy says about where its events came from.
func originOf(s *stream) (origin string, hit bool) {
	origin = strings.TrimPrefix(s.header.Get("Cache-Status"), "listproxy; ")
	return origin, strings.HasPrefix(origin, "hit")
}

func (r *Report) differs(d differential.Difference) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.kinds) == 0 {
		close(r.found)
	}
	r.kinds[d.Kind]++
	if len(r.differences) < maxDifferences {
		r.differences = append(r.differences, d)
	}
}

// Comparisons is how many watches were compared.
func (r *Report) Comparisons() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.comparisons
}

// FromMemory is how many of them listproxy answered itself.
func (r *Report) FromMemory() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fromMemory
}

// Share is the part of what is to come from memory that did, from 0 to 1.
func (r *Report) Share() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.share()
}

func (r *Report) share() float64 { return float64(r.hits) / float64(max(1, r.answerable)) }

// Kinds returns how many differences there were of each kind.
func (r *Report) Kinds() map[differential.Kind]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.kinds)
}

// String is the report for people.
func (r *Report) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%d watches compared in %.1fs with %d events and %d bookmarks, %d from memory (%d of these compressed); followers resumed %d times, with %d streams from memory\n",
		r.comparisons, time.Since(r.begun).Seconds(), r.events, r.bookmarks, r.fromMemory, r.compressed, r.resumes, r.followed)
	fmt.Fprintf(&b, "to be answered: %d, of these from memory: %d (%.1f%%); the others: %v\n", r.answerable, r.hits, 100*r.share(), r.missed)
	fmt.Fprintf(&b, "asked again: %d, in vain: %d; expired upstream: %d; refused by both: %d; bookmarks of a sort not seen before: %d\n",
		r.again, r.elsewhere, r.expired, r.refused, r.unknown)
	for _, of := range []map[string]int{r.origins, r.classes} {
		for _, name := range slices.Sorted(maps.Keys(of)) {
			fmt.Fprintf(&b, "  %-34s %d\n", name, of[name])
		}
	}
	fmt.Fprintf(&b, "differences: %v\n", r.kinds)
	for _, d := range r.differences {
		fmt.Fprintln(&b, d)
	}
	return b.String()
}
