package source

import "time"

// probeSchedule says when a feed asks the upstream for its current revision (a probe), so that the feed's state stays young.
type probeSchedule struct {
	// pause is the time from one probe to the next.
	pause time.Duration
	// progressAge is the age of the state at which a progress watch is opened: a second, short watch, for its bookmark.
	progressAge time.Duration
}

// newProbeSchedule returns the schedule that keeps a state younger than bound. A spread from 0 to 1 shortens the pause by up
// to a fifth, so that feeds with different spreads do not ask at the same times.
func newProbeSchedule(bound time.Duration, spread float64) probeSchedule {
	shorten := func(d time.Duration) time.Duration { return d - time.Duration(spread*float64(d/5)) }
	s := probeSchedule{pause: shorten(bound / 5), progressAge: bound / 2}
	// The next bookmark of the stream proves as much as a progress watch, costs the upstream nothing, and comes
	// BookmarkEvery after the last probe at the latest. So if the bound leaves time for that bookmark, the feed waits for
	// it, until only two short watches fit before the bound.
	if latest := bound - 2*ShortWatch; latest > BookmarkEvery+s.pause {
		s.progressAge = latest
	}
	return s
}

// next returns the time at which to send the next probe. The last probe was sent at sent, and the state was current at
// currentAt. The next probe is due after the pause, or when the state reaches progressAge, if that is earlier. A state that
// had reached progressAge before the last probe was sent waits for the pause.
func (s probeSchedule) next(sent, currentAt time.Time) time.Time {
	at := sent.Add(s.pause)
	if oldAt := currentAt.Add(s.progressAge); sent.Before(oldAt) {
		at = earlier(at, oldAt)
	}
	return at
}
