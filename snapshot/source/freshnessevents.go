package source

import "time"

// With the methods in this file, a feed records in its [Freshness] what happens: to probes, the stream and progress watches.

// ProbeAwaited records that a request for the newest state waits for the probe with this number, or for a later probe.
func (f *Freshness) ProbeAwaited(now time.Time, number uint64) {
	if f.raiseAwaited(now, number) {
		f.keepProgressUntil = now.Add(progressKept)
	}
}

// raiseAwaited raises awaitedProbe to a higher number. It reports whether the number is higher.
func (f *Freshness) raiseAwaited(now time.Time, number uint64) bool {
	if number <= f.awaitedProbe {
		return false
	}
	f.awaitedProbe = number
	f.awaitedAt = now
	return true
}

// probePause is the shortest time between two probes that the feed requests: the upstream itself may not have reached the
// revision yet for which a request waits. It is also the shortest pause after a probe that got no answer.
const probePause = 500 * time.Millisecond

// ProbeRequested records that a probe is needed, for example because a request waits for a revision. The probe is due probePause
// after the last one.
func (f *Freshness) ProbeRequested() { f.probeRequested = true }

// ProbeSent records that a probe is sent. A probe that was requested counts as awaited.
func (f *Freshness) ProbeSent(sent Probe) {
	if f.probeRequested {
		f.raiseAwaited(sent.Sent, sent.Number)
	}
	f.probe = sent
	f.probing = true
	f.probeRequested = false
}

// ProbeAnswered records the revision with which the upstream answered the probe. StateReached must be called afterwards.
func (f *Freshness) ProbeAnswered(now time.Time, revision uint64) {
	f.probing = false
	answer := probeAnswer{probe: f.probe, revision: revision, at: now}
	// The answer replaces the last one if both have the same revision, or if there is no room: the later probe proves more. The
	// time of the first stays, since a progress watch has been due since then.
	if last := len(f.unreached) - 1; last+1 == maxUnreached || last >= 0 && f.unreached[last].revision == revision {
		answer.at = f.unreached[last].at
		f.unreached = f.unreached[:last]
	}
	f.unreached = append(f.unreached, answer)
}

// RefusalPause returns the shortest pause after a probe that was refused.
func (f *Freshness) RefusalPause() time.Duration { return f.schedule.pause / 2 }

// ProbeRefused records that the upstream has refused a probe, and begins a pause.
func (f *Freshness) ProbeRefused(now time.Time, pause time.Duration) {
	f.probing = false
	f.noProbeBefore = later(f.noProbeBefore, now.Add(pause))
}

// EndProbePause ends the pause after a probe that was refused or got no answer.
func (f *Freshness) EndProbePause(now time.Time) {
	if now.Before(f.noProbeBefore) {
		f.noProbeBefore = now
	}
}

// ProbeFailed records that a probe got no answer, and begins a pause of probePause.
func (f *Freshness) ProbeFailed(now time.Time) {
	f.probing = false
	f.unansweredAt = now
	f.noProbeBefore = later(f.noProbeBefore, now.Add(probePause))
}

// StreamOpened records that another stream is read now.
func (f *Freshness) StreamOpened(now time.Time) { f.streamState = streamState{heardAt: now} }

// StreamSentEvent records that the stream has sent something.
func (f *Freshness) StreamSentEvent(at time.Time) { f.heardAt = at }

// StreamSentBookmark records that the stream has sent a bookmark. If the upstream seemed to send none, the noBookmarksPause
// ends.
func (f *Freshness) StreamSentBookmark(now time.Time) {
	if f.BookmarksMissing() {
		f.withoutBookmark = 0
		f.noProgressBefore = now
	}
}

// StateReached records the revision that the state has reached. Of the answers up to this revision, it returns the probe of the
// last one, which proves the state. If there are none, it returns zero.
func (f *Freshness) StateReached(to uint64) (proof Probe) {
	for len(f.unreached) > 0 && f.unreached[0].revision <= to {
		proof = f.unreached[0].probe
		f.unreached = f.unreached[1:]
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
	f.failurePause = 0
	f.withoutBookmark = 0
}

// progressPause is the shortest pause after a progress watch that failed. It doubles with each failure in a row, up to
// RefusalPause.
const progressPause = time.Second

// ProgressFailed records that the progress watch has ended without a bookmark, and begins a pause of at least retryAfter.
func (f *Freshness) ProgressFailed(now time.Time, retryAfter time.Duration) {
	f.progressOpen = false
	f.progressHelped = false
	f.failurePause = max(progressPause, min(2*f.failurePause, f.RefusalPause()))
	f.noProgressBefore = now.Add(max(retryAfter, f.failurePause))
}

// noBookmarksPause is the pause before the next progress watch while the upstream seems to send no bookmarks. There are no probes
// meanwhile, either (see nextProbe).
const noBookmarksPause = time.Minute

// ProgressTimedOut records that the progress watch has reached its timeout without a bookmark.
func (f *Freshness) ProgressTimedOut(now time.Time) {
	f.ProgressFailed(now, 0)
	f.withoutBookmark++
	if f.BookmarksMissing() {
		f.noProgressBefore = now.Add(noBookmarksPause)
	}
}
