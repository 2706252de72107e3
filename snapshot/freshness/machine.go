package freshness

import (
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
)

const (
	// ShortWatch is the timeout of a watch that is opened only for the bookmark that the upstream
	// sends two seconds before its end. (kube-apiserver 1.36.3, measured: it comes after 0.7 to 1.1
	// s.)
	ShortWatch = 3 * time.Second
	// BookmarkEvery is the longest time after which kube-apiserver sends a bookmark on a watch whose
	// revision has moved (storage/cacher: once a minute, and some jitter).
	BookmarkEvery = 65 * time.Second
	// probePause is the least time between two probes that are sent because requests wait for a
	// revision: the upstream may not have reached it either. It is also the least time from a probe
	// that got no answer to the next one.
	probePause = 500 * time.Millisecond
	// progressDelay is how long the feed waits for the stream to reach a revision that the upstream has
	// given, before it opens a progress watch.
	progressDelay = 100 * time.Millisecond
	// progressPause is the least time between two progress watches if the last one failed. It doubles with
	// each that fails, up to the pause after a probe that was refused.
	progressPause = time.Second
	// maxFailed is how many failures in a row count.
	maxFailed = 10
	// manyUnmarked is how many progress watches in a row must have ended at their timeout without a bookmark for
	// the upstream to be taken for one that sends none, as kube-apiserver does where it has no watch cache
	// for the resource. From then on it is asked nothing for unmarkedPause, which doubles each time up to
	// longestUnmarked.
	manyUnmarked    = 3
	unmarkedPause   = time.Minute
	longestUnmarked = time.Hour
	// progressKept: until this long after the last request for the newest state, a new progress watch
	// follows each that ends, so that bookmarks keep coming.
	progressKept = 3 * time.Second
	// awaitedKept: until this long after the last request for the newest state came, a probe that got
	// no answer is sent again. No request waits longer.
	awaitedKept = time.Minute
)

// Machine decides, while a feed reads a stream, when to ask the upstream for its current revision,
// and when to open a progress watch: a second, short one, for its bookmark. It reads no clock and does nothing by itself:
// its methods are told what has happened, and Next says what to do.
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
// is closed, and the next one must show that the past is the same.
type Machine struct {
	rhythm rhythm
	// probe is the last one that was sent. It is under way while probing.
	probe   Probe
	probing bool
	// probesFrom is the time before which the upstream wants no probe.
	probesFrom time.Time

	// awaited is the number of the probe that requests for the newest state wait for, and awaitedAt is
	// when it last grew.
	awaited   uint64
	awaitedAt time.Time
	// Who waits for something, by what has happened: requested, or awaited above probe.Number (not asked yet);
	// probeAwaited (asked); awaitsReading (answered, and the state is not there yet). If the stream ends before
	// that, again takes it over to the next stream; all else begins anew there.
	//
	// requested: a request waits for a revision, and no probe was sent since.
	requested bool
	// probeAwaited: somebody waits for the answer to the probe under way. again: the last probe got no
	// answer, or the stream ended before it reached that answer, and somebody still waits.
	probeAwaited, again bool

	// sentAt is when the stream last sent something, unanswered when a probe last got no answer.
	sentAt, unanswered time.Time
	// first and last are the first and the last revision that the upstream has given and the state has
	// not reached, and when they came. Those between are not kept.
	first, last reading
	// awaitsReading: somebody waits until the state reaches them.
	awaitsReading bool

	// watching: a progress watch is open. helped: the last one showed something that the stream
	// had not sent. failed is how many failed since then, and progressFrom is when the next may be opened.
	// unmarked is how many ended without a bookmark since one had one.
	watching     bool
	helped       bool
	failed       int
	progressFrom time.Time
	unmarked     int
}

// reading is a revision that the upstream has given, and when.
type reading struct {
	at       time.Time
	revision uint64
}

// New returns a Machine that keeps a state younger than bound. variety, from 0 to 1, shifts the
// times of probes: machines with different values soon ask at different times.
func New(bound time.Duration, variety float64) Machine {
	return Machine{rhythm: rhythmOf(bound, variety)}
}

// ProbesFrom returns the time until which the upstream wants no probe.
func (m *Machine) ProbesFrom() time.Time { return m.probesFrom }

// SentAt is when the stream last sent something, or was opened.
func (m *Machine) SentAt() time.Time { return m.sentAt }

// Pause is how long to wait at least after a probe that was refused.
func (m *Machine) Pause() time.Duration { return m.rhythm.everyIfOld }

// Action is what the feed must do.
type Action struct {
	// Probe: send one.
	Probe bool
	// Progress: open a progress watch.
	Progress bool
	// Leave: the stream may be of another past than the answers.
	Leave bool
	// Wake is when to call Next again, if nothing happens before.
	Wake time.Time
}

// Follow begins with another stream.
func (m *Machine) Follow(now time.Time) {
	*m = Machine{
		rhythm: m.rhythm, probe: m.probe, probesFrom: m.probesFrom,
		awaited: m.awaited, awaitedAt: m.awaitedAt, again: m.again, sentAt: now, failed: m.failed, progressFrom: m.progressFrom,
		unmarked: m.unmarked,
	}
}

// Stop says that the stream is no longer read: a probe and a progress watch that were under way are
// abandoned. If somebody waits for what the probe proves, or for what the stream was to reach, the
// next stream begins with another probe.
func (m *Machine) Stop() {
	m.again = m.again || m.probing && m.probeAwaited || m.awaitsReading
	m.probing, m.watching = false, false
}

// Next says what to do now; heard says how new the state is.
func (m *Machine) Next(now, heard time.Time) Action {
	probe, progress := m.nextProbe(now, heard), m.nextProgress(now, heard)
	a := Action{Wake: probe}
	if a.Wake.IsZero() || !progress.IsZero() && progress.Before(probe) {
		a.Wake = progress
	}
	if a.Wake.IsZero() || a.Wake.After(now) {
		return a
	}
	switch due := !progress.IsZero() && !progress.After(now); {
	case due && m.PastUncertain(now):
		return Action{Leave: true}
	case due:
		return Action{Progress: true}
	}
	return Action{Probe: true}
}

// nextProbe is when to send one; zero while one is under way.
func (m *Machine) nextProbe(now, heard time.Time) time.Time {
	if m.probing {
		return time.Time{}
	}
	at := m.rhythm.next(m.probe.Sent, heard)
	if m.requested {
		at = earlier(at, m.probe.Sent.Add(probePause))
	}
	if m.again || m.awaited > m.probe.Number {
		at = earlier(at, now)
	}
	if m.NoBookmarks() {
		at = later(at, m.progressFrom)
	}
	return later(at, m.probesFrom)
}

// NoBookmarks says that the upstream sends no bookmarks, as far as was seen: nothing can be proven, and
// nobody need wait for a proof.
func (m *Machine) NoBookmarks() bool { return m.unmarked >= manyUnmarked }

// nextProgress is when to open a progress watch; zero if there is none to be opened. At once while lists of
// the newest state keep coming and the last one helped; soon after an answer that somebody waits for; else
// only when the state is so old that the stream's own bookmark would come too late.
func (m *Machine) nextProgress(now, heard time.Time) time.Time {
	switch {
	case m.watching:
		return time.Time{}
	case m.helped && now.Sub(m.awaitedAt) < progressKept && !m.PastUncertain(now):
		return later(now, m.progressFrom)
	case m.first.revision == 0:
		return time.Time{}
	case m.awaitsReading:
		return later(m.first.at.Add(progressDelay), m.progressFrom)
	}
	return later(later(m.first.at.Add(progressDelay), heard.Add(m.rhythm.progress)), m.progressFrom)
}

// PastUncertain reports whether the server that answers now may have another past than the stream.
func (m *Machine) PastUncertain(now time.Time) bool {
	return m.unanswered.After(m.sentAt) || clock.Age(m.sentAt, now) > BookmarkEvery
}

// Await says that requests for the newest state wait for the probe with this number, or a later
// one.
func (m *Machine) Await(now time.Time, number uint64) {
	if number > m.awaited {
		m.awaited, m.awaitedAt = number, now
	}
}

// RequestProbe says that a request waits for a revision.
func (m *Machine) RequestProbe() { m.requested = true }

// ProbeSent says that a probe is sent.
func (m *Machine) ProbeSent(sent Probe) {
	m.probeAwaited = m.requested || m.again || m.awaited > m.probe.Number
	m.probe, m.probing, m.requested, m.again = sent, true, false, false
}

// Answered is told the upstream's revision, and whether the state has reached it.
func (m *Machine) Answered(now time.Time, revision uint64, there bool) {
	m.probing = false
	if there {
		return
	}
	m.last = reading{at: now, revision: revision}
	if m.first.revision == 0 {
		m.first, m.awaitsReading = m.last, false
	}
	m.awaitsReading = m.awaitsReading || m.probeAwaited
}

// Refused says that the upstream wants no probe for a time.
func (m *Machine) Refused(now time.Time, pause time.Duration) {
	m.probing, m.probesFrom = false, later(m.probesFrom, now.Add(pause))
}

// Retry says that a pause is over, perhaps before its time.
func (m *Machine) Retry(now time.Time) { m.probesFrom = earlier(m.probesFrom, now) }

// Unanswered says that there was no answer. If requests for the newest state wait for one, another
// probe is soon sent.
func (m *Machine) Unanswered(now time.Time) {
	m.again = m.probeAwaited && now.Sub(m.awaitedAt) < awaitedKept
	m.probing, m.unanswered, m.probesFrom = false, now, later(m.probesFrom, now.Add(probePause))
}

// StreamSent says that the stream has sent something.
func (m *Machine) StreamSent(at time.Time) { m.sentAt = at }

// StreamBookmark says that the stream has sent a bookmark: so the upstream sends bookmarks.
func (m *Machine) StreamBookmark(now time.Time) {
	if m.NoBookmarks() {
		m.unmarked, m.progressFrom = 0, now
	}
}

// Reached is told the revision that the state has reached.
func (m *Machine) Reached(to uint64) {
	switch {
	case m.first.revision > to:
	case m.last.revision > to:
		m.first = m.last
	default:
		m.first, m.last, m.awaitsReading = reading{}, reading{}, false
	}
}

// ProgressOpened says that a progress watch is opened.
func (m *Machine) ProgressOpened() { m.watching = true }

// ProgressOver says that the progress watch has ended. helped: it showed something that the stream had
// not sent.
func (m *Machine) ProgressOver(helped bool) {
	m.watching, m.helped, m.failed, m.unmarked = false, helped, 0, 0
}

// ProgressFailed says that the progress watch has shown nothing, and for how long the upstream wants no other.
func (m *Machine) ProgressFailed(now time.Time, wanted time.Duration) {
	pause := max(progressPause, min(progressPause<<m.failed, m.Pause()))
	m.watching, m.helped, m.failed = false, false, min(m.failed+1, maxFailed)
	m.progressFrom = now.Add(max(wanted, pause))
}

// ProgressUnmarked says that the progress watch has ended at its timeout, without a bookmark.
func (m *Machine) ProgressUnmarked(now time.Time) {
	m.ProgressFailed(now, 0)
	if m.unmarked++; m.NoBookmarks() {
		m.progressFrom = now.Add(min(longestUnmarked, unmarkedPause<<min(m.unmarked-manyUnmarked, maxFailed)))
	}
}

// Earliest is when a proof may come again: before, the upstream wants no question, or no progress watch is
// opened, since the last ones have failed. Only the stream can prove something until then.
func (m *Machine) Earliest() time.Time { return later(m.probesFrom, m.progressFrom) }

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
