package watch

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Counts is what became of the watchers of some broadcasters. It is safe for concurrent use; the zero value
// has counted nothing.
type Counts struct {
	open      atomic.Int64
	delivered atomic.Uint64

	mu    sync.Mutex
	ended map[Ending]uint64
}

func (c *Counts) end(why Ending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == nil {
		c.ended = map[Ending]uint64{}
	}
	c.ended[why]++
}

// Stats is what Counts has counted.
type Stats struct {
	// Open is the number of clients that follow now.
	Open int64
	// Delivered is the number of events that were written to clients, each counted for every client.
	Delivered uint64
	// Ended is the number of clients that have ended, by reason.
	Ended map[Ending]uint64
}

// Stats returns what was counted.
func (c *Counts) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{Open: c.open.Load(), Delivered: c.delivered.Load(), Ended: maps.Clone(c.ended)}
}
