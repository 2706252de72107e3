package source

import "time"

// lifetime is the time for which the upstream was asked to keep a watch.
type lifetime struct {
	// asked is the time at which the request was sent, answered when its header came. The upstream begins to count
	// between the two: a request may wait in a queue of the upstream before that.
	asked, answered time.Time
	timeout         time.Duration
}

// Ended reports whether a watch that has ended may have ended at its timeout (inOrder), and at what
// time at the latest. That can be earlier than now, if this process or the machine stood still
// (which the wall clock shows, see [clock.Age]).
func (l lifetime) Ended(now time.Time) (at time.Time, inOrder bool) {
	const early = time.Second // by how much the upstream's clock may end it earlier than this one
	if at = l.answered.Add(l.timeout); now.Before(at) && now.Round(0).Before(at.Round(0)) {
		at = now
	}
	return at, now.Sub(l.asked) >= l.timeout-early
}
