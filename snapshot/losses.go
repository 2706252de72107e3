package snapshot

import (
	"maps"
	"sync"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/watch"
)

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

// countsLocked returns the counts of a key, and makes them if necessary. If too many keys have counts, it first forgets the
// keys without a collection.
func (c *Collections) countsLocked(key CollectionKey) *collectionCounts {
	if counts := c.counts[key]; counts != nil {
		return counts
	}
	if len(c.counts) >= 2*maxCollections {
		maps.DeleteFunc(c.counts, func(key CollectionKey, _ *collectionCounts) bool { return c.all[key] == nil })
	}
	counts := &collectionCounts{}
	c.counts[key] = counts
	return counts
}
