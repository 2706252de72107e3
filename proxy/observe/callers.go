package observe

import (
	"net/http"
	"sync"
	"time"

	"github.com/listproxy/listproxy/telemetry"
	"github.com/listproxy/listproxy/telemetry/statusz"
)

// Callers returns the programs whose lists were forwarded most often.
func (o *Observer) Callers() []statusz.Caller { return o.callers.status() }

// countCaller counts, when an answer begins, the program that sent a list which was forwarded and
// succeeded. Refused lists do not count: they cost the upstream little, and anybody could send them
// under any name.
func (rec *Record) countCaller(code int) {
	why := rec.labels.reason
	if rec.observer == nil || rec.labels.decision != DecisionForward || code != http.StatusOK {
		return
	}
	if rec.isWatch() {
		if !streamsList(rec.request.URL) {
			return
		}
		why = ReasonStreaming
		rec.streams = true
		rec.observer.watches.beginStreaming(rec.resource(code, time.Now())) // it may not end for long
	} else if !OfLists(why) {
		return
	}
	rec.observer.callers.count(rec.request.UserAgent(), why)
}

const (
	// maxCallers is how many programs are remembered.
	maxCallers = 50
	// maxCallerNames is how many User-Agent headers are remembered with what was made of them.
	maxCallerNames = 512
)

// callers counts forwarded lists by the program that sent them, for the most frequent ones, in
// bounded memory: it is the Space-Saving algorithm of Metwally, Agrawal and El Abbadi (2005). A
// program that sent more than a fiftieth of all lists is always there. The zero value is empty and
// ready for use. It is safe for concurrent use.
type callers struct {
	mu    sync.Mutex
	names map[string]string  // what telemetry.UserAgent made of a header, which costs more than to count
	of    map[string]*caller // by name
}

// caller is one program.
type caller struct {
	lists, excess int64
	reasons       map[string]int64
}

// count counts a forwarded list of a program, by its User-Agent header. There must be few
// different reasons.
func (c *callers) count(userAgent, reason string) {
	if len(userAgent) > telemetry.MaxUserAgent+1 { // one more, so that it is seen to be too long
		userAgent = userAgent[:telemetry.MaxUserAgent+1]
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.ofLocked(c.nameLocked(userAgent))
	found.lists++
	found.reasons[reason]++
}

func (c *callers) nameLocked(userAgent string) string {
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
func (c *callers) ofLocked(name string) *caller {
	if found, ok := c.of[name]; ok {
		return found
	}
	if c.of == nil {
		c.of = map[string]*caller{}
	}
	fresh := &caller{reasons: map[string]int64{}}
	if len(c.of) >= maxCallers {
		least := ""
		for name, candidate := range c.of {
			if least == "" || candidate.lists < c.of[least].lists {
				least = name
			}
		}
		fresh.lists = c.of[least].lists
		fresh.excess = fresh.lists
		delete(c.of, least)
	}
	c.of[name] = fresh
	return fresh
}

// status returns the programs, in no order.
func (c *callers) status() []statusz.Caller {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]statusz.Caller, 0, len(c.of))
	for name, found := range c.of {
		all = append(all, statusz.Caller{UserAgent: name, Lists: found.lists, Excess: found.excess, Reason: mostFrequent(found.reasons)})
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
