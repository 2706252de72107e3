package source

import "time"

// probeSchedule says how often a feed asks the upstream for its current revision.
type probeSchedule struct {
	// every is the time from one probe to the next. everyIfOld is that time if the state was older than progress when the
	// first of the two probes was sent.
	every, everyIfOld time.Duration
	// progress is the age of the state at which a progress watch is opened.
	progress time.Duration
}

// newProbeSchedule returns the schedule that keeps a state younger than bound. variety, from 0 to 1, shifts the times, so
// that feeds with different values do not ask at the same times.
func newProbeSchedule(bound time.Duration, variety float64) probeSchedule {
	vary := func(d time.Duration) time.Duration { return d - time.Duration(variety*float64(d/5)) }
	s := probeSchedule{every: vary(bound / 5), everyIfOld: vary(bound / 10), progress: bound / 2}
	// The stream's own bookmark proves that the state has everything from before the last probe, and comes every
	// BookmarkEvery at the latest. If the bound leaves time for a probe and that bookmark, a progress watch is opened only
	// when the bound leaves no more time than two short watches take.
	if patient := bound - 2*ShortWatch; patient > BookmarkEvery+s.every {
		s.progress = patient
	}
	return s
}

// next returns the time at which to send the next probe. The last probe was sent at sent, and the state was current at
// currentAt.
func (s probeSchedule) next(sent, currentAt time.Time) time.Time {
	old := currentAt.Add(s.progress)
	if !sent.Before(old) {
		return sent.Add(s.everyIfOld)
	}
	return earlier(sent.Add(s.every), old)
}
