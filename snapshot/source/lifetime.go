package source

import "time"

// lifetime is the time for which the upstream was asked to keep a watch open.
type lifetime struct {
	// sentAt is the time at which the request was sent, and answeredAt the time at which the answer's header came. The
	// upstream's timeout begins between the two: a request may first wait in a queue of the upstream.
	sentAt, answeredAt time.Time
	timeout            time.Duration
}

// maxEarlyEnd is the time by which the upstream's clock may end a watch before its timeout by this machine's clock.
const maxEarlyEnd = time.Second

// Ended returns the latest time at which a watch can have ended whose end was seen now. That is before now if this process
// or the machine stood still (see [clock.Age]). inOrder reports whether the watch may have ended at its timeout.
func (l lifetime) Ended(now time.Time) (latest time.Time, inOrder bool) {
	latest = l.answeredAt.Add(l.timeout)
	if now.Before(latest) && now.Round(0).Before(latest.Round(0)) { // by the monotonic and by the wall clock
		latest = now
	}
	return latest, now.Sub(l.sentAt) >= l.timeout-maxEarlyEnd
}
