package snapshot

import (
	"maps"
	"sync"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/watch"
)

// CollectionStats describes a collection at one moment, for metrics and the status page.
type CollectionStats struct {
	Key CollectionKey
	// Unavailable is the reason why consistent lists are forwarded; None if they can be answered. Unlike View.unavailable, it
	// may be Stale or NotProven while there is a state.
	Unavailable reason.Reason
	// Objects is the number of objects in the newest state; 0 if there is none.
	Objects int
	// Bytes is the part of the byte bound that the collection uses.
	Bytes int64
	// Interval has the revisions whose states are known.
	Interval
	// Oldest is the time of the oldest checkpoint, a record of the newest revision at a time; zero if there is no history. At
	// Oldest, the oldest kept state was the newest state, or was still to come.
	Oldest time.Time
	// CurrentAt is the time at which the newest state was last known to be current; zero if there is none.
	CurrentAt time.Time
	// Window is the time for which states are kept ([Limits].History).
	Window time.Duration
	// LastUse is the time of the last request for the collection.
	LastUse time.Time

	// The counts below begin at the start of listproxy, and include earlier collections with the same key, unless there are too
	// many (see countsLocked).

	// Losses counts, by cause, the states that were lost or had to be loaded anew. States that were dropped as idle do not
	// count.
	Losses map[reason.Reason]uint64
	// Watches counts the clients' watches.
	Watches watch.Stats
}

// Stats returns the CollectionStats of each collection, in no particular order.
func (c *Collections) Stats() []CollectionStats {
	var all []CollectionStats
	for _, r := range c.list() {
		all = append(all, r.stats())
	}
	return all
}

// Stored returns the number of bytes that all collections store, and their limit; 0 means no limit.
func (c *Collections) Stored() (bytes, limit int64) {
	return c.shared.budget.used.Load(), c.shared.budget.limit
}

// stats returns the collection's CollectionStats.
func (c *Collection) stats() CollectionStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view.Load()
	s := CollectionStats{
		Key:         c.key,
		Unavailable: c.whyUnlikely(v, time.Now()),
		Interval:    v.Interval,
		Bytes:       c.usedBytes,
		CurrentAt:   v.provenBy.Sent,
		Window:      c.limits.History,
		LastUse:     *c.lastUse.Load(),
		Losses:      c.counts.lossesByCause(),
		Watches:     c.counts.watches.Stats(),
	}
	if v.unavailable == reason.None {
		s.Objects = v.newest.Len()
	}
	if len(c.checkpoints) > 0 {
		s.Oldest = c.checkpoints[0].at
	}
	return s
}

// collectionCounts counts for one key, across all collections that have had it. It is safe for concurrent use.
type collectionCounts struct {
	// watches counts the clients' watches.
	watches watch.Counts

	// mu guards losses, which counts by cause the states that were lost or had to be loaded anew.
	mu     sync.Mutex
	losses map[reason.Reason]uint64
}

// addLoss counts a lost state under a cause.
func (c *collectionCounts) addLoss(cause reason.Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.losses == nil {
		c.losses = map[reason.Reason]uint64{}
	}
	c.losses[cause]++
}

// lossesByCause returns a copy of the counts of losses.
func (c *collectionCounts) lossesByCause() map[reason.Reason]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.losses)
}

// countsLocked returns the counts of a key, and makes them if there are none. To bound the number of counts, it first forgets
// those of keys without a collection if there are 2*maxCollections or more.
func (c *Collections) countsLocked(key CollectionKey) *collectionCounts {
	if counts := c.counts[key]; counts != nil {
		return counts
	}
	if len(c.counts) >= 2*maxCollections {
		maps.DeleteFunc(c.counts, func(counted CollectionKey, _ *collectionCounts) bool { return c.all[counted] == nil })
	}
	counts := &collectionCounts{}
	c.counts[key] = counts
	return counts
}
