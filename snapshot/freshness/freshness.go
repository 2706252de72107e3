package freshness

import (
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/pace"
)

const (
	// ShortWatch is the life of a watch that is there for the bookmark that the upstream sends
	// two seconds before the end. (kube-apiserver 1.36.3, measured: it comes after 0.7 to 1.1 s.)
	ShortWatch = 3 * time.Second
	// BookmarkEvery is the time in which kube-apiserver sends a bookmark on every watch whose
	// revision has moved (storage/cacher: once a minute, and some jitter).
	BookmarkEvery = 65 * time.Second
	// demandPause is the least time between two questions because requests wait for a revision that
	// the upstream may not have reached.
	demandPause = 500 * time.Millisecond
	// besideDelay is how long a stream has to tell what the upstream has said, before a short watch
	// is opened beside it.
	besideDelay = 100 * time.Millisecond
	// besidePause is the least time between two short watches if the last one failed or came too
	// late.
	besidePause = time.Second
	// besideKept is for how long after the last request for the newest state a short watch follows
	// the one before, so that bookmarks keep coming.
	besideKept = 3 * time.Second
)

// Machine decides, while a feed reads a stream, when to ask the upstream how far it is, and when
// to open a short watch beside the stream. It reads no clock and does nothing by itself: its
// methods take in what has happened, and Next says what is to be done.
//
//	           due, or somebody waits             the upstream is further
//	in touch ────────────────────────► asking ────────────────────────► behind
//	   ▲                                 │                                │  │ it lasts, or
//	   ├──── the span is there already ──┘                                │  │ somebody waits
//	   ├───────────────── the stream has told it ─────────────────────────┘  ▼
//	   └───────────────── a bookmark has told it ◄─────────────────── a watch beside
//
// How new the state is only a question can say, whether the stream tells something or not. On a
// quiet resource it does more: it makes the upstream's watch cache ask etcd how far it is, so that
// the next of its bookmarks says so. If the stream's own bookmark would come too late, a short
// watch brings one within about a second.
//
// A question without an answer says nothing about the stream, which stays: if its connection is
// dead, the connection's own pings end it. But whoever answers later may be somebody else. So
// before a watch beside is believed, the stream must have told something since. Otherwise it is
// left, and the next one must show that the past is the same.
type Machine struct {
	rhythm rhythm
	pace   pace.Feed
	// sent is the last question that was sent, which is under way while asking.
	sent   Inquiry
	asking bool
	// spared is until when the upstream wants no question.
	spared time.Time

	// wished is the number of the inquiry that requests for the newest state wait for, and wishedAt
	// is when the last of them came.
	wished   uint64
	wishedAt time.Time
	// demanded: a request waits for a revision, and no question was sent since.
	demanded bool
	// awaited: somebody waits for what the question under way says.
	awaited bool

	// told is when the stream last told something, silent when a question last went without an
	// answer.
	told, silent time.Time
	// first and last are what the upstream has said and the span has not reached, and when it was
	// said. What is between the two is forgotten.
	first, last said
	// urgent: somebody waits for it.
	urgent bool

	// beside: a short watch is open, since opened. rested is when the next may be, and useful that
	// the last one told what the stream had not.
	beside bool
	opened time.Time
	rested time.Time
	useful bool
}

// said is how far the upstream has said that it is, and when.
type said struct {
	at       time.Time
	revision uint64
}

// New returns a Machine that keeps a state younger than bound. Machines whose variety, from 0 to 1,
// is not the same do not ask at the same time for long.
func New(bound time.Duration, variety float64) Machine {
	return Machine{rhythm: rhythmOf(bound, variety)}
}

// SparedUntil is until when the upstream wants no question.
func (f *Machine) SparedUntil() time.Time { return f.spared }

// Pause is how long to wait at least after a question that was refused.
func (f *Machine) Pause() time.Duration { return f.rhythm.again }

// Action is what is to be done.
type Action struct {
	// Ask: send a question.
	Ask bool
	// Beside: open a short watch.
	Beside bool
	// Leave: the stream is in doubt.
	Leave bool
	// Again is when to look again, if nothing happens before.
	Again time.Time
}

// Follow begins with another stream.
func (f *Machine) Follow(now time.Time) {
	*f = Machine{rhythm: f.rhythm, pace: f.pace, sent: f.sent, spared: f.spared, wished: f.wished, wishedAt: f.wishedAt, told: now}
}

// Stop takes in that the stream is not read any more: a question that was under way is given up.
func (f *Machine) Stop() { f.asking = false }

// Next says what is to be done now, where the state is as new as heard.
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
	if f.wished > f.sent.Number {
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

// InDoubt reports whether whoever answers now may have another past than the stream.
func (f *Machine) InDoubt(now time.Time) bool {
	return f.silent.After(f.told) || clock.Age(f.told, now) > BookmarkEvery
}

// Wish takes in that requests for the newest state wait for an inquiry of that number, or a later
// one.
func (f *Machine) Wish(now time.Time, number uint64) {
	if number > f.wished {
		f.wished, f.wishedAt = number, now
	}
}

// Demand takes in that a request waits for a revision.
func (f *Machine) Demand() { f.demanded = true }

// Ask takes in that a question is sent.
func (f *Machine) Ask(is Inquiry) {
	f.awaited = f.demanded || f.wished > f.sent.Number
	f.sent, f.asking, f.demanded = is, true, false
}

// Answered takes in how far the upstream is, and whether the span is there.
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

// Refused takes in that the upstream wants to be left alone for a time.
func (f *Machine) Refused(now time.Time, pause time.Duration) {
	f.asking, f.spared = false, now.Add(pause)
}

// Unanswered takes in that there was no answer.
func (f *Machine) Unanswered(now time.Time) {
	f.asking, f.silent, f.spared = false, now, later(f.spared, now.Add(demandPause))
}

// StreamTold takes in that the stream has told something.
func (f *Machine) StreamTold(at time.Time) {
	f.pace.Gap.Add(max(0, at.Sub(f.told)))
	f.told = at
}

// Reached takes in how far the span is.
func (f *Machine) Reached(to uint64) {
	switch {
	case f.first.revision > to:
	case f.last.revision > to:
		f.first = f.last
	default:
		f.first, f.last, f.urgent = said{}, said{}, false
	}
}

// BesideOpened takes in that a short watch is opened.
func (f *Machine) BesideOpened(now time.Time) { f.beside, f.opened = true, now }

// BesideOver takes in that the short watch has ended. useful: it told what the stream had not.
// failed: it told nothing.
func (f *Machine) BesideOver(now time.Time, useful, failed bool) {
	f.beside, f.useful = false, useful
	if failed {
		f.rested = now.Add(besidePause)
		return
	}
	f.pace.Beside.Add(now.Sub(f.opened))
}

// Proof is how long it is likely to take to prove the newest state, for who asks for it now.
func (f *Machine) Proof(now time.Time) time.Duration {
	question := f.pace.Question.Or(pace.UsualQuestion) + max(0, f.spared.Sub(now))
	if f.asking {
		// One that takes longer than usual may take as long again: nobody should wait for it in
		// vain.
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
