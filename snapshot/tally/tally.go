// Package tally counts how often the states of collections are loaded and lost, and why.
package tally

import (
	"maps"
	"sync"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/watch"
)

// Stats counts what happened to the states of a resource in one representation, in all its
// collections since listproxy started. (If there are too many resources, those without a
// collection are forgotten.)
type Stats struct {
	// Loads are the states that were loaded.
	Loads uint64
	// Resumes are watches that broke and were opened again where they had come to.
	Resumes uint64
	// Losses counts how often a state was lost, or had to be loaded anew, by cause; except those of
	// collections that nobody asked for any more.
	Losses map[reason.Reason]uint64
}

// Counts counts for Stats. It is safe for concurrent use.
type Counts struct {
	mu    sync.Mutex
	stats Stats
	// Watches are the clients that have followed the collections.
	Watches watch.Counts
	// LostAt is the time at which the last state was lost, if none was loaded since; else zero.
	lostAt time.Time
}

// Stats returns what was counted.
func (c *Counts) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	stats := c.stats
	stats.Losses = maps.Clone(c.stats.Losses)
	return stats
}

// Life counts the states of one collection, which are loaded and lost in turn, until the collection is
// dropped: for a cause, or because nobody asks for it. It may be dropped while its feed finds out that the
// state is lost: only the first of both is counted.
type Life struct {
	// Counts has what counts for all collections of the resource in the representation.
	Counts *Counts
	// Counts.mu guards these. live: there is a state. dropped: there will be none, even if the feed still
	// reports one.
	live, dropped bool
}

// Loaded notes that a state was loaded.
func (l *Life) Loaded() {
	l.Counts.mu.Lock()
	defer l.Counts.mu.Unlock()
	if !l.dropped {
		l.live, l.Counts.lostAt = true, time.Time{}
		l.Counts.stats.Loads++
	}
}

// Resumed notes that a watch that broke was opened again where it had come to.
func (l *Life) Resumed() {
	l.Counts.mu.Lock()
	defer l.Counts.mu.Unlock()
	l.Counts.stats.Resumes++
}

// Lost notes that the state, if there is one, is lost, or must be loaded anew.
func (l *Life) Lost(why reason.Reason, now time.Time) {
	l.Counts.mu.Lock()
	defer l.Counts.mu.Unlock()
	l.lostLocked(why, now)
}

// Drop notes that the collection is dropped for a cause, and its state is lost with it.
func (l *Life) Drop(why reason.Reason, now time.Time) {
	l.Counts.mu.Lock()
	defer l.Counts.mu.Unlock()
	l.lostLocked(why, now)
	l.dropped = true
}

func (l *Life) lostLocked(why reason.Reason, now time.Time) {
	if !l.live {
		return
	}
	l.live = false
	if l.Counts.stats.Losses == nil {
		l.Counts.stats.Losses = map[reason.Reason]uint64{}
	}
	l.Counts.stats.Losses[why]++
	l.Counts.lostAt = now
}

// LostAt is the time at which the last state was lost, if none was loaded since; else zero.
func (l *Life) LostAt() time.Time {
	l.Counts.mu.Lock()
	defer l.Counts.mu.Unlock()
	return l.Counts.lostAt
}

// DropIdle notes that the collection is dropped because nobody asks for it, which is no loss.
func (l *Life) DropIdle() {
	l.Counts.mu.Lock()
	defer l.Counts.mu.Unlock()
	l.live, l.dropped = false, true
	l.Counts.lostAt = time.Time{}
}
