package source

import "time"

// lifetime says how long the upstream was asked to keep a watch open. The upstream counts the timeout from some time between
// sentAt and answeredAt, which listproxy does not know: a request may first wait in a queue there.
type lifetime struct {
	// sentAt is the time at which the request was sent.
	sentAt time.Time
	// answeredAt is the time at which the answer's header came.
	answeredAt time.Time
	// timeout is the time for which the request asked.
	timeout time.Duration
}

// maxEarlyEnd is how long before its timeout a watch may seem to end, because the upstream's clock runs faster than
// listproxy's.
const maxEarlyEnd = time.Second

// LatestEnd returns the latest time at which the watch can have ended, if its end is noticed now. Usually this is now. But a
// process or a machine that stood still notices the end late. So if the timeout has passed, LatestEnd returns the time at which
// it passed. For example, a watch with a timeout of 5 minutes was answered at 12:00, and the machine was suspended until 13:00.
// The latest end is 12:05.
func (l lifetime) LatestEnd(now time.Time) time.Time {
	timedOut := l.answeredAt.Add(l.timeout)
	// The timeout has passed if either clock says so: the monotonic clock stands still while the machine sleeps (see
	// clock.Age), and the wall clock may be set back. Round(0) strips the monotonic reading.
	if now.Before(timedOut) && now.Round(0).Before(timedOut.Round(0)) {
		return now
	}
	return timedOut
}

// reachedTimeout reports whether the watch may have ended at its timeout, if its end is noticed now.
func (l lifetime) reachedTimeout(now time.Time) bool {
	return now.Sub(l.sentAt) >= l.timeout-maxEarlyEnd
}
