package snapshot

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// counters count what has happened to a collection since it started.
type counters struct {
	events, spans, gaps, resumes, probes, poisoned, dropped, shortened atomic.Int64
}

// Stats are what a collection is and has been through.
type Stats struct {
	Resource Resource
	// Absence is why there is no newest state; Known while a span is live.
	Absence Absence
	Spans   []Span
	// Heard is when the upstream last gave a sign of life.
	Heard   time.Time
	Objects int
	// Bytes is what the collection stores, history included.
	Bytes int64
	// Events applied, Spans opened, Gaps (spans that were lost), Resumes of a watch in place,
	// Probes, Poisoned (contradictions), Dropped (all forgotten), Shortened (history given up
	// for memory).
	Events, Opened, Gaps, Resumes, Probes, Poisoned, Dropped, Shortened int64
}

// Stats of the collection now.
func (c *Collection) Stats() Stats {
	v := c.view.Load()
	s := Stats{
		Resource:  c.resource,
		Absence:   v.absence,
		Spans:     slices.Clone(v.spans),
		Heard:     v.heard,
		Events:    c.counters.events.Load(),
		Opened:    c.counters.spans.Load(),
		Gaps:      c.counters.gaps.Load(),
		Resumes:   c.counters.resumes.Load(),
		Probes:    c.counters.probes.Load(),
		Poisoned:  c.counters.poisoned.Load(),
		Dropped:   c.counters.dropped.Load(),
		Shortened: c.counters.shortened.Load(),
	}
	if v.absence == Known {
		s.Objects = v.newest.len()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, bytes := range c.accounts {
		s.Bytes += bytes
	}
	return s
}

// Stats of all collections, by name.
func (c *Collections) Stats() []Stats {
	var all []Stats
	for _, r := range c.list() {
		all = append(all, r.Stats())
	}
	slices.SortFunc(all, func(a, b Stats) int { return strings.Compare(a.Resource.String(), b.Resource.String()) })
	return all
}
