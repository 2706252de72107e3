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
	var back anotherPastError
	switch {
	case errors.Is(err, errObject):
		return reason.FirstObject
	case errors.Is(err, errOutOfDate), errors.Is(err, errUnproven):
		return reason.Upstream
	case errors.As(err, &back):
		return reason.WentBack
	case errors.As(err, &contradiction):
		return reason.Contradiction
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

// FeedStats counts what happened to the states of a resource in one representation, in all its
// collections since Collections was made. (If there are too many resources, those without a
// collection are forgotten.)
type FeedStats struct {
	// Loads are the states that were loaded.
	Loads uint64
	// Resumes are watches that broke and were opened again where they had come to.
	Resumes uint64
	// Losses counts how often a state was lost, or had to be loaded anew, by cause; except those of
	// collections that nobody asked for any more.
	Losses map[reason.Reason]uint64
}

// feedCounts counts for FeedStats. It is safe for concurrent use.
type feedCounts struct {
	mu sync.Mutex
	FeedStats
	// watches are the clients that have followed the collections.
	watches watch.Counts
	// lost is when the last state was lost, if none was loaded since; else zero.
	lost time.Time
}

func (c *feedCounts) stats() FeedStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	stats := c.FeedStats
	stats.Losses = maps.Clone(c.Losses)
	return stats
}

// stateLife says whether one collection has a state: opened, ended when that is lost or must be loaded anew
// (it may be opened again), closed when the collection is dropped for a cause, left when it is dropped since
// nobody asks. A collection may be ended at the same time as its feed finds out that the state is lost: only
// the first of both is counted.
type stateLife struct {
	counts *feedCounts
	// counts.mu guards these. closed: the collection was dropped, and has no state any more, even if its
	// feed still reports one.
	live, closed bool
}

// opened notes that a state was loaded.
func (l *stateLife) opened() {
	l.counts.mu.Lock()
	defer l.counts.mu.Unlock()
	if !l.closed {
		l.live, l.counts.lost = true, time.Time{}
		l.counts.Loads++
	}
}

func (l *stateLife) resumed() {
	l.counts.mu.Lock()
	defer l.counts.mu.Unlock()
	l.counts.Resumes++
}

// ended notes that the state is lost, or must be loaded anew, if there is one.
func (l *stateLife) ended(why reason.Reason, now time.Time) {
	l.counts.mu.Lock()
	defer l.counts.mu.Unlock()
	l.endLocked(why, now)
}

// close notes that the collection is given up.
func (l *stateLife) close(why reason.Reason, now time.Time) {
	l.counts.mu.Lock()
	defer l.counts.mu.Unlock()
	l.endLocked(why, now)
	l.closed = true
}

func (l *stateLife) endLocked(why reason.Reason, now time.Time) {
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

// lost is when the last state was lost, if none was loaded since; else zero.
func (l *stateLife) lost() time.Time {
	l.counts.mu.Lock()
	defer l.counts.mu.Unlock()
	return l.counts.lost
}

// left records that the collection was dropped because nobody wants it, which does not count as a
// loss.
func (l *stateLife) left() {
	l.counts.mu.Lock()
	defer l.counts.mu.Unlock()
	l.live, l.closed = false, true
	l.counts.lost = time.Time{}
}

// countsLocked returns what counts for a resource. Those of resources that have no collection now
// are forgotten where there are too many.
func (c *Collections) countsLocked(r Resource) *feedCounts {
	if counts := c.counts[r]; counts != nil {
		return counts
	}
	if len(c.counts) >= 2*maxCollections {
		maps.DeleteFunc(c.counts, func(other Resource, _ *feedCounts) bool { return c.all[other] == nil })
	}
	counts := &feedCounts{}
	c.counts[r] = counts
	return counts
}
