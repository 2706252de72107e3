package source

import (
	"slices"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
)

// Freshness decides how a feed that reads a stream proves that its state is new. The feed records what happens
// (freshnessevents.go), and Next returns what to do. A Freshness reads no clock and does nothing by itself.
//
// The events of the stream do not prove how new the state is: later ones may be on their way. A feed has two means of proof:
//
//   - A probe asks the upstream for its current revision. Once the state has reached that revision, the state has every
//     change from before the probe was sent. A probe also makes the upstream's watch cache ask etcd for the current revision, so
//     the next bookmark has that revision.
//   - A progress watch is a second, short watch, opened only for its bookmark. The bookmark moves the state to a revision when
//     the stream is quiet.
//
// Both prove something only if the answer and the stream are of one timeline. A timeline is one history of etcd. An etcd that was
// restored from a backup begins another timeline, whose revisions cannot be compared with those of the first.
//
// The states of a probe:
//
//	in flight  The probe is sent, and neither answered, refused nor failed.
//	pending    The probe is answered, but the state has not reached the answer's revision yet.
//	proven     The state has reached the answer's revision: the probe has proven the state.
//	refused    The upstream answered the probe with an error, such as 429.
//	failed     The probe got no answer.
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
// At the end, the probe has proven the state. Another progress watch is opened at once, since another list is likely to come.
type Freshness struct {
	schedule probeSchedule
	// lastProbe is the last probe that was sent.
	lastProbe Probe
	// awaitedProbe is the highest number of a probe for which a request waits. A later probe serves the request, too.
	awaitedProbe uint64
	// awaitedAt is the time at which awaitedProbe last rose.
	awaitedAt time.Time
	// repeatProgressUntil is the end of repeatProgressFor after the last request for the newest state.
	repeatProgressUntil time.Time
	// probePauseEnd is the end of the pause after a probe that was refused or failed.
	probePauseEnd time.Time
	// progressPauseEnd is the end of the pause after a progress watch that failed.
	progressPauseEnd time.Time
	// progressPause is the length of the pause after the last progress watch, unless the upstream asked for a longer pause. It
	// is 0 if that watch did not fail.
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

	// pending are the answers whose revision the state has still to reach, at most maxPending, in the order of their probes.
	// Their revisions ascend: if an answer has a lower revision than one before, the feed leaves the stream, since that answer is
	// of another timeline. Copies of a Freshness share the memory of pending, so only the feed may use it.
	pending []probeAnswer
	// progressOpen reports whether a progress watch is open.
	progressOpen bool
	// progressHelped reports whether the bookmark of the last progress watch proved something that the stream had not.
	progressHelped bool
}

// probeAnswer is the upstream's revision, as the answer to a probe gave it at a time.
type probeAnswer struct {
	probe    Probe
	revision uint64
	at       time.Time
}

// maxPending bounds the number of pending answers, however long the stream lags.
const maxPending = 256

// ShortWatch is the timeout of a watch that is opened only for its bookmark: kube-apiserver sends a bookmark two seconds before
// the timeout. (With 1.36.3, the bookmark comes after 0.7 to 1.1 s.)
const ShortWatch = 3 * time.Second

// BookmarkEvery is the longest time between two bookmarks of a watch, if kube-apiserver's revision has moved (storage/cacher:
// once a minute, and some jitter).
const BookmarkEvery = 65 * time.Second

// NewFreshness returns a Freshness that keeps a state younger than bound. A spread from 0 to 1 makes the pauses between
// probes a little shorter, so that replicas with different spreads do not ask at the same times.
func NewFreshness(bound time.Duration, spread float64) Freshness {
	return Freshness{schedule: newProbeSchedule(bound, spread)}
}

// Step is the kind of an [Action].
type Step int

// The steps.
const (
	Wait Step = iota // Nothing is to do now.
	SendProbe
	OpenProgressWatch
	LeaveStream // Open another stream: this one may be of another timeline than the answers to probes.
)

// Action is what the feed must do.
type Action struct {
	Step Step
	// Wake is the time at which to call Next again if the step is Wait and nothing happens before; zero if there is no such time.
	Wake time.Time
}

// never is later than any time at which something is due.
var never = time.Unix(1<<40, 0)

// Next returns what must be done now. proven is the last probe that has proven the state.
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

// nextProbe returns the time at which to send a probe; never while one is in flight. A probe is due at the earliest of these
// times, but not in a pause:
//
//   - the schedule's next probe;
//   - probePause after the last probe, if a probe is requested;
//   - now, if a request waits and needs a probe.
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

// progressDelay is the time that the stream gets to reach the answer to a probe before a progress watch is opened.
const progressDelay = 100 * time.Millisecond

// repeatProgressFor is the time after a request for the newest state in which another progress watch follows each one that has
// helped, so that bookmarks keep coming.
const repeatProgressFor = 3 * time.Second

// nextProgress returns the time at which to open a progress watch, but not in a pause; never if one is open, or if none is due:
//
//	case                                                                 a progress watch is due
//	the last one helped, requests keep coming, the timeline is certain   now
//	an answer is pending, a request waits                                progressDelay after the answer
//	an answer is pending, no request waits                               the same, but not before the state's progressAge
func (f *Freshness) nextProgress(now time.Time, proven Probe) time.Time {
	switch {
	case f.progressOpen:
		return never
	case f.progressHelped && now.Before(f.repeatProgressUntil) && !f.TimelineUncertain(now):
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

// longestWait is the longest time for which a request waits, counted from awaitedAt. Watches wait longest.
const longestWait = 30 * time.Second

// requestWaits reports whether a request waits for a later probe than the last one that has proven the state.
func (f *Freshness) requestWaits(now time.Time, proven Probe) bool {
	return f.awaitedProbe > proven.Number && now.Sub(f.awaitedAt) < longestWait
}

// needsProbe reports whether a request waits, and no pending answer can serve the request, since all are answers to probes before
// awaitedProbe. For example, the awaited probe was refused or failed, or the stream has ended since.
func (f *Freshness) needsProbe(now time.Time, proven Probe) bool {
	serves := func(a probeAnswer) bool { return a.probe.Number >= f.awaitedProbe }
	return f.requestWaits(now, proven) && !slices.ContainsFunc(f.pending, serves)
}

// TimelineUncertain reports whether the server that answers now may have another timeline than the stream. The timeline is
// uncertain in two cases, until the stream sends something again:
//
//   - A probe has failed since the stream last sent something. Another server may answer the next probe. (The feed keeps the
//     stream. If the connection is dead, the pings of the connection end the stream.)
//   - The stream has been silent for longer than BookmarkEvery.
func (f *Freshness) TimelineUncertain(now time.Time) bool {
	return f.probeFailedAt.After(f.heardAt) || clock.Age(f.heardAt, now) > BookmarkEvery
}

// maxMissingBookmarks is the number of progress watches in a row without a bookmark that show that the upstream sends no bookmarks,
// for example because its watch cache is off for the resource.
const maxMissingBookmarks = 3

// missingBookmarksPause is the pause after a progress watch, for probes and progress watches, while the upstream seems to send no
// bookmarks.
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

// EarliestProof returns the time, perhaps in the past, at which both pauses are over, in probes and in progress watches. Before
// this time, only the stream can prove something.
func (f *Freshness) EarliestProof() time.Time { return later(f.probePauseEnd, f.progressPauseEnd) }

// ProbePauseEnd returns the end of the pause after a probe that was refused or failed.
func (f *Freshness) ProbePauseEnd() time.Time { return f.probePauseEnd }

// StreamHeardAt returns the time at which the stream last sent something, or was opened.
func (f *Freshness) StreamHeardAt() time.Time { return f.heardAt }
