package watches

import (
	"fmt"
	"net/http"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/test/differential"
)

// Report counts what was compared. It is safe for concurrent use.
type Report struct {
	*differential.Outcome
	mu         sync.Mutex
	events     int
	bookmarks  int
	compressed int // of those from memory
	classes    map[string]int
	again      int // asked again
	elsewhere  int // given up: the two sides could never be compared
	expired    int // the API server had lost the revision
	refused    int // by both
	unknown    int // bookmarks that could not be compared
	resumes    int // of followers
	followed   int // streams of followers that came from memory
}

// NewReport returns an empty report.
func NewReport() *Report {
	return &Report{Outcome: differential.NewOutcome(), classes: map[string]int{}}
}

func (r *Report) count(what *int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*what++
}

// compared counts a comparison that came to its end.
func (r *Report) compared(f form, p *pair) {
	said, _, _ := p.proxied.said()
	origin, hit := originOf(p.proxied)
	r.Compared(differential.Comparison{
		Origin: origin, FromMemory: hit, Answerable: f.answerable && p.proxied.status == http.StatusOK,
		Missed: fmt.Sprintf("%s %s rv=%s", origin, f.Resource.Resource, f.start),
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range said {
		if e.Type == watch.Bookmark {
			r.bookmarks++
		} else {
			r.events++
		}
	}
	if hit && p.proxied.header.Get("Content-Encoding") != "" {
		r.compressed++
	}
	r.classes[fmt.Sprintf("%-17s %s", f.representation, f.selector)]++
	r.classes[fmt.Sprintf("rv=%s sie=%s", f.start, f.initial)]++
}

// originOf returns what listproxy says about where its events came from.
func originOf(s *stream) (origin string, hit bool) {
	origin = strings.TrimPrefix(s.header.Get("Cache-Status"), "listproxy; ")
	return origin, strings.HasPrefix(origin, "hit")
}

// String is the report for people.
func (r *Report) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Summary(fmt.Sprintf("%d of these compressed; %d events and %d bookmarks; followers resumed %d times, with %d streams from memory",
		r.compressed, r.events, r.bookmarks, r.resumes, r.followed)) +
		fmt.Sprintf("asked again: %d, in vain: %d; expired upstream: %d; refused by both: %d; bookmarks of a sort not seen before: %d\n",
			r.again, r.elsewhere, r.expired, r.refused, r.unknown) +
		r.Origins() + differential.Counts(r.classes) + r.Differing()
}
