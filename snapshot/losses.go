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

// lossOf returns the reason for an error after which a state is lost, or must be loaded anew.
func lossOf(err error) reason.Reason {
	var contradiction wire.InconsistencyError
	var other anotherPastError
	switch {
	case errors.Is(err, errObject):
		return reason.FirstObject
	case errors.Is(err, errOutOfDate), errors.Is(err, errUnproven):
		return reason.Upstream
	case errors.As(err, &other):
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
	// lostAt is when the last state was lost, if none was loaded since; else zero.
	lostAt time.Time
}

func (c *feedCounts) stats() FeedStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	stats := c.FeedStats
	stats.Losses = maps.Clone(c.Losses)
	return stats
}

// stateLife counts the states of one collection, which are loaded and lost in turn, until the collection is
// dropped: for a cause, or because nobody asks for it. It may be dropped while its feed finds out that the
// state is lost: only the first of both is counted.
type stateLife struct {
	counts *feedCounts
	// counts.mu guards these. live: there is a state. dropped: there will be none, even if the feed still
	// reports one.
	live, dropped bool
}

// loaded notes that a state was loaded.
func (l *stateLife) loaded() {
	l.counts.mu.Lock()
	defer l.counts.mu.Unlock()
	if !l.dropped {
		l.live, l.counts.lostAt = true, time.Time{}
		l.counts.Loads++
	}
}

// resumed notes that a watch that broke was opened again where it had come to.
func (l *stateLife) resumed() {
	l.counts.mu.Lock()
	defer l.counts.mu.Unlock()
	l.counts.Resumes++
}

// lost notes that the state, if there is one, is lost, or must be loaded anew.
func (l *stateLife) lost(why reason.Reason, now time.Time) {
	l.counts.mu.Lock()
	defer l.counts.mu.Unlock()
	l.lostLocked(why, now)
}

// drop notes that the collection is dropped for a cause, and its state is lost with it.
func (l *stateLife) drop(why reason.Reason, now time.Time) {
	l.counts.mu.Lock()
	defer l.counts.mu.Unlock()
	l.lostLocked(why, now)
	l.dropped = true
}

func (l *stateLife) lostLocked(why reason.Reason, now time.Time) {
	if !l.live {
		return
	}
	l.live = false
	if l.counts.Losses == nil {
		l.counts.Losses = map[reason.Reason]uint64{}
	}
	l.counts.Losses[why]++
	l.counts.lostAt = now
}

// lostAt is when the last state was lost, if none was loaded since; else zero.
func (l *stateLife) lostAt() time.Time {
	l.counts.mu.Lock()
	defer l.counts.mu.Unlock()
	return l.counts.lostAt
}

// dropIdle notes that the collection is dropped because nobody asks for it, which is no loss.
func (l *stateLife) dropIdle() {
	l.counts.mu.Lock()
	defer l.counts.mu.Unlock()
	l.live, l.dropped = false, true
	l.counts.lostAt = time.Time{}
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
