package source

import (
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
)

// Freshness decides how a feed that reads a stream proves that its state is new. A probe asks the upstream for its current
// revision; once the state has reached that revision, the state has everything from before the probe was sent. A progress
// watch is a second, short watch, which is opened only for its bookmark. Freshness reads no clock and does nothing by itself:
// the feed calls its methods when something happens, and Next says what to do.
//
//	idle    → probing  a probe is due, or somebody waits for one
//	probing → idle     the state has reached the answer already, or no answer came
//	probing → behind   the state has not reached the answer
//	behind  → idle     the stream, or the bookmark of a progress watch, has reached the answer
//
// Events do not prove how new the state is: later ones may be on their way. On a quiet resource the probe has a second
// effect: it makes the upstream's watch cache ask etcd for the current revision, and the next bookmark then has that
// revision. If the stream's own bookmark would come too late, a progress watch brings one within about a second.
//
// If a probe gets no answer, the stream stays open: the pings of its connection end the stream if the connection is dead. But
// another server, with another timeline (say, after etcd was restored from a backup), may answer later. So a progress watch
// proves something only if the stream has sent something since. Otherwise the feed leaves the stream, and the next stream
// must show that the timeline is the same.
type Freshness struct {
	schedule probeSchedule
	// probe is the last probe that was sent.
	probe Probe
	// awaited is the highest number of a probe for which a request waits. Until a probe with this or a higher number was
	// sent, a probe is due.
	awaited uint64
	// awaitedAt is the time at which awaited last rose, because a request for the newest state began to wait.
	awaitedAt time.Time
	// askAgain reports whether a request still waits, although its probe got no answer or its stream ended.
	askAgain bool
	// noProbeBefore is the time before which no probe is sent, since the last one was refused or got no answer.
	noProbeBefore time.Time
	// noProgressBefore is the time before which no progress watch is opened, since the last one failed.
	noProgressBefore time.Time
	// failurePause is the pause after the last progress watch if that watch failed; otherwise 0.
	failurePause time.Duration
	// withoutBookmark is the number of progress watches in a row that ended at their timeout without a bookmark.
	withoutBookmark int

	streamState
}

// streamState is the part of a Freshness that is forgotten when another stream is read.
//
// Three fields follow a request until its proof. The request sets Freshness.awaited or requested. The probe for the request
// sets answerAwaited. If the state has not reached the answer, the answer sets stateAwaited. If no answer comes, or the
// stream ends before the proof, Freshness.askAgain asks for another probe.
type streamState struct {
	// sentAt is the time at which the stream last sent something, or was opened.
	sentAt time.Time

	// requested reports whether a request has begun to wait for a revision since the last probe was sent.
	requested bool
	// probing reports whether the last probe is still unanswered.
	probing bool
	// answerAwaited reports whether a request waits for the answer to the last probe.
	answerAwaited bool
	// unansweredAt is the time at which a probe last got no answer.
	unansweredAt time.Time

	// firstUnreached is the oldest answer that the state has not reached; its revision is 0 if there is none.
	firstUnreached probeAnswer
	// lastUnreached is the newest answer that the state has not reached. Answers between firstUnreached and lastUnreached are
	// not kept.
	lastUnreached probeAnswer
	// stateAwaited reports whether a request waits until the state reaches an answer.
	stateAwaited bool
	// progressOpen reports whether a progress watch is open.
	progressOpen bool
	// progressHelped reports whether the bookmark of the last progress watch proved something that the stream had not.
	progressHelped bool
}

const (
	// ShortWatch is the timeout of a watch that is opened only for its bookmark: kube-apiserver sends a bookmark two
	// seconds before the timeout. (With 1.36.3, the bookmark comes after 0.7 to 1.1 s.)
	ShortWatch = 3 * time.Second
	// BookmarkEvery is the longest time between two bookmarks of a watch, if kube-apiserver's revision has moved
	// (storage/cacher: once a minute, and some jitter).
	BookmarkEvery = 65 * time.Second
	// probePause is the shortest time from one probe to the next for requests that wait for a revision: the upstream may not
	// have reached the revision either. It is also the shortest pause after a probe that got no answer.
	probePause = 500 * time.Millisecond
	// progressDelay is the time that the stream gets to reach the answer to a probe before a progress watch is opened.
	progressDelay = 100 * time.Millisecond
	// progressPause is the shortest pause after a progress watch that failed. It doubles with each failure in a row, up to
	// Freshness.RefusalPause.
	progressPause = time.Second
	// maxWithoutBookmark is the number of progress watches in a row without a bookmark that show that the upstream sends no
	// bookmarks, for example because its watch cache is off for the resource.
	maxWithoutBookmark = 3
	// noBookmarksPause is the pause in probes and progress watches after such a watch, if the upstream sends no bookmarks.
	noBookmarksPause = time.Minute
	// progressKept is the time after awaitedAt in which another progress watch follows each one that has helped, so that
	// bookmarks keep coming.
	progressKept = 3 * time.Second
	// awaitedKept is the time after awaitedAt in which another probe follows a probe that got no answer. No request waits
	// longer than that.
	awaitedKept = time.Minute
)

// probeAnswer is the answer to a probe: the upstream's revision, and the time at which the answer came.
type probeAnswer struct {
	at       time.Time
	revision uint64
}

// NewFreshness returns a Freshness that keeps a state younger than bound. A spread from 0 to 1 makes the pauses between probes
// a little shorter, so that replicas with different spreads do not ask at the same times.
func NewFreshness(bound time.Duration, spread float64) Freshness {
	return Freshness{schedule: newProbeSchedule(bound, spread)}
}

// Step is something that the feed can do for a Freshness.
type Step int

// The steps. Wait means that there is nothing to do now.
const (
	Wait Step = iota
	SendProbe
	OpenProgressWatch
	LeaveStream // The stream may be of another timeline than the answers to probes.
)

// Action is what the feed must do.
type Action struct {
	Step Step
	// Wake is the time at which to call Next again, if the step is Wait and nothing happens before. If Wake is zero, the feed
	// waits until something happens.
	Wake time.Time
}

// Next returns what must be done now. currentAt is the time at which the state was current.
func (f *Freshness) Next(now, currentAt time.Time) Action {
	probeAt := f.nextProbe(now, currentAt)
	progressAt := f.nextProgress(now, currentAt)
	switch {
	case isDue(progressAt, now) && f.TimelineUncertain(now): // A progress watch would prove nothing.
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
	if f.isAwaited() {
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
//   - progressDelay after an answer that the state has not reached, if a request waits for that;
//   - at the progressAge of the schedule, if no request waits.
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

// EarliestProof returns the time before which no probe is sent, or no progress watch is opened. Until then, only the stream
// can prove something. The time may have passed.
func (f *Freshness) EarliestProof() time.Time { return later(f.noProbeBefore, f.noProgressBefore) }

// NoProbeBefore returns the time before which no probe is sent, since the last one was refused or got no answer.
func (f *Freshness) NoProbeBefore() time.Time { return f.noProbeBefore }

// StreamSentAt returns the time at which the stream last sent something, or was opened.
func (f *Freshness) StreamSentAt() time.Time { return f.sentAt }

// RefusalPause returns the shortest pause after a probe that was refused.
func (f *Freshness) RefusalPause() time.Duration { return f.schedule.pause / 2 }

// StreamOpened records that another stream is read now, and forgets the state of the last stream.
func (f *Freshness) StreamOpened(now time.Time) { f.streamState = streamState{sentAt: now} }

// StreamClosed records that the stream is no longer read. The feed abandons an unanswered probe and an open progress watch. If
// a request waits for the answer to that probe, or until the state reaches an earlier answer, another probe becomes due for
// the next stream.
func (f *Freshness) StreamClosed() {
	if f.probing && f.answerAwaited || f.stateAwaited {
		f.askAgain = true
	}
	f.probing = false
	f.progressOpen = false
}

// Await records that a request for the newest state waits for the probe with a number, or for a later one.
func (f *Freshness) Await(now time.Time, number uint64) {
	if number > f.awaited {
		f.awaited = number
		f.awaitedAt = now
	}
}

// isAwaited reports whether a request waits for a probe that is not sent yet.
func (f *Freshness) isAwaited() bool { return f.askAgain || f.awaited > f.probe.Number }

// RequestProbe records that a request waits for a revision.
func (f *Freshness) RequestProbe() { f.requested = true }

// ProbeSent records that a probe is sent.
func (f *Freshness) ProbeSent(sent Probe) {
	f.answerAwaited = f.requested || f.isAwaited()
	f.probe = sent
	f.probing = true
	f.requested = false
	f.askAgain = false
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

// Refused records that the upstream has refused a probe and wants no other before the pause is over.
func (f *Freshness) Refused(now time.Time, pause time.Duration) {
	f.probing = false
	f.noProbeBefore = later(f.noProbeBefore, now.Add(pause))
}

// EndPause ends the pause after a refused probe.
func (f *Freshness) EndPause(now time.Time) { f.noProbeBefore = earlier(f.noProbeBefore, now) }

// Unanswered records that a probe got no answer. If a request waits for the answer, another probe follows after probePause.
func (f *Freshness) Unanswered(now time.Time) {
	f.askAgain = f.answerAwaited && now.Sub(f.awaitedAt) < awaitedKept
	f.probing = false
	f.unansweredAt = now
	f.noProbeBefore = later(f.noProbeBefore, now.Add(probePause))
}

// StreamSent records that the stream has sent something.
func (f *Freshness) StreamSent(at time.Time) { f.sentAt = at }

// StreamBookmark records that the stream has sent a bookmark. So NoBookmarks is wrong, and its pause ends.
func (f *Freshness) StreamBookmark(now time.Time) {
	if f.NoBookmarks() {
		f.withoutBookmark = 0
		f.noProgressBefore = now
	}
}

// Reached records the revision that the state has reached.
func (f *Freshness) Reached(to uint64) {
	switch {
	case f.firstUnreached.revision > to: // The state has reached none of the answers.
	case f.lastUnreached.revision > to:
		f.firstUnreached = f.lastUnreached
	default:
		f.firstUnreached = probeAnswer{}
		f.lastUnreached = probeAnswer{}
		f.stateAwaited = false
	}
}

// ProgressOpened records that a progress watch is opened.
func (f *Freshness) ProgressOpened() { f.progressOpen = true }

// ProgressEnded records that the progress watch has ended with a bookmark. helped reports whether the bookmark proved
// something that the stream had not.
func (f *Freshness) ProgressEnded(helped bool) {
	f.progressOpen = false
	f.progressHelped = helped
	f.failurePause = 0
	f.withoutBookmark = 0
}

// ProgressFailed records that the progress watch has ended without a bookmark, and that the upstream wants no other before
// retryAfter is over.
func (f *Freshness) ProgressFailed(now time.Time, retryAfter time.Duration) {
	f.progressOpen = false
	f.progressHelped = false
	f.failurePause = max(progressPause, min(2*f.failurePause, f.RefusalPause()))
	f.noProgressBefore = now.Add(max(retryAfter, f.failurePause))
}

// ProgressWithoutBookmark records that the progress watch has lasted until its timeout, and had no bookmark.
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
