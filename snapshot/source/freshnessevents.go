package source

import "time"

// With the methods in this file, a feed records in its [Freshness] what happens to probes, to the stream and to progress watches.
// A method has the name of the event.

// ProbeAwaited records that a request for the newest state waits for the probe with a number, or for a later probe.
func (f *Freshness) ProbeAwaited(now time.Time, number uint64) {
	if f.raiseAwaitedProbe(now, number) {
		f.repeatProgressUntil = now.Add(repeatProgressFor)
	}
}

// raiseAwaitedProbe raises awaitedProbe to a higher number. It reports whether the number is higher.
func (f *Freshness) raiseAwaitedProbe(now time.Time, number uint64) bool {
	if number <= f.awaitedProbe {
		return false
	}
	f.awaitedProbe = number
	f.awaitedAt = now
	return true
}

// probePause is the shortest time from a probe to the next one that the feed requests, since the upstream itself may not have
// reached the revision yet for which a request waits. It is also the pause after a probe that got no answer.
const probePause = 500 * time.Millisecond

// ProbeRequested records that a probe is needed, for example because a request waits for a revision. The probe is due probePause
// after the last one.
func (f *Freshness) ProbeRequested() { f.probeRequested = true }

// ProbeSent records that a probe is sent. A probe that was requested counts as awaited.
func (f *Freshness) ProbeSent(sent Probe) {
	if f.probeRequested {
		f.raiseAwaitedProbe(sent.Sent, sent.Number)
	}
	f.lastProbe = sent
	f.probeInFlight = true
	f.probeRequested = false
}

// ProbeAnswered records the revision with which the upstream answered the probe. StateReached must be called afterwards.
func (f *Freshness) ProbeAnswered(now time.Time, revision uint64) {
	f.probeInFlight = false
	answer := probeAnswer{probe: f.lastProbe, revision: revision, at: now}
	// The new answer replaces the last pending one if both have the same revision, or if there is no room: the later probe
	// proves more. The answer that is replaced hands on its time, since a progress watch has been due since then.
	if n := len(f.pending); n > 0 {
		last := f.pending[n-1]
		if last.revision == revision || n == maxPending {
			answer.at = last.at
			f.pending = f.pending[:n-1]
		}
	}
	f.pending = append(f.pending, answer)
}

// RefusalPause returns the shortest pause after a probe that was refused.
func (f *Freshness) RefusalPause() time.Duration { return f.schedule.pause / 2 }

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

// StreamSentBookmark records that the stream has sent a bookmark. If the upstream seemed to send none, the missingBookmarksPause
// ends.
func (f *Freshness) StreamSentBookmark(now time.Time) {
	if f.BookmarksMissing() {
		f.missingBookmarks = 0
		f.progressPauseEnd = now
	}
}

// StateReached records the revision that the state has reached, and removes the pending answers up to this revision. It returns
// the probe of the last of these answers, which proves the state; zero if there are none.
func (f *Freshness) StateReached(to uint64) (proof Probe) {
	for len(f.pending) > 0 && f.pending[0].revision <= to {
		proof = f.pending[0].probe
		f.pending = f.pending[1:]
	}
	return proof
}

// ProgressOpened records that a progress watch is opened.
func (f *Freshness) ProgressOpened() { f.progressOpen = true }

// ProgressSentBookmark records that the progress watch has ended with a bookmark. helped reports whether the bookmark proved
// something that the stream had not.
func (f *Freshness) ProgressSentBookmark(helped bool) {
	f.progressOpen = false
	f.progressHelped = helped
	f.progressPause = 0
	f.missingBookmarks = 0
}

// minProgressPause is the shortest pause after a progress watch that failed. The pause doubles with each failure in a row, up to
// RefusalPause.
const minProgressPause = time.Second

// ProgressFailed records that the progress watch has ended without a bookmark, and begins a pause of at least retryAfter.
func (f *Freshness) ProgressFailed(now time.Time, retryAfter time.Duration) {
	f.progressOpen = false
	f.progressHelped = false
	f.progressPause = max(minProgressPause, min(2*f.progressPause, f.RefusalPause()))
	f.progressPauseEnd = now.Add(max(retryAfter, f.progressPause))
}

// ProgressTimedOut records that the progress watch has reached its timeout without a bookmark.
func (f *Freshness) ProgressTimedOut(now time.Time) {
	f.ProgressFailed(now, 0)
	f.missingBookmarks++
	if f.BookmarksMissing() {
		f.progressPauseEnd = now.Add(missingBookmarksPause)
	}
}
