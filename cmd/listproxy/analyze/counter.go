package analyze

import (
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// counterKey is what the requests of one counter have in common.
type counterKey struct {
	Source
	Prediction
}

// counter counts the audit events of the requests with one key. A list has one event. A watch has an event at its start, an
// event at its end, or both: the audit policy decides.
type counter struct {
	opened    int64         // events at the start of a watch
	completed int64         // all other events
	duration  time.Duration // the total duration of lists
}

// requests returns the number of requests:
//
//	requests of the key                    opened   completed
//	lists                                  0        all
//	watches, with both events              all      those that have ended
//	watches, with the event at the start   all      0
//	watches, with the event at the end     0        those that have ended
//
// So the larger number has all requests.
func (c *counter) requests() int64 { return max(c.opened, c.completed) }

// count counts an event whose request has the prediction p. It also updates first and last.
func (a *analyzer) count(e *auditEvent, p Prediction) {
	key := counterKey{Source: newSource(e), Prediction: p}
	c := a.counters[key]
	if c == nil {
		c = &counter{}
		a.counters[key] = c
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
		c.duration += max(0, e.StageTime.Sub(received)) // 0 for an event without StageTime
	}
	if a.first.IsZero() || received.Before(a.first) {
		a.first = received
	}
	if received.After(a.last) {
		a.last = received
	}
}
