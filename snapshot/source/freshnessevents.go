package source

import "time"

// With the methods in this file, a feed records in its [Freshness] what happens to probes, to the stream and to progress
// watches. A method has the name of the event. (A probe is a request for the upstream's current revision. A progress watch is a
// second, short watch, opened only for its bookmark.)

// ProbeAwaited records that a request for the newest state waits for the probe with a number, or for a later probe.
func (f *Freshness) ProbeAwaited(now time.Time, number uint64) {
	if f.raiseAwaitedProbe(now, number) {
		f.repeatProgressUntil = now.Add(repeatProgressFor)
	}
}

// raiseAwaitedProbe raises awaitedProbe to a number. It returns false, and changes nothing, if awaitedProbe is as high already.
func (f *Freshness) raiseAwaitedProbe(now time.Time, number uint64) bool {
	if number <= f.awaitedProbe {
		return false
	}
	f.awaitedProbe = number
	f.awaitedAt = now
	return true
}

// probePause is the shortest time between a probe and a requested one. For example, a list waits for revision 50, but the
// upstream itself is only at 49: without a pause, one probe would follow another until the upstream has reached 50. probePause
// is also the pause after a probe that failed.
const probePause = 500 * time.Millisecond

// ProbeRequested records that the feed wants a probe soon, for example because a request waits for a revision. The probe is due
// probePause after the last one.
func (f *Freshness) ProbeRequested() { f.probeRequested = true }

// ProbeSent records that a probe is sent. If a probe was requested, this one counts as awaited.
func (f *Freshness) ProbeSent(sent Probe) {
	if f.probeRequested {
		f.raiseAwaitedProbe(sent.Sent, sent.Number)
	}
	f.lastProbe = sent
	f.probeInFlight = true
	f.probeRequested = false
}

// ProbeAnswered records the revision with which the upstream answered the probe. The caller must call StateReached afterwards,
// since the state may have reached this revision already.
func (f *Freshness) ProbeAnswered(now time.Time, revision uint64) {
	f.probeInFlight = false
	answer := probeAnswer{probe: f.lastProbe, revision: revision, at: now}
	// The new answer replaces the last pending one if both have the same revision, or if there is no room: the later probe
	// proves more. The new answer takes over the time of the replaced one, since the progress watch is due progressDelay after
	// that time, and must not be put off.
	if n := len(f.pending); n > 0 {
		last := f.pending[n-1]
		if last.revision == revision || n == maxPending {
			answer.at = last.at
			f.pending = f.pending[:n-1]
		}
	}
	f.pending = append(f.pending, answer)
}

// ProbeRefused records that the upstream has refused a probe, and begins a pause.
func (f *Freshness) ProbeRefused(now time.Time, pause time.Duration) {
	f.probeInFlight = false
	f.probePauseEnd = later(f.probePauseEnd, now.Add(pause))
}

// EndProbePause ends the pause after a probe that was refused or got no answer.
func (f *Freshness) EndProbePause(now time.Time) { f.probePauseEnd = earlier(f.probePauseEnd, now) }

// ProbeFailed records that a probe got no answer, and begins a pause of probePause.
func (f *Freshness) ProbeFailed(now time.Time) {
	f.probeInFlight = false
	f.probeFailedAt = now
	f.probePauseEnd = later(f.probePauseEnd, now.Add(probePause))
}

// StreamOpened records that another stream is read now.
func (f *Freshness) StreamOpened(now time.Time) { f.streamState = streamState{heardAt: now} }

// StreamSentEvent records that the stream has sent something.
func (f *Freshness) StreamSentEvent(at time.Time) { f.heardAt = at }

// StreamSentBookmark records that the stream has sent a bookmark. If the upstream seemed to send none, the
// missingBookmarksPause ends.
func (f *Freshness) StreamSentBookmark(now time.Time) {
	if f.BookmarksMissing() {
		f.missingBookmarks = 0
		f.progressPauseEnd = now
	}
}

// StateReached records that the state has reached a revision. It removes the pending answers up to this revision, and returns
// the probe of the last of them, which has now proven the state. It returns the zero Probe if there are no such answers.
func (f *Freshness) StateReached(revision uint64) (proof Probe) {
	for len(f.pending) > 0 && f.pending[0].revision <= revision {
		proof = f.pending[0].probe
		f.pending = f.pending[1:]
	}
	return proof
}

// ProgressOpened records that a progress watch is opened.
func (f *Freshness) ProgressOpened() { f.progressOpen = true }

// ProgressSentBookmark records that the progress watch has ended with a bookmark. wasAhead reports whether the bookmark was
// at a higher revision than the state, and counts: none counts while the timeline is uncertain.
func (f *Freshness) ProgressSentBookmark(wasAhead bool) {
	f.progressOpen = false
	f.progressWasAhead = wasAhead
	f.progressPause = 0
	f.missingBookmarks = 0
}

// minProgressPause is the shortest pause after a progress watch that failed. The pause doubles with each failure in a row: 1,
// 2, 4 s and so on, up to RefusedProbePause (about 8 s with a bound of 90 s).
const minProgressPause = time.Second

// ProgressFailed records that the progress watch has ended without a bookmark, and begins a pause. retryAfter is the shortest
// pause for which the upstream asked, or 0.
func (f *Freshness) ProgressFailed(now time.Time, retryAfter time.Duration) {
	f.progressOpen = false
	f.progressWasAhead = false
	f.progressPause = max(minProgressPause, min(2*f.progressPause, f.RefusedProbePause()))
	f.progressPauseEnd = now.Add(max(retryAfter, f.progressPause))
}

// ProgressTimedOut records that the progress watch has reached its timeout without a bookmark.
func (f *Freshness) ProgressTimedOut(now time.Time) {
	const noRetryAfter = 0
	f.ProgressFailed(now, noRetryAfter)
	f.missingBookmarks++
	if f.BookmarksMissing() {
		f.progressPauseEnd = now.Add(missingBookmarksPause)
	}
}
