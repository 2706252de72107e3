package source

import "time"

// probeSchedule says when a feed sends a probe, so that the feed's state stays younger than a bound. (A probe is a request for
// the upstream's current revision. A state that has reached this revision is as new as the probe.) For example, with a bound of
// 90 s:
//
//	0 s            the state is as new as the last probe
//	18 s           pause: the next probe is sent
//	at most 83 s   the stream's next bookmark reaches the answer, so the state is at least as new as that probe
//	84 s           progressAge: without such a bookmark, a progress watch is opened
//	90 s           the bound
type probeSchedule struct {
	// pause is the time from one probe to the next.
	pause time.Duration
	// progressAge is the age of the state at which a progress watch is opened: a second, short watch, only for its bookmark.
	progressAge time.Duration
}

// newProbeSchedule returns the schedule that keeps a state younger than bound. The pause is a fifth of the bound. A spread of 1
// makes the pause a fifth shorter, and a spread of 0 leaves it as it is. So feeds with different spreads do not send their
// probes at the same times.
func newProbeSchedule(bound time.Duration, spread float64) probeSchedule {
	longestPause := bound / 5
	pause := longestPause - time.Duration(spread*float64(longestPause/5))
	// A bookmark of the stream proves as much as a progress watch, and costs the upstream nothing. After a probe, the stream's
	// next bookmark comes within BookmarkEvery, 65 s. If the bound leaves time for this bookmark, the feed opens a progress
	// watch only when two short watches, 6 s, are left of the bound. With a bound of 90 s, the bookmark comes within 18 s + 65
	// s, and 6 s are left after 84 s.
	if latestAge := bound - 2*ShortWatch; latestAge > BookmarkEvery+pause {
		return probeSchedule{pause: pause, progressAge: latestAge}
	}
	return probeSchedule{pause: pause, progressAge: bound / 2}
}

// RefusedProbePause returns the shortest pause after a probe that the upstream refused, for example with 429. It is half the
// time between two scheduled probes: about 8 s with a bound of 90 s. The pauses after progress watches that failed
// double up to this pause, too.
func (f *Freshness) RefusedProbePause() time.Duration { return f.schedule.pause / 2 }

// next returns the time at which to send the next probe. lastSent is the time at which the last one was sent, and currentAt is
// the time at which the state was last known to be current.
//
// A probe is due after the pause. It is due earlier if the state reaches progressAge before the pause ends. The progress
// watch, which is opened at progressAge, proves the state as of the last probe, so that probe should be new. If the last
// probe was sent after the state reached progressAge, it is new enough.
func (s probeSchedule) next(lastSent, currentAt time.Time) time.Time {
	at := lastSent.Add(s.pause)
	if progressAt := currentAt.Add(s.progressAge); lastSent.Before(progressAt) {
		at = earlier(at, progressAt)
	}
	return at
}
