package freshness

import (
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/pace"
)

const (
	// ShortWatch is the timeout of a watch that is opened only for the bookmark that the upstream
	// sends two seconds before its end. (kube-apiserver 1.36.3, measured: it comes after 0.7 to 1.1
	// s.)
	ShortWatch = 3 * time.Second
	// BookmarkEvery is the longest time after which kube-apiserver sends a bookmark on a watch whose
	// revision has moved (storage/cacher: once a minute, and some jitter).
	BookmarkEvery = 65 * time.Second
	// demandPause is the least time between two questions that are asked because requests wait for a
	// revision. The upstream may not have reached that revision.
	demandPause = 500 * time.Millisecond
	// besideDelay is how long the feed waits for the stream to reach a revision that the upstream has
	// given, before it opens a short watch beside the stream.
	besideDelay = 100 * time.Millisecond
	// besidePause is the least time between two short watches if the last one failed or came too
	// late.
	besidePause = time.Second
	// besideKept: until this long after the last request for the newest state, a new short watch
	// follows each that ends, so that bookmarks keep coming.
	besideKept = 3 * time.Second
	// wishKept: until this long after the last request for the newest state came, a question that got
	// no answer is asked again. No request waits longer (--consistent-wait is a minute at most).
	wishKept = time.Minute
)

// Machine decides, while a feed reads a stream, when to ask the upstream for its current revision,
// and when to open a short watch beside the stream. It reads no clock and does nothing by itself:
// its methods are told what has happened, and Next says what to do.
//
//	           due, or somebody waits             the upstream is further
//	in touch ────────────────────────► asking ────────────────────────► behind
//	   ▲                                 │                                │  │ it lasts, or
//	   ├──── the span is there already ──┘                                │  │ somebody waits
//	   ├───────────────── the stream has told it ─────────────────────────┘  ▼
//	   └───────────────── a bookmark has told it ◄─────────────────── a watch beside
//
// Only the answer to a question says how new the state is; events do not. On a quiet resource the
// question does more: it makes the upstream's watch cache ask etcd for the current revision, which
// its next bookmark then has. If the stream's own bookmark would come too late, a short watch
// brings one within about a second.
//
// If a question gets no answer, the stream stays open: if its connection is dead, the connection's
// own pings end it. But the server that answers later may be another one. So before a watch beside
// the stream proves anything, the stream must have sent something after that. Otherwise the stream
// is closed, and the next one must show that the past is the same.
type Machine struct {
	rhythm rhythm
	pace   pace.Feed
	// sent is the last question that was sent, which is under way while asking.
	sent   Inquiry
	asking bool
	// spared is the time until which the upstream wants no question.
	spared time.Time

	// wished is the number of the inquiry that requests for the newest state wait for, and wishedAt
	// is when the last of them came.
	wished   uint64
	wishedAt time.Time
	// demanded: a request waits for a revision, and no question was sent since.
	demanded bool
	// awaited: somebody waits for the answer to the question under way. again: the last question got
	// no answer, and somebody still waits for one.
	awaited, again bool

	// told is when the stream last sent something, silent when a question last got no answer.
	told, silent time.Time
	// first and last are the first and the last revision that the upstream has given and the span has
	// not reached, and when they came. Those between are not kept.
	first, last said
	// urgent: somebody waits for it.
	urgent bool

	// beside: a short watch is open, since opened. rested is when the next may be opened. useful: the
	// last one showed something that the stream had not sent.
	beside bool
	opened time.Time
	rested time.Time
	useful bool
}

// said is a revision that the upstream has given, and when.
type said struct {
	at       time.Time
	revision uint64
}

// New returns a Machine that keeps a state younger than bound. variety, from 0 to 1, shifts the
// times of questions: machines with different values soon ask at different times.
func New(bound time.Duration, variety float64) Machine {
	return Machine{rhythm: rhythmOf(bound, variety)}
}

// SparedUntil returns the time until which the upstream wants no question.
func (f *Machine) SparedUntil() time.Time { return f.spared }

// Told is when the stream last told something, or was opened.
func (f *Machine) Told() time.Time { return f.told }

// Pause is how long to wait at least after a question that was refused.
func (f *Machine) Pause() time.Duration { return f.rhythm.again }

// Action is what the feed must do.
type Action struct {
	// Ask: send a question.
	Ask bool
	// Beside: open a short watch.
	Beside bool
	// Leave: the stream is in doubt.
	Leave bool
	// Again is when to call Next again, if nothing happens before.
	Again time.Time
}

// Follow begins with another stream.
func (f *Machine) Follow(now time.Time) {
	*f = Machine{
		rhythm: f.rhythm, pace: f.pace, sent: f.sent, spared: f.spared,
		wished: f.wished, wishedAt: f.wishedAt, again: f.again, told: now,
	}
}

// Stop says that the stream is no longer read: a question that was under way is abandoned. If
// somebody waits for what it proves, or for what the stream was to reach, the next stream begins
// with another one.
func (f *Machine) Stop() {
	f.again = f.again || f.asking && f.awaited || f.urgent
	f.asking = false
}

// Next says what to do now; heard says how new the state is.
func (f *Machine) Next(now, heard time.Time) Action {
	ask, beside := f.nextQuestion(now, heard), f.nextBeside(now, heard)
	a := Action{Again: ask}
	if a.Again.IsZero() || !beside.IsZero() && beside.Before(ask) {
		a.Again = beside
	}
	if a.Again.IsZero() || a.Again.After(now) {
		return a
	}
	switch due := !beside.IsZero() && !beside.After(now); {
	case due && f.InDoubt(now):
		return Action{Leave: true}
	case due:
		return Action{Beside: true}
	}
	return Action{Ask: true}
}

// nextQuestion is when to ask; zero while a question is under way.
func (f *Machine) nextQuestion(now, heard time.Time) time.Time {
	if f.asking {
		return time.Time{}
	}
	at := now.Add(f.rhythm.next(now, f.sent.Asked, heard))
	if f.demanded {
		at = earlier(at, f.sent.Asked.Add(demandPause))
	}
	if f.again || f.wished > f.sent.Number {
		at = earlier(at, now)
	}
	return later(at, f.spared)
}

// nextBeside is when to open a short watch; zero if there is none to be opened.
func (f *Machine) nextBeside(now, heard time.Time) time.Time {
	switch {
	case f.beside:
		return time.Time{}
	case f.useful && now.Sub(f.wishedAt) < besideKept && !f.InDoubt(now):
		return later(now, f.rested)
	case f.first.revision == 0:
		return time.Time{}
	case f.urgent:
		return later(f.first.at.Add(besideDelay), f.rested)
	}
	return later(later(f.first.at.Add(besideDelay), heard.Add(f.rhythm.leave)), f.rested)
}

// InDoubt reports whether the server that answers now may have another past than the stream.
func (f *Machine) InDoubt(now time.Time) bool {
	return f.silent.After(f.told) || clock.Age(f.told, now) > BookmarkEvery
}

// Wish says that requests for the newest state wait for an inquiry with this number, or a later
// one.
func (f *Machine) Wish(now time.Time, number uint64) {
	if number > f.wished {
		f.wished, f.wishedAt = number, now
	}
}

// Demand says that a request waits for a revision.
func (f *Machine) Demand() { f.demanded = true }

// Ask says that a question is sent.
func (f *Machine) Ask(is Inquiry) {
	f.awaited = f.demanded || f.again || f.wished > f.sent.Number
	f.sent, f.asking, f.demanded, f.again = is, true, false, false
}

// Answered is told the upstream's revision, and whether the span has reached it.
func (f *Machine) Answered(now time.Time, revision uint64, there bool) {
	f.asking = false
	f.pace.Answered(now.Sub(f.sent.Asked), there)
	if there {
		return
	}
	f.last = said{at: now, revision: revision}
	if f.first.revision == 0 {
		f.first, f.urgent = f.last, false
	}
	f.urgent = f.urgent || f.awaited
}

// Refused says that the upstream wants no question for a time.
func (f *Machine) Refused(now time.Time, pause time.Duration) {
	f.asking, f.spared = false, now.Add(pause)
}

// Unanswered says that there was no answer. If requests for the newest state wait for one, the
// question is soon asked again.
func (f *Machine) Unanswered(now time.Time) {
	f.again = f.awaited && now.Sub(f.wishedAt) < wishKept
	f.asking, f.silent, f.spared = false, now, later(f.spared, now.Add(demandPause))
}

// StreamTold says that the stream has sent something, and the revision that the span has reached.
func (f *Machine) StreamTold(at time.Time, to uint64) {
	f.pace.Gap.Add(max(0, at.Sub(f.told)))
	f.told = at
	if f.first.revision > 0 && f.first.revision <= to {
		f.pace.CaughtUp(max(0, at.Sub(f.first.at)), besideDelay)
	}
}

// Reached is told the revision that the span has reached.
func (f *Machine) Reached(to uint64) {
	switch {
	case f.first.revision > to:
	case f.last.revision > to:
		f.first = f.last
	default:
		f.first, f.last, f.urgent = said{}, said{}, false
	}
}

// BesideOpened says that a short watch is opened.
func (f *Machine) BesideOpened(now time.Time) { f.beside, f.opened = true, now }

// BesideOver says that the short watch has ended. useful: it showed something that the stream had
// not sent. failed: it showed nothing.
func (f *Machine) BesideOver(now time.Time, useful, failed bool) {
	f.beside, f.useful = false, useful
	if failed {
		f.rested = now.Add(besidePause)
		return
	}
	f.pace.Beside.Add(now.Sub(f.opened))
}

// Proof returns how long the proof of the newest state is likely to take for a request that comes
// now.
func (f *Machine) Proof(now time.Time) time.Duration {
	question := f.pace.Question.Or(pace.UsualQuestion) + max(0, f.spared.Sub(now))
	if f.asking {
		// A question that takes longer than usual may take as long again: nobody should wait for it
		// without success.
		question = max(question, now.Sub(f.sent.Asked))
	}
	return question + f.pace.Wait(now.Sub(f.told), besideDelay)
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
