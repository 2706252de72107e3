package source

import "time"

// lifetime is the time for which the upstream was asked to keep a watch open. The upstream's timeout begins between sentAt
// and answeredAt: a request may first wait in a queue of the upstream.
type lifetime struct {
	// sentAt is the time at which the request was sent, and answeredAt the time at which the answer's header came.
	sentAt, answeredAt time.Time
	timeout            time.Duration
}

// maxEarlyEnd is the time by which a watch may seem to end too early because the upstream's clock runs faster than this
// machine's.
const maxEarlyEnd = time.Second

// LatestEnd returns the latest time at which a watch can have ended whose end is noticed now: now, or the end of its timeout
// if that has passed, since this process or the machine may have stood still meanwhile.
func (l lifetime) LatestEnd(now time.Time) time.Time {
	timedOut := l.answeredAt.Add(l.timeout)
	// While the machine sleeps only the wall clock goes on (see clock.Age), and the wall clock may be set back. So the
	// timeout has passed if either clock says so. Round(0) strips the reading of the monotonic clock.
	if now.Before(timedOut) && now.Round(0).Before(timedOut.Round(0)) {
		return now
	}
	return timedOut
}

// reachedTimeout reports whether a watch whose end is noticed now may have been open for its timeout.
func (l lifetime) reachedTimeout(now time.Time) bool {
	return now.Sub(l.sentAt) >= l.timeout-maxEarlyEnd
}
