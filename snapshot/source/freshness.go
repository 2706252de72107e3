package source

import (
	"slices"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
)

// Freshness decides how a feed that reads a stream proves that its state is new. It reads no clock and does nothing by
// itself: the feed records what happens, and Next returns what to do. A feed has two means:
//
//   - A probe asks the upstream for its current revision. Once the state has reached that revision, the state has every
//     change from before the probe was sent.
//   - A progress watch is a second, short watch, opened only for its bookmark. The bookmark moves the state to a revision when
//     the stream is quiet.
//
// For example, the state is at revision 20 when a list of the newest state comes and waits for probe 8:
//
//	time    the feed records                 Next returns
//	0 ms    ProbeAwaited(8)                  SendProbe
//	0 ms    ProbeSent(8)                     Wait
//	10 ms   ProbeAnswered(30)                Wait until progressDelay is over
//	110 ms                                   OpenProgressWatch
//	110 ms  ProgressOpened                   Wait until the schedule's next probe
//	900 ms  ProgressSentBookmark(helped),
//	        StateReached(30): proven         OpenProgressWatch: for progressKept, another list is likely to come
//
// Events do not prove how new the state is: later ones may be on their way. A probe has a second effect: it makes the
// upstream's watch cache ask etcd for the current revision, and the next bookmark then has that revision.
//
// A request for the newest state waits until a probe with the number awaitedProbe, or a higher one, has proven the state (see
// isAwaited), but for no longer than longestWait. A probe from ProbeRequested counts as awaited, too. If no probe can prove
// the state any more, since it was refused or got no answer, or since the stream has ended, another one is due (see needsProbe).
//
// After an unanswered probe the feed keeps the stream: if the connection is dead, its pings end the stream. But the next probe may
// be answered by another server, with another timeline (a restored etcd), whose revisions cannot be compared with the stream's.
// The timeline is uncertain until the stream sends something again. If a progress watch becomes due in that time, the feed leaves
// the stream.
type Freshness struct {
	schedule probeSchedule
	// probe is the last probe that was sent.
	probe Probe
	// awaitedProbe is the highest number of a probe for which a request waits. A later probe serves the request, too.
	awaitedProbe uint64
	// awaitedAt is the time at which awaitedProbe last rose.
	awaitedAt time.Time
	// keepProgressUntil is the end of progressKept after the last request for the newest state.
	keepProgressUntil time.Time
	// noProbeBefore is the end of the pause after a probe that was refused or got no answer.
	noProbeBefore time.Time
	// noProgressBefore is the end of the pause after a progress watch that failed.
	noProgressBefore time.Time
	// failurePause is the length of the pause after the last progress watch; 0 if that watch did not fail.
	failurePause time.Duration
	// withoutBookmark is the number of progress watches in a row that ended at their timeout without a bookmark.
	withoutBookmark int

	streamState
}

// streamState is the part of a Freshness that is forgotten when another stream is opened.
type streamState struct {
	// heardAt is the time at which the stream last sent something, or was opened.
	heardAt time.Time

	// probeRequested reports whether ProbeRequested was called since the last probe was sent.
	probeRequested bool
	// probing reports whether the last probe is still unanswered.
	probing bool
	// unansweredAt is the time at which a probe last got no answer.
	unansweredAt time.Time

	// unreached are the answers whose revision the state has not reached yet, at most maxUnreached, in the order of their
	// probes. Their revisions ascend, since a lower one counts as that of another timeline, and ends the stream. Copies of a
	// Freshness share this memory, so only the feed may use it.
	unreached []probeAnswer
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

// maxUnreached bounds the number of answers that the state has not reached, however long the stream lags.
const maxUnreached = 256

const (
	// ShortWatch is the timeout of a watch that is opened only for its bookmark: kube-apiserver sends a bookmark two
	// seconds before the timeout. (With 1.36.3, the bookmark comes after 0.7 to 1.1 s.)
	ShortWatch = 3 * time.Second
	// BookmarkEvery is the longest time between two bookmarks of a watch, if kube-apiserver's revision has moved
	// (storage/cacher: once a minute, and some jitter).
	BookmarkEvery = 65 * time.Second
)

// NewFreshness returns a Freshness that keeps a state younger than bound. A spread from 0 to 1 makes the pauses between
// probes a little shorter, so that replicas with different spreads do not ask at the same times.
func NewFreshness(bound time.Duration, spread float64) Freshness {
	return Freshness{schedule: newProbeSchedule(bound, spread)}
}

// Step is the kind of an [Action].
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
	// Wake is the time at which to call Next again if the step is Wait and nothing happens before. A zero Wake never comes.
	Wake time.Time
}

// Next returns what must be done now. proven is the last probe that has proven the state.
func (f *Freshness) Next(now time.Time, proven Probe) Action {
	probeAt := f.nextProbe(now, proven)
	progressAt := f.nextProgress(now, proven)
	switch {
	case isDue(progressAt, now) && f.TimelineUncertain(now): // A progress watch would prove nothing.
		return Action{Step: LeaveStream}
	case isDue(progressAt, now):
		return Action{Step: OpenProgressWatch}
	case isDue(probeAt, now):
		return Action{Step: SendProbe}
	}
	return Action{Wake: earlier(probeAt, progressAt)}
}

// isDue reports whether a time has come. A zero time never comes.
func isDue(at, now time.Time) bool { return !at.IsZero() && !at.After(now) }

// nextProbe returns the time at which to send a probe; zero while a probe is unanswered.
func (f *Freshness) nextProbe(now time.Time, proven Probe) time.Time {
	if f.probing {
		return time.Time{}
	}
	at := f.schedule.next(f.probe.Sent, proven.Sent)
	if f.probeRequested {
		at = earlier(at, f.probe.Sent.Add(probePause))
	}
	if f.needsProbe(now, proven) {
		at = earlier(at, now)
	}
	if f.BookmarksMissing() { // An answer would prove nothing, so the probe waits for the end of the noBookmarksPause.
		at = later(at, f.noProgressBefore)
	}
	return later(at, f.noProbeBefore)
}

const (
	// progressDelay is the time that the stream gets to reach the answer to a probe before a progress watch is opened.
	progressDelay = 100 * time.Millisecond
	// progressKept is the time after a request for the newest state in which another progress watch follows each one that has
	// helped, so that bookmarks keep coming.
	progressKept = 3 * time.Second
)

// nextProgress returns the time at which to open a progress watch; zero if none is needed or one is open. It waits for the
// end of a pause. Apart from that, a progress watch is due
//
//   - at once, while requests for the newest state keep coming, if the last progress watch helped and the timeline is certain;
//   - progressDelay after an answer that the state has not reached, if a request waits;
//   - at the progressAge of the schedule, if the state has not reached an answer and no request waits.
func (f *Freshness) nextProgress(now time.Time, proven Probe) time.Time {
	switch {
	case f.progressOpen:
		return time.Time{}
	case f.progressHelped && now.Before(f.keepProgressUntil) && !f.TimelineUncertain(now):
		return later(now, f.noProgressBefore)
	case len(f.unreached) == 0:
		return time.Time{}
	}
	at := later(f.unreached[0].at.Add(progressDelay), f.noProgressBefore)
	if !f.isAwaited(now, proven) {
		at = later(at, proven.Sent.Add(f.schedule.progressAge))
	}
	return at
}

// longestWait is the longest time for which a request waits, counted from awaitedAt. Watches wait longest.
const longestWait = 30 * time.Second

// isAwaited reports whether a request waits for a later proof than the last one.
func (f *Freshness) isAwaited(now time.Time, proven Probe) bool {
	return f.awaitedProbe > proven.Number && now.Sub(f.awaitedAt) < longestWait
}

// needsProbe reports whether a request waits, and all answers on this stream are to probes before awaitedProbe. Such answers prove
// nothing for the request, even when the state reaches them.
func (f *Freshness) needsProbe(now time.Time, proven Probe) bool {
	serves := func(a probeAnswer) bool { return a.probe.Number >= f.awaitedProbe }
	return f.isAwaited(now, proven) && !slices.ContainsFunc(f.unreached, serves)
}

// TimelineUncertain reports whether the server that answers now may have another timeline than the stream.
func (f *Freshness) TimelineUncertain(now time.Time) bool {
	return f.unansweredAt.After(f.heardAt) || clock.Age(f.heardAt, now) > BookmarkEvery
}

// maxWithoutBookmark is the number of progress watches in a row without a bookmark that show that the upstream sends no
// bookmarks, for example because its watch cache is off for the resource.
const maxWithoutBookmark = 3

// BookmarksMissing reports whether the upstream seems to send no bookmarks. Then no state can be proven to be the newest.
func (f *Freshness) BookmarksMissing() bool { return f.withoutBookmark >= maxWithoutBookmark }

// earlier returns the earlier of two times. A zero time never comes, so any other time is earlier.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

// later returns the later of two times. A zero time has passed, so any other time is later.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// EarliestProof returns the end of the pauses in probes and progress watches, which may have passed. Before it, only the
// stream can prove something.
func (f *Freshness) EarliestProof() time.Time { return later(f.noProbeBefore, f.noProgressBefore) }

// ProbePauseEnd returns the end of the pause after a probe that was refused or got no answer.
func (f *Freshness) ProbePauseEnd() time.Time { return f.noProbeBefore }

// StreamHeardAt returns the time at which the stream last sent something, or was opened.
func (f *Freshness) StreamHeardAt() time.Time { return f.heardAt }
