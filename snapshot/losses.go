package snapshot

import (
	"errors"
	"maps"
	"net/http"
	"sync"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/watch"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// feedCounts counts what became of all collections with one key. It is safe for concurrent use.
type feedCounts struct {
	mu     sync.Mutex
	losses map[reason.Reason]uint64
	// watches counts the clients' watches of these collections.
	watches watch.Counts
}

// addLoss counts a state that is lost, or must be loaded anew.
func (c *feedCounts) addLoss(cause reason.Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.losses == nil {
		c.losses = map[reason.Reason]uint64{}
	}
	c.losses[cause]++
}

// lossesByCause returns a copy of the counts of losses.
func (c *feedCounts) lossesByCause() map[reason.Reason]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.losses)
}

// lossCause returns the cause by which a loss is counted that an error has brought.
func lossCause(err error) reason.Reason {
	var contradiction wire.InconsistencyError
	var other otherTimelineError
	switch {
	case errors.Is(err, errObject):
		return reason.FirstObject
	case errors.Is(err, errReloadRequested), errors.Is(err, errUnproven):
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
