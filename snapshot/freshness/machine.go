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
	// besideDelay is how long the feed waits for the stream to reach a revision that the upstream has
	// given, before it opens a short watch beside the stream.
	besideDelay = 100 * time.Millisecond
	// besidePause is the least time between two short watches if the last one failed. It doubles with
	// each that fails, up to the pause after a probe that was refused.
	besidePause = time.Second
	// maxFailed is how many failures in a row count.
	maxFailed = 10
	// manyUnmarked is how many short watches in a row must have ended at their timeout without a bookmark for
	// the upstream to be taken for one that sends none, as kube-apiserver does where it has no watch cache
	// for the resource. From then on it is asked nothing for unmarkedPause, which doubles each time up to
	// longestUnmarked.
	manyUnmarked    = 3
	unmarkedPause   = time.Minute
	longestUnmarked = time.Hour
	// besideKept: until this long after the last request for the newest state, a new short watch
	// follows each that ends, so that bookmarks keep coming.
	besideKept = 3 * time.Second
	// awaitedKept: until this long after the last request for the newest state came, a probe that got
	// no answer is sent again. No request waits longer.
	awaitedKept = time.Minute
)

// Machine decides, while a feed reads a stream, when to ask the upstream for its current revision,
// and when to open a short watch beside the stream. It reads no clock and does nothing by itself:
// its methods are told what has happened, and Next says what to do.
//
//	           due, or somebody waits             the upstream is further
//	in touch ────────────────────────► probing ───────────────────────► behind
//	   ▲                                 │                                │  │ it lasts, or
//	   ├──── it is there already ───────┘                                │  │ somebody waits
//	   ├───────────────── the stream has told it ─────────────────────────┘  ▼
//	   └───────────────── a bookmark has told it ◄─────────────────── a watch beside
//
// Only the answer to a probe says how new the state is; events do not. On a quiet resource the
// probe does more: it makes the upstream's watch cache ask etcd for the current revision, which its
// next bookmark then has. If the stream's own bookmark would come too late, a short watch brings
// one within about a second.
//
// If a probe gets no answer, the stream stays open: if its connection is dead, the connection's
// own pings end it. But the server that answers later may be another one. So before a watch beside
// the stream proves anything, the stream must have sent something after that. Otherwise the stream
// is closed, and the next one must show that the past is the same.
type Machine struct {
	rhythm rhythm
	// probe is the last one that was sent. It is under way while probing.
	probe   Probe
	probing bool
	// spared is the time until which the upstream wants no probe.
	spared time.Time

	// awaited is the number of the probe that requests for the newest state wait for, and awaitedAt is
	// when it last grew.
	awaited   uint64
	awaitedAt time.Time
	// requested: a request waits for a revision, and no probe was sent since.
	requested bool
	// probeUrgent: somebody waits for the answer to the probe under way. owed: the last probe got no
	// answer, or the stream ended before it reached that answer, and somebody still waits.
	probeUrgent, owed bool

	// told is when the stream last sent something, silent when a probe last got no answer.
	told, silent time.Time
	// first and last are the first and the last revision that the upstream has given and the state has
	// not reached, and when they came. Those between are not kept.
	first, last said
	// urgent: somebody waits until the state reaches them.
	urgent bool

	// beside: a short watch is open. useful: the last one showed something that the stream
	// had not sent. failed is how many failed since then, and rested is when the next may be opened.
	// unmarked is how many ended without a bookmark since one had one.
	beside   bool
	useful   bool
	failed   int
	rested   time.Time
	unmarked int
}

// said is a revision that the upstream has given, and when.
type said struct {
	at       time.Time
	revision uint64
}

// New returns a Machine that keeps a state younger than bound. variety, from 0 to 1, shifts the
// times of probes: machines with different values soon ask at different times.
func New(bound time.Duration, variety float64) Machine {
	return Machine{rhythm: rhythmOf(bound, variety)}
}

// SparedUntil returns the time until which the upstream wants no probe.
func (m *Machine) SparedUntil() time.Time { return m.spared }

// Told is when the stream last told something, or was opened.
func (m *Machine) Told() time.Time { return m.told }

// Pause is how long to wait at least after a probe that was refused.
func (m *Machine) Pause() time.Duration { return m.rhythm.everyIfOld }

// Action is what the feed must do.
type Action struct {
	// Probe: send one.
	Probe bool
	// Beside: open a short watch.
	Beside bool
	// Leave: the stream is in doubt.
	Leave bool
	// Wake is when to call Next again, if nothing happens before.
	Wake time.Time
}

// Follow begins with another stream.
func (m *Machine) Follow(now time.Time) {
	*m = Machine{
		rhythm: m.rhythm, probe: m.probe, spared: m.spared,
		awaited: m.awaited, awaitedAt: m.awaitedAt, owed: m.owed, told: now, failed: m.failed, rested: m.rested,
		unmarked: m.unmarked,
	}
}

// Stop says that the stream is no longer read: a probe and a short watch that were under way are
// abandoned. If somebody waits for what the probe proves, or for what the stream was to reach, the
// next stream begins with another probe.
func (m *Machine) Stop() {
	m.owed = m.owed || m.probing && m.probeUrgent || m.urgent
	m.probing, m.beside = false, false
}

// Next says what to do now; heard says how new the state is.
func (m *Machine) Next(now, heard time.Time) Action {
	probe, beside := m.nextProbe(now, heard), m.nextBeside(now, heard)
	a := Action{Wake: probe}
	if a.Wake.IsZero() || !beside.IsZero() && beside.Before(probe) {
		a.Wake = beside
	}
	if a.Wake.IsZero() || a.Wake.After(now) {
		return a
	}
	switch due := !beside.IsZero() && !beside.After(now); {
	case due && m.InDoubt(now):
		return Action{Leave: true}
	case due:
		return Action{Beside: true}
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
	if m.owed || m.awaited > m.probe.Number {
		at = earlier(at, now)
	}
	if m.NoBookmarks() {
		at = later(at, m.rested)
	}
	return later(at, m.spared)
}

// NoBookmarks says that the upstream sends no bookmarks, as far as was seen: nothing can be proven, and
// nobody need wait for a proof.
func (m *Machine) NoBookmarks() bool { return m.unmarked >= manyUnmarked }

// nextBeside is when to open a short watch; zero if there is none to be opened.
func (m *Machine) nextBeside(now, heard time.Time) time.Time {
	switch {
	case m.beside:
		return time.Time{}
	case m.useful && now.Sub(m.awaitedAt) < besideKept && !m.InDoubt(now):
		return later(now, m.rested)
	case m.first.revision == 0:
		return time.Time{}
	case m.urgent:
		return later(m.first.at.Add(besideDelay), m.rested)
	}
	return later(later(m.first.at.Add(besideDelay), heard.Add(m.rhythm.beside)), m.rested)
}

// InDoubt reports whether the server that answers now may have another past than the stream.
func (m *Machine) InDoubt(now time.Time) bool {
	return m.silent.After(m.told) || clock.Age(m.told, now) > BookmarkEvery
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
	m.probeUrgent = m.requested || m.owed || m.awaited > m.probe.Number
	m.probe, m.probing, m.requested, m.owed = sent, true, false, false
}

// Answered is told the upstream's revision, and whether the state has reached it.
func (m *Machine) Answered(now time.Time, revision uint64, there bool) {
	m.probing = false
	if there {
		return
	}
	m.last = said{at: now, revision: revision}
	if m.first.revision == 0 {
		m.first, m.urgent = m.last, false
	}
	m.urgent = m.urgent || m.probeUrgent
}

// Refused says that the upstream wants no probe for a time.
func (m *Machine) Refused(now time.Time, pause time.Duration) {
	m.probing, m.spared = false, later(m.spared, now.Add(pause))
}

// Retry says that a pause is over, perhaps before its time.
func (m *Machine) Retry(now time.Time) { m.spared = earlier(m.spared, now) }

// Unanswered says that there was no answer. If requests for the newest state wait for one, another
// probe is soon sent.
func (m *Machine) Unanswered(now time.Time) {
	m.owed = m.probeUrgent && now.Sub(m.awaitedAt) < awaitedKept
	m.probing, m.silent, m.spared = false, now, later(m.spared, now.Add(probePause))
}

// StreamTold says that the stream has sent something.
func (m *Machine) StreamTold(at time.Time) { m.told = at }

// StreamBookmark says that the stream has sent a bookmark: so the upstream sends bookmarks.
func (m *Machine) StreamBookmark(now time.Time) {
	if m.NoBookmarks() {
		m.unmarked, m.rested = 0, now
	}
}

// Reached is told the revision that the state has reached.
func (m *Machine) Reached(to uint64) {
	switch {
	case m.first.revision > to:
	case m.last.revision > to:
		m.first = m.last
	default:
		m.first, m.last, m.urgent = said{}, said{}, false
	}
}

// BesideOpened says that a short watch is opened.
func (m *Machine) BesideOpened() { m.beside = true }

// BesideOver says that the short watch has ended. useful: it showed something that the stream had
// not sent.
func (m *Machine) BesideOver(useful bool) {
	m.beside, m.useful, m.failed, m.unmarked = false, useful, 0, 0
}

// BesideFailed says that the short watch has shown nothing, and how long the upstream wants to be
// spared.
func (m *Machine) BesideFailed(now time.Time, wanted time.Duration) {
	pause := max(besidePause, min(besidePause<<m.failed, m.Pause()))
	m.beside, m.useful, m.failed = false, false, min(m.failed+1, maxFailed)
	m.rested = now.Add(max(wanted, pause))
}

// BesideUnmarked says that the short watch has ended at its timeout, without a bookmark.
func (m *Machine) BesideUnmarked(now time.Time) {
	m.BesideFailed(now, 0)
	if m.unmarked++; m.NoBookmarks() {
		m.rested = now.Add(min(longestUnmarked, unmarkedPause<<min(m.unmarked-manyUnmarked, maxFailed)))
	}
}

// Earliest is when a proof may come again: before, the upstream wants no question, or no short watch is
// opened, since the last ones have failed. Only the stream can prove something until then.
func (m *Machine) Earliest() time.Time { return later(m.spared, m.rested) }

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
