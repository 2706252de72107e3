package source

import (
	"slices"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
)

// Freshness decides when a feed sends requests to prove that its state is new. A feed keeps the state of one collection up to
// date by the events of a watch, its stream. It records what happens (freshnessevents.go), and Next returns what to do. A
// Freshness reads no clock and does nothing by itself.
//
// The stream alone does not show how new the state is: later events may be on their way. So a feed sends two kinds of requests:
//
//   - A probe asks the upstream for its current revision, say 30. Once the stream has brought the state to revision 30, the
//     probe has proven the state: it has every change from before the probe was sent.
//   - A progress watch is a second, short watch, opened only for its bookmark. It helps if no object of the collection
//     changes, so that the stream sends nothing and the state stays below 30. The probe has made the upstream's watch cache ask
//     etcd for the current revision, so the bookmark is at revision 30, and brings the state there.
//
// Both prove something only if the answer and the stream are of one timeline. A timeline is one history of etcd. An etcd that
// was restored from a backup begins another timeline, whose revisions cannot be compared with those of the first.
//
// These words say how far a probe is:
//
//	requested  The feed wants another probe soon, but at the earliest 0.5 s (probePause) after the last one.
//	awaited    A request waits for the probe, or for a later one.
//	in flight  The probe is sent. It may end as pending, refused or failed.
//	pending    The upstream has answered with its revision. The state has not reached that revision yet.
//	proven     The state has reached the revision of the answer.
//	refused    The upstream has answered with an error, such as 429.
//	failed     No answer came.
//
// For example, the state is at revision 20:
//
//	time    what happens                        the feed records            Next returns
//	0 ms    a list needs the newest state       ProbeAwaited                SendProbe
//	0 ms    a probe is sent                     ProbeSent                   Wait
//	10 ms   the answer is revision 30           ProbeAnswered               Wait, for progressDelay
//	110 ms  nothing                                                         OpenProgressWatch
//	110 ms  a progress watch is opened          ProgressOpened              Wait, for the schedule's next probe
//	900 ms  it sends a bookmark at revision 30  ProgressSentBookmark,
//	                                            StateReached                OpenProgressWatch
//
// Now the probe has proven the state. Another progress watch is opened at once, since another list is likely to come.
type Freshness struct {
	schedule probeSchedule
	// lastProbe is the last probe that was sent.
	lastProbe Probe
	// awaitedProbe is the highest number of a probe for which a request has waited. A later probe serves the request, too.
	awaitedProbe uint64
	// awaitedAt is the time at which awaitedProbe last rose.
	awaitedAt time.Time
	// repeatProgressUntil is the end of the time in which one progress watch may follow another at once: repeatProgressFor, 3
	// s, after the last request for the newest state.
	repeatProgressUntil time.Time
	// probePauseEnd is the end of the pause after a probe that was refused or failed.
	probePauseEnd time.Time
	// progressPauseEnd is the end of the pause after a progress watch that failed.
	progressPauseEnd time.Time
	// progressPause is the length of the pause after the last progress watch, not counting a longer pause for which the
	// upstream asked. It is 0 if that watch did not fail.
	progressPause time.Duration
	// missingBookmarks is the number of progress watches in a row that reached their timeout without a bookmark.
	missingBookmarks int

	streamState
}

// streamState is the part of a Freshness that is forgotten when another stream is opened.
type streamState struct {
	// heardAt is the time at which the stream last sent something, or was opened.
	heardAt time.Time

	// probeRequested reports whether ProbeRequested was called since the last probe was sent.
	probeRequested bool
	// probeInFlight reports whether the last probe is in flight.
	probeInFlight bool
	// probeFailedAt is the time at which a probe last failed.
	probeFailedAt time.Time

	// pending has the answers to pending probes, at most maxPending, in the order of the probes. Their revisions ascend: the
	// feed leaves the stream if an answer has a lower revision than an answer before, since the lower one is of another
	// timeline. Copies of a Freshness share the memory of pending, so only the feed may use it.
	pending []probeAnswer
	// progressOpen reports whether a progress watch is open.
	progressOpen bool
	// progressWasAhead reports whether the last progress watch was of use: its bookmark was at a higher revision than the
	// state, and the timeline was certain.
	progressWasAhead bool
}

// probeAnswer is the upstream's answer to a probe.
type probeAnswer struct {
	probe    Probe
	revision uint64    // The upstream's current revision.
	at       time.Time // The time at which the answer came.
}

// maxPending is the largest number of pending answers, however far the stream lags behind.
const maxPending = 256

// ShortWatch is the timeout of a watch that is opened only for its bookmark: kube-apiserver sends a bookmark two seconds before
// the timeout. (With 1.36.3, the bookmark comes after 0.7 to 1.1 s.)
const ShortWatch = 3 * time.Second

// BookmarkEvery is the longest time between two bookmarks of a watch, if kube-apiserver's revision has moved (storage/cacher:
// once a minute, and some jitter).
const BookmarkEvery = 65 * time.Second

// NewFreshness returns a Freshness that keeps a state younger than bound. A spread from 0 to 1 makes the pauses between
// probes a little shorter (see newProbeSchedule), so that replicas with different spreads do not send probes at the same times.
func NewFreshness(bound time.Duration, spread float64) Freshness {
	return Freshness{schedule: newProbeSchedule(bound, spread)}
}

// Step is the kind of an [Action].
type Step int

// The steps.
const (
	Wait Step = iota // Do nothing now.
	SendProbe
	OpenProgressWatch
	LeaveStream // End the stream and open another: it may be of another timeline than the answers to probes.
)

// Action is what the feed must do.
type Action struct {
	Step Step
	// Wake is the time at which to call Next again if the step is Wait and nothing happens before; zero if there is no such
	// time.
	Wake time.Time
}

// never is later than any time at which something is due.
var never = time.Unix(1<<40, 0)

// Next returns what the feed must do now. proven is the last probe that has proven the state.
func (f *Freshness) Next(now time.Time, proven Probe) Action {
	probeAt := f.nextProbe(now, proven)
	progressAt := f.nextProgress(now, proven)
	wake := earlier(probeAt, progressAt)
	progressDue := !progressAt.After(now)
	switch {
	case progressDue && f.TimelineUncertain(now): // A progress watch would prove nothing.
		return Action{Step: LeaveStream}
	case progressDue:
		return Action{Step: OpenProgressWatch}
	case !probeAt.After(now):
		return Action{Step: SendProbe}
	case wake.Equal(never): // Only an event can make something due.
		return Action{Step: Wait}
	}
	return Action{Step: Wait, Wake: wake}
}

// nextProbe returns the time at which to send a probe. It returns never while a probe is in flight. A probe is due at the
// earliest of these times, but not before the end of a pause:
//
//   - the time of the schedule's next probe
//   - probePause after the last probe, if a probe is requested
//   - now, if a request waits and needs a probe
func (f *Freshness) nextProbe(now time.Time, proven Probe) time.Time {
	if f.probeInFlight {
		return never
	}
	at := f.schedule.next(f.lastProbe.Sent, proven.Sent)
	if f.probeRequested {
		at = earlier(at, f.lastProbe.Sent.Add(probePause))
	}
	if f.needsProbe(now, proven) {
		at = earlier(at, now)
	}
	pauseEnd := f.probePauseEnd
	if f.BookmarksMissing() { // An answer would prove nothing before the next progress watch.
		pauseEnd = later(pauseEnd, f.progressPauseEnd)
	}
	return later(at, pauseEnd)
}

// progressDelay is the time that the stream has to reach the answer to a probe. After it, a progress watch is opened.
const progressDelay = 100 * time.Millisecond

// repeatProgressFor is the time after a request for the newest state in which one progress watch follows another, as long as
// their bookmarks are ahead of the state. So the next request finds a bookmark on its way.
const repeatProgressFor = 3 * time.Second

// nextProgress returns the time at which to open a progress watch. It returns never if one is open, and if no case applies. The
// first case that applies counts. After a progress watch that failed, the time is not before the end of the pause.
//
//	case                                                         a progress watch is due
//	The bookmark of the last one was ahead of the state, a       now
//	request for the newest state came within the last
//	repeatProgressFor, and the timeline is certain.
//	An answer is pending, and a request waits.                   progressDelay after the answer
//	An answer is pending, and no request waits.                  progressDelay after the answer, or when the state is as old as
//	                                                             the schedule's progressAge, whichever is later
func (f *Freshness) nextProgress(now time.Time, proven Probe) time.Time {
	switch {
	case f.progressOpen:
		return never
	case f.progressWasAhead && now.Before(f.repeatProgressUntil) && !f.TimelineUncertain(now):
		return later(now, f.progressPauseEnd)
	case len(f.pending) == 0:
		return never
	}
	at := f.pending[0].at.Add(progressDelay)
	if !f.requestWaits(now, proven) {
		at = later(at, proven.Sent.Add(f.schedule.progressAge))
	}
	return later(at, f.progressPauseEnd)
}

// longestWait is the longest time for which a request waits for a probe. (A watch waits this long, and a list less.)
const longestWait = 30 * time.Second

// requestWaits reports whether a request still waits: the awaited probe is later than proven, the last one that has proven the
// state.
func (f *Freshness) requestWaits(now time.Time, proven Probe) bool {
	return f.awaitedProbe > proven.Number && now.Sub(f.awaitedAt) < longestWait
}

// needsProbe reports whether a request waits for a probe, and no pending answer serves it. No probe may be in flight. If the
// awaited probe or a later one is pending, the request needs no other. But if the awaited probe was refused or failed, or its
// answer was dropped with the stream, a new probe must take its place.
func (f *Freshness) needsProbe(now time.Time, proven Probe) bool {
	servesRequest := func(a probeAnswer) bool { return a.probe.Number >= f.awaitedProbe }
	return f.requestWaits(now, proven) && !slices.ContainsFunc(f.pending, servesRequest)
}

// TimelineUncertain reports whether probes may now be answered from another timeline than the stream's. There are two cases,
// which last until the stream sends something again:
//
//   - A probe has failed since the stream last sent something. Another server may answer the next probe. (The feed keeps the
//     stream. If the connection is dead, the pings of the connection end the stream.)
//   - The stream has sent nothing for longer than BookmarkEvery, not even a bookmark.
func (f *Freshness) TimelineUncertain(now time.Time) bool {
	return f.probeFailedAt.After(f.heardAt) || clock.Age(f.heardAt, now) > BookmarkEvery
}

// maxMissingBookmarks is the number of progress watches in a row without a bookmark after which the upstream seems to send
// none, for example because its watch cache is off for the resource.
const maxMissingBookmarks = 3

// missingBookmarksPause is the pause after a progress watch while the upstream seems to send no bookmarks. In this pause, the
// feed neither sends probes nor opens progress watches.
const missingBookmarksPause = time.Minute

// BookmarksMissing reports whether the upstream seems to send no bookmarks. Then no state can be proven to be the newest.
func (f *Freshness) BookmarksMissing() bool { return f.missingBookmarks >= maxMissingBookmarks }

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

// EarliestProof returns the end of all pauses in probes and in progress watches, which may be in the past. Before this time,
// only the stream can prove something.
func (f *Freshness) EarliestProof() time.Time { return later(f.probePauseEnd, f.progressPauseEnd) }

// ProbePauseEnd returns the end of the pause after a probe that was refused or failed.
func (f *Freshness) ProbePauseEnd() time.Time { return f.probePauseEnd }

// StreamHeardAt returns the time at which the stream last sent something, or was opened.
func (f *Freshness) StreamHeardAt() time.Time { return f.heardAt }
