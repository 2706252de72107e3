package watch

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Counts counts the watchers of a collection, the events that they delivered, and how they ended. All broadcasters of the
// collection share it. It is safe for concurrent use; the zero value is ready for use.
type Counts struct {
	open      atomic.Int64  // changed when a broadcaster adds or removes a watcher
	delivered atomic.Uint64 // changed by watchers

	mu      sync.Mutex
	endings map[Ending]uint64 // changed by addEnding
}

// addEnding counts the end of a watcher.
func (c *Counts) addEnding(ending Ending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.endings == nil {
		c.endings = map[Ending]uint64{}
	}
	c.endings[ending]++
}

// Stats are the values of [Counts], which may be of slightly different moments.
type Stats struct {
	// Open is the number of open watches.
	Open int64
	// Delivered is the number of events that clients got. An event counts once for each client that got it.
	Delivered uint64
	// Ended is the number of watches that have ended, by reason.
	Ended map[Ending]uint64
}

// Stats returns the counts.
func (c *Counts) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{Open: c.open.Load(), Delivered: c.delivered.Load(), Ended: maps.Clone(c.endings)}
}
