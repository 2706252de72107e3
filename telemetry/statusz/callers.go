package statusz

import (
	"sync"

	"github.com/listproxy/listproxy/telemetry"
)

const (
	// maxCallers is how many programs are remembered.
	maxCallers = 50
	// maxCallerNames is how many User-Agent headers are remembered with what was made of them.
	maxCallerNames = 512
)

// Callers counts forwarded lists by the program that sent them, for the most frequent ones, in
// bounded memory: it is the Space-Saving algorithm of Metwally, Agrawal and El Abbadi (2005). A
// program that sent more than a fiftieth of all lists is always there. The zero value is empty and
// ready for use. It is safe for concurrent use.
type Callers struct {
	mu      sync.Mutex
	names   map[string]string // what telemetry.UserAgent made of a header, which costs more than to count
	callers map[string]*caller
}

// caller is one program.
type caller struct {
	lists, excess int64
	reasons       map[string]int64
}

// Count counts a forwarded list of a program, by its User-Agent header. There must be few
// different reasons.
func (c *Callers) Count(userAgent, reason string) {
	if len(userAgent) > telemetry.MaxUserAgent+1 { // one more, so that it is seen to be too long
		userAgent = userAgent[:telemetry.MaxUserAgent+1]
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.ofLocked(c.nameLocked(userAgent))
	found.lists++
	found.reasons[reason]++
}

func (c *Callers) nameLocked(userAgent string) string {
	name, ok := c.names[userAgent]
	if ok {
		return name
	}
	if c.names == nil || len(c.names) >= maxCallerNames {
		c.names = map[string]string{}
	}
	name = telemetry.UserAgent(userAgent)
	c.names[userAgent] = name
	return name
}

// ofLocked returns the caller of a name. If there is no room, a new one replaces the one with the
// lowest count, and takes over that count.
func (c *Callers) ofLocked(name string) *caller {
	if found, ok := c.callers[name]; ok {
		return found
	}
	if c.callers == nil {
		c.callers = map[string]*caller{}
	}
	fresh := &caller{reasons: map[string]int64{}}
	if len(c.callers) >= maxCallers {
		least := ""
		for name, candidate := range c.callers {
			if least == "" || candidate.lists < c.callers[least].lists {
				least = name
			}
		}
		fresh.lists = c.callers[least].lists
		fresh.excess = fresh.lists
		delete(c.callers, least)
	}
	c.callers[name] = fresh
	return fresh
}

// Status returns the programs, in no order.
func (c *Callers) Status() []Caller {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]Caller, 0, len(c.callers))
	for name, found := range c.callers {
		all = append(all, Caller{UserAgent: name, Lists: found.lists, Excess: found.excess, Reason: mostFrequent(found.reasons)})
	}
	return all
}

// mostFrequent is the key with the highest count, the first by name of several.
func mostFrequent(counts map[string]int64) string {
	best := ""
	for key, n := range counts {
		if best == "" || n > counts[best] || n == counts[best] && key < best {
			best = key
		}
	}
	return best
}
