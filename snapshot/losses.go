package snapshot

import (
	"errors"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/watch"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// lossOf returns the reason for an error that ends a feed's session.
func lossOf(err error) reason.Reason {
	var contradiction wire.InconsistencyError
	var back wentBackError
	switch {
	case errors.Is(err, errObject):
		return reason.FirstObject
	case errors.As(err, &back):
		return reason.WentBack
	case errors.As(err, &contradiction):
		return reason.Contradiction
	case errors.Is(err, errUnproven):
		return reason.Unproven
	case errors.Is(err, wire.ErrForm):
		return reason.Form
	case errors.Is(err, errFull):
		return reason.Memory
	case source.Answered(err, http.StatusGone):
		return reason.Expired
	case source.Answered(err, http.StatusNotFound):
		return reason.NotFound
	case source.Answered(err, http.StatusForbidden):
		return reason.NotPermitted
	}
	return reason.Other
}

// FeedStats counts what happened to the spans of a resource in one representation, in all its
// collections since Collections was made. (If there are too many resources, those without a
// collection are forgotten.)
type FeedStats struct {
	// Loads are the states that were loaded, each of which opened a span.
	Loads uint64
	// Resumes are watches that broke and were resumed in place: their span went on.
	Resumes uint64
	// Losses counts live spans that ended, except those of collections that nobody asked for any more.
	Losses map[reason.Reason]uint64
}

// Restarts is how often a state was lost, for whatever cause.
func (s FeedStats) Restarts() uint64 {
	total := uint64(0)
	for _, n := range s.Losses {
		total += n
	}
	return total
}

// spanCounts counts for FeedStats. It is safe for concurrent use.
type spanCounts struct {
	mu sync.Mutex
	FeedStats
	// watches are the clients that have followed the spans.
	watches watch.Counts
	// lost is when the last span was lost, if none was opened since; else zero.
	lost time.Time
}

func (c *spanCounts) stats() FeedStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	stats := c.FeedStats
	stats.Losses = maps.Clone(c.Losses)
	return stats
}

// spanLife says whether one collection has a live span. A collection may be ended at the same time
// as its feed finds out that the span cannot go on: only the first of both is counted.
type spanLife struct {
	counts *spanCounts
	// counts.mu guards these. closed: the collection was dropped, and has no span any more, even if its
	// feed still reports one.
	live, closed bool
}

// opened notes that a state was loaded.
func (l *spanLife) opened() {
	l.counts.mu.Lock()
	defer l.counts.mu.Unlock()
	if !l.closed {
		l.live, l.counts.lost = true, time.Time{}
		l.counts.Loads++
	}
}

func (l *spanLife) resumed() {
	l.counts.mu.Lock()
	defer l.counts.mu.Unlock()
	l.counts.Resumes++
}

// ended notes that the span is lost, if there is one.
func (l *spanLife) ended(why reason.Reason, now time.Time) {
	l.counts.mu.Lock()
	defer l.counts.mu.Unlock()
	l.endLocked(why, now)
}

// close notes that the collection is given up.
func (l *spanLife) close(why reason.Reason, now time.Time) {
	l.counts.mu.Lock()
	defer l.counts.mu.Unlock()
	l.endLocked(why, now)
	l.closed = true
}

func (l *spanLife) endLocked(why reason.Reason, now time.Time) {
	if !l.live {
		return
	}
	l.live = false
	if l.counts.Losses == nil {
		l.counts.Losses = map[reason.Reason]uint64{}
	}
	l.counts.Losses[why]++
	l.counts.lost = now
}

// lost is when the last span was lost, if none was opened since; else zero.
func (l *spanLife) lost() time.Time {
	l.counts.mu.Lock()
	defer l.counts.mu.Unlock()
	return l.counts.lost
}

// left records that the collection was dropped because nobody wants it, which does not count as a
// loss.
func (l *spanLife) left() {
	l.counts.mu.Lock()
	defer l.counts.mu.Unlock()
	l.live, l.closed = false, true
	l.counts.lost = time.Time{}
}

// countsLocked returns what counts for a resource. Those of resources that have no collection now
// are forgotten where there are too many.
func (c *Collections) countsLocked(r Resource) *spanCounts {
	if counts := c.counts[r]; counts != nil {
		return counts
	}
	if len(c.counts) >= 2*maxCollections {
		maps.DeleteFunc(c.counts, func(other Resource, _ *spanCounts) bool { return c.all[other] == nil })
	}
	counts := &spanCounts{}
	c.counts[r] = counts
	return counts
}
