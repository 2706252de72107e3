package source

import "time"

// probeSchedule says how often a feed asks the upstream for its current revision.
type probeSchedule struct {
	// every is the time from one probe to the next; everyIfOld is that time if the state was already too old when the
	// first of the two was sent.
	every, everyIfOld time.Duration
	// progress is the age of the state at which a progress watch is opened.
	progress time.Duration
}

// newProbeSchedule returns the probeSchedule that keeps a state younger than bound. variety, from 0 to 1, shifts
// the times: feeds with different values soon ask at different times.
func newProbeSchedule(bound time.Duration, variety float64) probeSchedule {
	vary := func(d time.Duration) time.Duration { return d - time.Duration(variety*float64(d/5)) }
	s := probeSchedule{every: vary(bound / 5), everyIfOld: vary(bound / 10), progress: bound / 2}
	// The stream's own bookmark, which comes every BookmarkEvery at the latest, proves that the state has
	// everything from before the last probe. Where the bound leaves time for that and for a probe, it is waited
	// for, and a progress watch is opened only two short watches before the bound.
	if patient := bound - 2*ShortWatch; patient > BookmarkEvery+s.every {
		s.progress = patient
	}
	return s
}

// next returns the time at which to send the next probe, if the last one was sent at that time and the state was
// current at currentAt.
func (s probeSchedule) next(sent, currentAt time.Time) time.Time {
	old := currentAt.Add(s.progress)
	if !sent.Before(old) {
		return sent.Add(s.everyIfOld)
	}
	return earlier(sent.Add(s.every), old)
}
