package source

import (
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
)

const (
	// ShortWatch is the timeout of a watch that is opened only for its bookmark: kube-apiserver sends one two
	// seconds before the end. (1.36.3, measured: it comes after 0.7 to 1.1 s.)
	ShortWatch = 3 * time.Second
	// BookmarkEvery is the longest time after which kube-apiserver sends a bookmark on a watch whose
	// revision has moved (storage/cacher: once a minute, and some jitter).
	BookmarkEvery = 65 * time.Second
	// probePause is the least time between two probes for requests that wait for a revision, since the
	// upstream may not have reached it either; and the least time after a probe that got no answer.
	probePause = 500 * time.Millisecond
	// progressDelay is the time that the stream may take to reach a revision that the upstream has given, before
	// a progress watch is opened.
	progressDelay = 100 * time.Millisecond
	// progressPause is the least time after a progress watch that failed. It doubles with each failure in a row,
	// maxFailures times at most, up to the pause after a refused probe.
	progressPause = time.Second
	maxFailures   = 10
	// A progress watch is unmarked if it ends at its timeout without a bookmark. After manyUnmarked of them in a
	// row the upstream counts as one that sends no bookmarks, like a kube-apiserver without a watch cache for
	// the resource. Then nothing is asked for unmarkedPause, which doubles each time, up to longestUnmarked.
	manyUnmarked    = 3
	unmarkedPause   = time.Minute
	longestUnmarked = time.Hour
	// progressKept is the time after the last request for the newest state in which each progress watch is followed
	// by another, so that bookmarks keep coming.
	progressKept = 3 * time.Second
	// awaitedKept is the time after the last request for the newest state in which a probe without an answer is sent
	// again. No request waits longer.
	awaitedKept = time.Minute
)

// Freshness decides, while a feed reads a stream, when to ask the upstream for its current revision, and
// when to open a progress watch: a second, short one, for its bookmark. It reads no clock and does nothing by
// itself: its methods are told what has happened, and Next says what to do.
//
//	           due, or somebody waits             the upstream is further
//	in touch ────────────────────────► probing ───────────────────────► behind
//	   ▲                                 │                                │  │ it lasts, or
//	   ├──── it is there already ───────┘                                │  │ somebody waits
//	   ├───────────────── the stream has told it ─────────────────────────┘  ▼
//	   └───────────────── a bookmark has told it ◄───────────────── a progress watch
//
// Only the answer to a probe says how new the state is; events do not. On a quiet resource the
// probe does more: it makes the upstream's watch cache ask etcd for the current revision, which its
// next bookmark then has. If the stream's own bookmark would come too late, a progress watch brings
// one within about a second.
//
// If a probe gets no answer, the stream stays open: if its connection is dead, the connection's
// own pings end it. But the server that answers later may be another one. So before a progress watch
// proves anything, the stream must have sent something after that. Otherwise the stream
// is closed, and the next one must show that the timeline is the same.
type Freshness struct {
	schedule probeSchedule
	// probe is the last probe that was sent.
	probe Probe
	// probing reports that no answer to it has come yet.
	probing bool
	// probesFrom is the time before which the upstream wants no probe.
	probesFrom time.Time
	// awaited is the number of the probe for which requests for the newest state wait.
	awaited uint64
	// awaitedAt is the time at which awaited last grew.
	awaitedAt time.Time

	// While somebody waits, one of these follows the other. Only askAgain and awaited are kept for the next stream.

	// requested reports that a request waits for a revision, and that no probe was sent since.
	requested bool
	// answerAwaited reports that somebody waits for the answer to the probe under way.
	answerAwaited bool
	// stateAwaited reports that somebody waits until the state reaches the revision that was answered.
	stateAwaited bool
	// askAgain reports that the answer did not come, or that the stream ended before the state reached it.
	askAgain bool

	// streamSentAt is the time at which the stream last sent something.
	streamSentAt time.Time
	// unansweredAt is the time at which a probe last got no answer.
	unansweredAt time.Time
	// firstUnreached is the first answer that the state has not reached, and lastUnreached the last one. Those between
	// are not kept.
	firstUnreached, lastUnreached probeAnswer

	// progressOpen reports whether a progress watch is open.
	progressOpen bool
	// progressHelped reports whether the last one showed something that the stream had not sent.
	progressHelped bool
	// failures is the number of progress watches in a row that have failed.
	failures int
	// unmarked is the number of progress watches without a bookmark since the last bookmark.
	unmarked int
	// progressFrom is the time before which no progress watch is opened.
	progressFrom time.Time
}

// probeAnswer is a revision that the upstream has given, and the time at which it came.
type probeAnswer struct {
	at       time.Time
	revision uint64
}

// NewFreshness returns a Freshness that keeps a state younger than bound. variety, from 0 to 1, shifts the
// times of probes: machines with different values soon ask at different times.
func NewFreshness(bound time.Duration, variety float64) Freshness {
	return Freshness{schedule: newProbeSchedule(bound, variety)}
}

// Action is what the feed must do.
type Action struct {
	// Probe tells to send one.
	Probe bool
	// Progress tells to open a progress watch.
	Progress bool
	// Leave tells to leave the stream, which may be of another timeline than the answers.
	Leave bool
	// Wake is the time at which to call Next again, if nothing happens before.
	Wake time.Time
}

// Next returns what to do now; currentAt says how new the state is.
func (m *Freshness) Next(now, currentAt time.Time) Action {
	probe, progress := m.nextProbe(now, currentAt), m.nextProgress(now, currentAt)
	a := Action{Wake: probe}
	if a.Wake.IsZero() || !progress.IsZero() && progress.Before(probe) {
		a.Wake = progress
	}
	if a.Wake.IsZero() || a.Wake.After(now) {
		return a
	}
	switch due := !progress.IsZero() && !progress.After(now); {
	case due && m.TimelineUncertain(now):
		return Action{Leave: true}
	case due:
		return Action{Progress: true}
	}
	return Action{Probe: true}
}

// nextProbe is the time at which to send one; zero while one is under way.
func (m *Freshness) nextProbe(now, currentAt time.Time) time.Time {
	if m.probing {
		return time.Time{}
	}
	at := m.schedule.next(m.probe.Sent, currentAt)
	if m.requested {
		at = earlier(at, m.probe.Sent.Add(probePause))
	}
	if m.askAgain || m.awaited > m.probe.Number {
		at = earlier(at, now)
	}
	if m.NoBookmarks() {
		at = later(at, m.progressFrom)
	}
	return later(at, m.probesFrom)
}

// nextProgress is the time at which to open a progress watch; zero if there is none to be opened. At once while lists of
// the newest state keep coming and the last one helped; soon after an answer that somebody waits for; else
// only when the state is so old that the stream's own bookmark would come too late.
func (m *Freshness) nextProgress(now, currentAt time.Time) time.Time {
	switch {
	case m.progressOpen:
		return time.Time{}
	case m.progressHelped && now.Sub(m.awaitedAt) < progressKept && !m.TimelineUncertain(now):
		return later(now, m.progressFrom)
	case m.firstUnreached.revision == 0:
		return time.Time{}
	}
	at := later(m.firstUnreached.at.Add(progressDelay), m.progressFrom)
	if !m.stateAwaited {
		at = later(at, currentAt.Add(m.schedule.progress))
	}
	return at
}

// TimelineUncertain reports whether the server that answers now may have another timeline than the stream.
func (m *Freshness) TimelineUncertain(now time.Time) bool {
	return m.unansweredAt.After(m.streamSentAt) || clock.Age(m.streamSentAt, now) > BookmarkEvery
}

// NoBookmarks says that the upstream sends no bookmarks, as far as was seen: nothing can be proven, and
// nobody need wait for a proof.
func (m *Freshness) NoBookmarks() bool { return m.unmarked >= manyUnmarked }

// Earliest is the time at which a proof may come again: before, the upstream wants no question, or no progress watch is
// opened, since the last ones have failed. Only the stream can prove something until then.
func (m *Freshness) Earliest() time.Time { return later(m.probesFrom, m.progressFrom) }

// ProbesFrom returns the time until which the upstream wants no probe.
func (m *Freshness) ProbesFrom() time.Time { return m.probesFrom }

// StreamSentAt is the time at which the stream last sent something, or was opened.
func (m *Freshness) StreamSentAt() time.Time { return m.streamSentAt }

// Pause is the time to wait at least after a probe that was refused.
func (m *Freshness) Pause() time.Duration { return m.schedule.everyIfOld }

// Follow begins with another stream.
func (m *Freshness) Follow(now time.Time) {
	*m = Freshness{
		schedule: m.schedule, probe: m.probe, probesFrom: m.probesFrom,
		awaited: m.awaited, awaitedAt: m.awaitedAt, askAgain: m.askAgain, streamSentAt: now,
		failures: m.failures, unmarked: m.unmarked, progressFrom: m.progressFrom,
	}
}

// Stop says that the stream is no longer read: a probe and a progress watch that were under way are
// abandoned. If somebody waits for what the probe proves, or for what the stream was to reach, the
// next stream begins with another probe.
func (m *Freshness) Stop() {
	m.askAgain = m.askAgain || m.probing && m.answerAwaited || m.stateAwaited
	m.probing, m.progressOpen = false, false
}

// Await says that requests for the newest state wait for the probe with this number, or a later
// one.
func (m *Freshness) Await(now time.Time, number uint64) {
	if number > m.awaited {
		m.awaited, m.awaitedAt = number, now
	}
}

// RequestProbe says that a request waits for a revision.
func (m *Freshness) RequestProbe() { m.requested = true }

// ProbeSent says that a probe is sent.
func (m *Freshness) ProbeSent(sent Probe) {
	m.answerAwaited = m.requested || m.askAgain || m.awaited > m.probe.Number
	m.probe = sent
	m.probing = true
	m.requested, m.askAgain = false, false
}

// Answered is told the upstream's revision, and whether the state has reached it.
func (m *Freshness) Answered(now time.Time, revision uint64, reached bool) {
	m.probing = false
	if reached {
		return
	}
	m.lastUnreached = probeAnswer{at: now, revision: revision}
	if m.firstUnreached.revision == 0 {
		m.firstUnreached = m.lastUnreached
		m.stateAwaited = false
	}
	m.stateAwaited = m.stateAwaited || m.answerAwaited
}

// Refused says that the upstream wants no probe for a time.
func (m *Freshness) Refused(now time.Time, pause time.Duration) {
	m.probing = false
	m.probesFrom = later(m.probesFrom, now.Add(pause))
}

// Retry says that a pause is over, perhaps before its time.
func (m *Freshness) Retry(now time.Time) { m.probesFrom = earlier(m.probesFrom, now) }

// Unanswered says that a probe got no answer. If requests for the newest state wait for one, another
// probe is soon sent.
func (m *Freshness) Unanswered(now time.Time) {
	m.askAgain = m.answerAwaited && now.Sub(m.awaitedAt) < awaitedKept
	m.probing = false
	m.unansweredAt = now
	m.probesFrom = later(m.probesFrom, now.Add(probePause))
}

// StreamSent says that the stream has sent something.
func (m *Freshness) StreamSent(at time.Time) { m.streamSentAt = at }

// StreamBookmark says that the stream has sent a bookmark: so the upstream sends bookmarks.
func (m *Freshness) StreamBookmark(now time.Time) {
	if m.NoBookmarks() {
		m.unmarked, m.progressFrom = 0, now
	}
}

// Reached is told the revision that the state has reached.
func (m *Freshness) Reached(to uint64) {
	switch {
	case m.firstUnreached.revision > to:
	case m.lastUnreached.revision > to:
		m.firstUnreached = m.lastUnreached
	default:
		m.firstUnreached, m.lastUnreached = probeAnswer{}, probeAnswer{}
		m.stateAwaited = false
	}
}

// ProgressOpened says that a progress watch is opened.
func (m *Freshness) ProgressOpened() { m.progressOpen = true }

// ProgressOver says that the progress watch has ended with a bookmark, and whether that showed something that the stream
// had not sent (helped).
func (m *Freshness) ProgressOver(helped bool) {
	m.progressOpen, m.progressHelped = false, helped
	m.failures, m.unmarked = 0, 0
}

// ProgressFailed says that the progress watch has shown nothing, and for how long the upstream wants no other.
func (m *Freshness) ProgressFailed(now time.Time, wanted time.Duration) {
	pause := max(progressPause, min(progressPause<<m.failures, m.Pause()))
	m.progressOpen, m.progressHelped = false, false
	m.failures = min(m.failures+1, maxFailures)
	m.progressFrom = now.Add(max(wanted, pause))
}

// ProgressUnmarked says that the progress watch has ended at its timeout, without a bookmark.
func (m *Freshness) ProgressUnmarked(now time.Time) {
	m.ProgressFailed(now, 0)
	if m.unmarked++; m.NoBookmarks() {
		m.progressFrom = now.Add(min(longestUnmarked, unmarkedPause<<min(m.unmarked-manyUnmarked, maxFailures)))
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
