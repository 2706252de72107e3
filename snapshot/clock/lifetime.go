package clock

import "time"

// Lifetime is the time for which the upstream was asked to keep a watch.
type Lifetime struct {
	// Asked is the time at which the request was sent, Answered when its header came. The upstream begins to count
	// between the two: a request may wait in a queue of the upstream before that.
	Asked, Answered time.Time
	Timeout         time.Duration
}

// Ended reports whether a watch that has ended may have ended at its timeout (inOrder), and at what
// time at the latest. That can be earlier than now, if this process or the machine stood still
// (which the wall clock shows, see [Age]).
func (l Lifetime) Ended(now time.Time) (at time.Time, inOrder bool) {
	const early = time.Second // by how much the upstream's clock may end it earlier than this one
	if at = l.Answered.Add(l.Timeout); now.Before(at) && now.Round(0).Before(at.Round(0)) {
		at = now
	}
	return at, now.Sub(l.Asked) >= l.Timeout-early
}
