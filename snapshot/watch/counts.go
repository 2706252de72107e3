package watch

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Counts counts the watchers of a collection's broadcasters, their events and their endings. It is safe for concurrent use;
// the zero value is ready for use.
type Counts struct {
	open      atomic.Int64
	delivered atomic.Uint64

	mu    sync.Mutex
	ended map[Ending]uint64
}

// addEnd counts the end of a watcher.
func (c *Counts) addEnd(why Ending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == nil {
		c.ended = map[Ending]uint64{}
	}
	c.ended[why]++
}

// Stats has the values of a [Counts]. They may be of slightly different moments.
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
	return Stats{Open: c.open.Load(), Delivered: c.delivered.Load(), Ended: maps.Clone(c.ended)}
}
