package analyze

import "time"

// maxCounters is the largest number of counters of a tally. Requests that would need another counter count as requests
// of otherClients.
const maxCounters = 50_000

// otherClients stands for all clients beyond maxCounters.
var otherClients = client{userAgent: "(others)", user: "(others)"}

// rowKey is what the requests of one row of the report have in common.
type rowKey struct {
	client   client
	resource string
}

// counterKey is what the requests of one counter have in common.
type counterKey struct {
	rowKey
	prediction prediction
}

// counter has the number of requests with the same key, and their total duration.
type counter struct {
	// starts and ends are the numbers of events at the start and at the end of requests. For a watch, a log has both
	// events or one of them, as the audit policy says. For a list it has only the event at the end.
	starts, ends int64
	duration     time.Duration
}

// requests returns the number of requests.
func (c *counter) requests() int64 { return max(c.starts, c.ends) }

// tally counts requests. Its memory is bounded.
type tally struct {
	counters    map[counterKey]*counter
	first, last time.Time // when the first and the last request were received; zero if no event says when
}

func newTally() *tally { return &tally{counters: map[counterKey]*counter{}} }

// add counts an event at the start of a request, or at its end. received is the time at which the request was received,
// or zero if the log does not have it.
func (t *tally) add(key counterKey, atStart bool, received time.Time, duration time.Duration) {
	if t.counters[key] == nil && len(t.counters) >= maxCounters {
		key.rowKey = rowKey{client: otherClients, resource: "?"}
	}
	c := t.counters[key]
	if c == nil {
		c = &counter{}
		t.counters[key] = c
	}
	if atStart {
		c.starts++
	} else {
		c.ends++
	}
	c.duration += duration
	if received.IsZero() {
		return
	}
	if t.first.IsZero() || received.Before(t.first) {
		t.first = received
	}
	if received.After(t.last) {
		t.last = received
	}
}
