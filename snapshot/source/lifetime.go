package source

import "time"

// lifetime is the time for which the upstream was asked to keep a watch.
type lifetime struct {
	// asked is the time at which the request was sent, answered the time at which the answer's header came. The upstream
	// begins to count in between: a request may first wait in its queue.
	asked, answered time.Time
	timeout         time.Duration
}

// Ended reports whether a watch that has ended may have ended at its timeout (inOrder), and returns the latest time at
// which it can have ended. That is before now if this process or the machine stood still (see [clock.Age]).
func (l lifetime) Ended(now time.Time) (at time.Time, inOrder bool) {
	const early = time.Second // the most by which the upstream's clock may end it earlier than this one
	if at = l.answered.Add(l.timeout); now.Before(at) && now.Round(0).Before(at.Round(0)) {
		at = now
	}
	return at, now.Sub(l.asked) >= l.timeout-early
}
