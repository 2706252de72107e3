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

// lifecycle counts the states of one collection. They are loaded and lost in turn until the collection is dropped. If
// it is dropped while its feed finds out that the state is lost, only the first of both is counted.
type lifecycle struct {
	// counts is shared by all collections with the same key. Its mu guards live and dropped.
	counts *feedCounts
	// live reports whether there is a state, dropped whether there will be none, even if the feed still reports one.
	live, dropped bool
}

// FeedStats counts what happened to the states of all collections with one key since listproxy started. (If there are
// too many keys, those without a collection are forgotten.)
type FeedStats struct {
	// Loads is the number of states that were loaded.
	Loads uint64
	// Losses is the number of states that were lost, or had to be loaded anew, by cause. Idle collections do not count.
	Losses map[reason.Reason]uint64
}

// feedCounts counts for FeedStats. It is safe for concurrent use.
type feedCounts struct {
	mu    sync.Mutex
	total FeedStats
	// watches counts the clients' watches of these collections.
	watches watch.Counts
	// lostAt is the time at which the last state was lost; zero if one was loaded since, or none was lost.
	lostAt time.Time
}

// stats returns a copy of the counts.
func (c *feedCounts) stats() FeedStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	total := c.total
	total.Losses = maps.Clone(c.total.Losses)
	return total
}

// loaded records that a state was loaded.
func (l *lifecycle) loaded() {
	l.counts.mu.Lock()
	defer l.counts.mu.Unlock()
	if !l.dropped {
		l.live = true
		l.counts.lostAt = time.Time{}
		l.counts.total.Loads++
	}
}

// lost records that the state, if there is one, is lost or must be loaded anew.
func (l *lifecycle) lost(why reason.Reason, now time.Time) {
	l.counts.mu.Lock()
	defer l.counts.mu.Unlock()
	l.lostLocked(why, now)
}

// drop records that the collection is dropped, and its state with it. With None it was idle, and that is no loss.
func (l *lifecycle) drop(why reason.Reason, now time.Time) {
	l.counts.mu.Lock()
	defer l.counts.mu.Unlock()
	l.lostLocked(why, now)
	l.dropped = true
}

func (l *lifecycle) lostLocked(why reason.Reason, now time.Time) {
	if !l.live {
		return
	}
	l.live = false
	if why == reason.None {
		return
	}
	if l.counts.total.Losses == nil {
		l.counts.total.Losses = map[reason.Reason]uint64{}
	}
	l.counts.total.Losses[why]++
	l.counts.lostAt = now
}

// lostAt returns the time at which the last state was lost; zero if one was loaded since, or none was lost.
func (l *lifecycle) lostAt() time.Time {
	l.counts.mu.Lock()
	defer l.counts.mu.Unlock()
	return l.counts.lostAt
}

// lossOf returns the cause that is counted for a loss after an error.
func lossOf(err error) reason.Reason {
	var contradiction wire.InconsistencyError
	var other otherTimelineError
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

// countsLocked returns the counts of all collections with a key. If there are too many, it forgets those of keys that
// have no collection now.
func (c *Collections) countsLocked(key CollectionKey) *feedCounts {
	if counts := c.counts[key]; counts != nil {
		return counts
	}
	if len(c.counts) >= 2*maxCollections {
		maps.DeleteFunc(c.counts, func(other CollectionKey, _ *feedCounts) bool { return c.all[other] == nil })
	}
	counts := &feedCounts{}
	c.counts[key] = counts
	return counts
}
