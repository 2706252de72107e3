package source

import (
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
)

// Freshness decides, while a feed reads a stream, when to ask the upstream for its current revision (a probe), and when to
// open a progress watch: a second, short watch, for its bookmark. It reads no clock and does nothing by itself: the feed
// calls its methods when something happens, and Next says what to do.
//
//	idle    → probing  a probe is due, or somebody waits
//	probing → idle     the state has reached the answer already, or no answer came
//	probing → behind   the state has not reached the answer
//	behind  → idle     the stream, or the bookmark of a progress watch, has reached the answer
//
// Only the answer to a probe says how new the state is; events do not. On a quiet resource the probe has a second effect:
// it makes the upstream's watch cache ask etcd for the current revision, which the next bookmark then has. If the stream's
// own bookmark would come too late, a progress watch brings a bookmark within about a second.
//
// If a probe gets no answer, the stream stays open: if its connection is dead, the connection's own pings end the stream.
// But the server that answers later may be another one. So a progress watch proves something only if the stream has sent
// something since. Otherwise the feed leaves the stream, and the next stream must show that the timeline is the same.
type Freshness struct {
	schedule probeSchedule
	// probe is the last probe that was sent.
	probe Probe
	// awaited is the number of the latest probe for which somebody waits: that one, or a later one, must be sent.
	awaited uint64
	// awaitedAt is the time at which a request for the newest state last began to wait.
	awaitedAt time.Time
	// noProbeBefore is the time before which no probe is sent, since the last one was refused or got no answer.
	noProbeBefore time.Time
	// noProgressBefore is the time before which no progress watch is opened, since the last one failed.
	noProgressBefore time.Time
	// failurePause is the pause after the last progress watch, if it failed; 0 if not.
	failurePause time.Duration
	// withoutBookmark is the number of progress watches in a row that ended at their timeout without a bookmark.
	withoutBookmark int

	streamState
}

// streamState is the part of a Freshness that is forgotten when another stream is read. From a request to its proof, one
// field after another says that somebody waits: the request sets Freshness.awaited or requested, the probe that is sent for
// it sets answerAwaited, and the answer, if the state has not reached it, sets stateAwaited. If that ends before the proof,
// another probe is awaited.
type streamState struct {
	// sentAt is the time at which the stream last sent something, or was opened.
	sentAt time.Time

	// requested reports whether a request waits for a revision, and no probe was sent since.
	requested bool
	// probing reports whether the last probe is still unanswered, and answerAwaited whether somebody waits for its answer.
	probing, answerAwaited bool
	// unansweredAt is the time at which a probe last got no answer.
	unansweredAt time.Time

	// firstUnreached is the first answer that the state has not reached, and lastUnreached the last one. Answers between
	// the two are not kept.
	firstUnreached, lastUnreached probeAnswer
	// stateAwaited reports whether somebody waits until the state reaches an answer.
	stateAwaited bool
	// progressOpen reports whether a progress watch is open.
	progressOpen bool
	// progressHelped reports whether the last progress watch showed something that the stream had not sent.
	progressHelped bool
}

const (
	// ShortWatch is the timeout of a watch that is opened only for its bookmark: kube-apiserver sends a bookmark two
	// seconds before the end. (Measured with 1.36.3: it comes after 0.7 to 1.1 s.)
	ShortWatch = 3 * time.Second
	// BookmarkEvery is the longest time after which kube-apiserver sends a bookmark on a watch whose revision has moved
	// (storage/cacher: once a minute, and some jitter).
	BookmarkEvery = 65 * time.Second
	// probePause is the shortest time from one probe to the next for requests that wait for a revision, since the upstream
	// may not have reached the revision either. It is also the shortest time after a probe that got no answer.
	probePause = 500 * time.Millisecond
	// progressDelay is the time that the stream may take to reach a revision that the upstream has given, before
	// a progress watch is opened.
	progressDelay = 100 * time.Millisecond
	// progressPause is the shortest pause after a progress watch that failed. It doubles with each failure in a row, up to
	// Freshness.RefusalPause.
	progressPause = time.Second
	// maxWithoutBookmark is the number of progress watches without a bookmark in a row after which the upstream counts as
	// sending no bookmarks, like a kube-apiserver without a watch cache for the resource. Then nothing is asked for
	// noBookmarksPause after each such watch.
	maxWithoutBookmark = 3
	noBookmarksPause   = time.Minute
	// progressKept is the time after the last request for the newest state in which each progress watch is followed
	// by another, so that bookmarks keep coming.
	progressKept = 3 * time.Second
	// awaitedKept is the time after the last request for the newest state in which a probe that got no answer is sent
	// again. No request waits longer than that.
	awaitedKept = time.Minute
)

// probeAnswer is a revision that the upstream has given, and the time at which it came.
type probeAnswer struct {
	at       time.Time
	revision uint64
}

// NewFreshness returns a Freshness that keeps a state younger than bound. spread, from 0 to 1, makes the pauses between
// probes a little shorter, so that replicas with different values do not ask at the same times.
func NewFreshness(bound time.Duration, spread float64) Freshness {
	return Freshness{schedule: newProbeSchedule(bound, spread)}
}

// Step is something that the feed can do for a Freshness.
type Step int

// The steps. Wait is none.
const (
	Wait Step = iota
	SendProbe
	OpenProgressWatch
	LeaveStream // it may be of another timeline than the answers to probes
)

// Action is what the feed must do.
type Action struct {
	Step Step
	// Wake is the time at which to call Next again if the step is Wait and nothing happens before; zero means only when
	// something happens.
	Wake time.Time
}

// Next returns what must be done now. currentAt is the time at which the state was current.
func (f *Freshness) Next(now, currentAt time.Time) Action {
	probeAt := f.nextProbe(now, currentAt)
	progressAt := f.nextProgress(now, currentAt)
	switch {
	case isDue(progressAt, now) && f.TimelineUncertain(now): // the watch would prove nothing
		return Action{Step: LeaveStream}
	case isDue(progressAt, now):
		return Action{Step: OpenProgressWatch}
	case isDue(probeAt, now):
		return Action{Step: SendProbe}
	}
	wake := probeAt
	if wake.IsZero() || !progressAt.IsZero() && progressAt.Before(wake) {
		wake = progressAt
	}
	return Action{Wake: wake}
}

// isDue reports whether a time has come. A zero time never comes.
func isDue(at, now time.Time) bool { return !at.IsZero() && !at.After(now) }

// nextProbe returns the time at which to send a probe; zero while a probe is unanswered.
func (f *Freshness) nextProbe(now, currentAt time.Time) time.Time {
	if f.probing {
		return time.Time{}
	}
	at := f.schedule.next(f.probe.Sent, currentAt)
	if f.requested {
		at = earlier(at, f.probe.Sent.Add(probePause))
	}
	if f.awaited > f.probe.Number {
		at = earlier(at, now)
	}
	if f.NoBookmarks() {
		at = later(at, f.noProgressBefore)
	}
	return later(at, f.noProbeBefore)
}

// nextProgress returns the time at which to open a progress watch; zero if none must be opened. It is due
//
//   - at once, while requests for the newest state keep coming and the last progress watch helped;
//   - soon, after an answer that the state has not reached, if somebody waits for that;
//   - when the state is so old that the stream's own bookmark would come too late, after any other such answer.
func (f *Freshness) nextProgress(now, currentAt time.Time) time.Time {
	switch {
	case f.progressOpen:
		return time.Time{}
	case f.progressHelped && now.Sub(f.awaitedAt) < progressKept && !f.TimelineUncertain(now):
		return later(now, f.noProgressBefore)
	case f.firstUnreached.revision == 0:
		return time.Time{}
	}
	at := later(f.firstUnreached.at.Add(progressDelay), f.noProgressBefore)
	if !f.stateAwaited {
		at = later(at, currentAt.Add(f.schedule.progressAge))
	}
	return at
}

// TimelineUncertain reports whether the server that answers now may have another timeline than the stream.
func (f *Freshness) TimelineUncertain(now time.Time) bool {
	return f.unansweredAt.After(f.sentAt) || clock.Age(f.sentAt, now) > BookmarkEvery
}

// NoBookmarks reports whether the upstream seems to send no bookmarks. Then no state can be proven to be the newest.
func (f *Freshness) NoBookmarks() bool { return f.withoutBookmark >= maxWithoutBookmark }

// EarliestProof returns the time before which no probe is sent, or no progress watch is opened: only the stream can prove
// something until then. It may have passed.
func (f *Freshness) EarliestProof() time.Time { return later(f.noProbeBefore, f.noProgressBefore) }

// NoProbeBefore returns the time before which no probe is sent, since the last one was refused or got no answer.
func (f *Freshness) NoProbeBefore() time.Time { return f.noProbeBefore }

// StreamSentAt returns the time at which the stream last sent something, or was opened.
func (f *Freshness) StreamSentAt() time.Time { return f.sentAt }

// RefusalPause returns the shortest pause after a probe that was refused.
func (f *Freshness) RefusalPause() time.Duration { return f.schedule.pause / 2 }

// StreamOpened records that another stream is read now, and forgets what concerns the last stream.
func (f *Freshness) StreamOpened(now time.Time) { f.streamState = streamState{sentAt: now} }

// StreamClosed records that the stream is no longer read, and that an unanswered probe and an open progress watch are
// abandoned. If somebody waits for the answer to that probe, or until the state reaches an earlier answer, the next stream
// begins with another probe.
func (f *Freshness) StreamClosed() {
	if f.probing && f.answerAwaited || f.stateAwaited {
		f.awaitNextProbe()
	}
	f.probing = false
	f.progressOpen = false
}

// Await records that requests for the newest state wait for the probe with this number, or a later one.
func (f *Freshness) Await(now time.Time, number uint64) {
	if number > f.awaited {
		f.awaited = number
		f.awaitedAt = now
	}
}

// awaitNextProbe makes another probe due, since somebody still waits.
func (f *Freshness) awaitNextProbe() { f.awaited = max(f.awaited, f.probe.Number+1) }

// RequestProbe records that a request waits for a revision.
func (f *Freshness) RequestProbe() { f.requested = true }

// ProbeSent records that a probe is sent.
func (f *Freshness) ProbeSent(sent Probe) {
	f.answerAwaited = f.requested || f.awaited > f.probe.Number
	f.probe = sent
	f.probing = true
	f.requested = false
}

// Answered records the revision with which the upstream answered the probe, and whether the state has reached it.
func (f *Freshness) Answered(now time.Time, revision uint64, reached bool) {
	f.probing = false
	if reached {
		return
	}
	f.lastUnreached = probeAnswer{at: now, revision: revision}
	if f.firstUnreached.revision == 0 {
		f.firstUnreached = f.lastUnreached
	}
	f.stateAwaited = f.stateAwaited || f.answerAwaited
}

// Refused records that the upstream wants no probe for the pause.
func (f *Freshness) Refused(now time.Time, pause time.Duration) {
	f.probing = false
	f.noProbeBefore = later(f.noProbeBefore, now.Add(pause))
}

// EndPause ends the pause after a refused probe.
func (f *Freshness) EndPause(now time.Time) { f.noProbeBefore = earlier(f.noProbeBefore, now) }

// Unanswered records that a probe got no answer. If requests for the newest state wait for its answer, another probe
// follows soon.
func (f *Freshness) Unanswered(now time.Time) {
	if f.answerAwaited && now.Sub(f.awaitedAt) < awaitedKept {
		f.awaitNextProbe()
	}
	f.probing = false
	f.unansweredAt = now
	f.noProbeBefore = later(f.noProbeBefore, now.Add(probePause))
}

// StreamSent records that the stream has sent something.
func (f *Freshness) StreamSent(at time.Time) { f.sentAt = at }

// StreamBookmark records that the stream has sent a bookmark: so the upstream sends bookmarks.
func (f *Freshness) StreamBookmark(now time.Time) {
	if f.NoBookmarks() {
		f.withoutBookmark = 0
		f.noProgressBefore = now
	}
}

// Reached records the revision that the state has reached.
func (f *Freshness) Reached(to uint64) {
	switch {
	case f.firstUnreached.revision > to: // still behind
	case f.lastUnreached.revision > to:
		f.firstUnreached = f.lastUnreached
	default:
		f.firstUnreached, f.lastUnreached = probeAnswer{}, probeAnswer{}
		f.stateAwaited = false
	}
}

// ProgressOpened records that a progress watch is opened.
func (f *Freshness) ProgressOpened() { f.progressOpen = true }

// ProgressEnded records that the progress watch has ended with a bookmark. helped reports whether the bookmark showed
// something that the stream had not sent.
func (f *Freshness) ProgressEnded(helped bool) {
	f.progressOpen = false
	f.progressHelped = helped
	f.failurePause = 0
	f.withoutBookmark = 0
}

// ProgressFailed records that the progress watch has shown nothing, and that the upstream wants no other for retryAfter.
func (f *Freshness) ProgressFailed(now time.Time, retryAfter time.Duration) {
	f.progressOpen = false
	f.progressHelped = false
	f.failurePause = max(progressPause, min(2*f.failurePause, f.RefusalPause()))
	f.noProgressBefore = now.Add(max(retryAfter, f.failurePause))
}

// ProgressWithoutBookmark records that the progress watch has ended at its timeout, without a bookmark.
func (f *Freshness) ProgressWithoutBookmark(now time.Time) {
	f.ProgressFailed(now, 0)
	f.withoutBookmark++
	if f.NoBookmarks() {
		f.noProgressBefore = now.Add(noBookmarksPause)
	}
}

// earlier returns the earlier of two times.
func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
