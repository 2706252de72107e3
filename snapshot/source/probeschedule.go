package source

import "time"

// probeSchedule says how often a feed asks the upstream for its current revision.
type probeSchedule struct {
	// pause is the time from one probe to the next.
	pause time.Duration
	// progressAge is the age of the state at which a progress watch is opened.
	progressAge time.Duration
}

// newProbeSchedule returns the schedule that keeps a state younger than bound. spread, from 0 to 1, shortens the pause by
// up to a fifth, so that feeds with different values do not ask at the same times.
func newProbeSchedule(bound time.Duration, spread float64) probeSchedule {
	shorten := func(d time.Duration) time.Duration { return d - time.Duration(spread*float64(d/5)) }
	s := probeSchedule{pause: shorten(bound / 5), progressAge: bound / 2}
	// A progress watch costs the upstream something. The stream's own bookmark costs nothing, proves that the state has
	// everything from before the last probe, and comes BookmarkEvery after that probe at the latest. So if the bound leaves
	// time for that bookmark, it is waited for until there is just time for two short watches.
	if latest := bound - 2*ShortWatch; latest > BookmarkEvery+s.pause {
		s.progressAge = latest
	}
	return s
}

// next returns the time at which to send the next probe: after the pause, or when the state becomes old, if that is before.
// The last probe was sent at sent, and the state was current at currentAt.
func (s probeSchedule) next(sent, currentAt time.Time) time.Time {
	at := sent.Add(s.pause)
	if oldAt := currentAt.Add(s.progressAge); sent.Before(oldAt) {
		at = earlier(at, oldAt)
	}
	return at
}
