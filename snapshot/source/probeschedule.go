package source

import "time"

// probeSchedule says when a feed asks the upstream for its current revision (a probe), so that the feed's state stays young.
type probeSchedule struct {
	// pause is the time from one probe to the next.
	pause time.Duration
	// progressAge is the age of the state at which a progress watch is opened (a second, short watch, for its bookmark).
	progressAge time.Duration
}

// newProbeSchedule returns the schedule that keeps a state younger than bound. A spread from 0 to 1 shortens the pause by up
// to a fifth, so that feeds with different spreads do not ask at the same times.
func newProbeSchedule(bound time.Duration, spread float64) probeSchedule {
	longestPause := bound / 5
	pause := longestPause - time.Duration(spread*float64(longestPause/5))
	// The next bookmark of the stream proves as much as a progress watch, costs the upstream nothing, and comes
	// BookmarkEvery after the last probe at the latest. So if the bound leaves time for that bookmark, the feed waits for
	// it, until only two short watches fit before the bound.
	if latestAge := bound - 2*ShortWatch; latestAge > BookmarkEvery+pause {
		return probeSchedule{pause: pause, progressAge: latestAge}
	}
	return probeSchedule{pause: pause, progressAge: bound / 2}
}

// next returns the time at which to send the next probe, if the last one was sent at lastSent, and the state was current at
// currentAt. The next probe is due after the pause, or when the state reaches progressAge, if that is earlier. If the last probe was
// sent after the state had reached progressAge, the next one waits for the pause.
func (s probeSchedule) next(lastSent, currentAt time.Time) time.Time {
	at := lastSent.Add(s.pause)
	if oldAt := currentAt.Add(s.progressAge); lastSent.Before(oldAt) {
		at = earlier(at, oldAt)
	}
	return at
}
