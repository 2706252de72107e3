package analyze

import (
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

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

// counter counts the audit events of the requests with one key. A list has one event. A watch has an event at its start, an
// event at its end, or both: the audit policy decides.
type counter struct {
	opened    int64         // events at the start of a watch
	completed int64         // all other events
	duration  time.Duration // the total duration of lists
}

// requests returns the number of requests. It is not the sum of the events, since a watch with two events is in opened and in
// completed. If the audit policy drops one of the two events, the other number still has all watches.
func (c *counter) requests() int64 { return max(c.opened, c.completed) }

// tally counts requests. Its size grows with the number of clients, resources and predictions.
type tally struct {
	counters    map[counterKey]*counter
	first, last time.Time // when the first and the last request were received; zero if no event has this time
}

// add counts an event whose request has the prediction p.
func (t *tally) add(e *auditEvent, p prediction) {
	key := counterKey{
		rowKey: rowKey{
			client:   newClient(e.UserAgent, e.User.Username),
			resource: resourceName(e.ObjectRef.Group, e.ObjectRef.Resource),
		},
		prediction: p,
	}
	c := t.counters[key]
	if c == nil {
		c = &counter{}
		t.counters[key] = c
	}
	if e.Verb == verbWatch && e.Stage == auditv1.StageResponseStarted {
		c.opened++
	} else {
		c.completed++
	}
	received, ok := e.receivedAt()
	if !ok {
		return
	}
	if e.Verb == verbList {
		c.duration += max(0, e.StageTime.Sub(received)) // an event without StageTime would give a negative duration
	}
	if t.first.IsZero() || received.Before(t.first) {
		t.first = received
	}
	if received.After(t.last) {
		t.last = received
	}
}
