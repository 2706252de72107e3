package snapshot

import "time"

const (
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

// freshness decides, while a feed reads a stream, when to ask the upstream how far it is, and when
// to open a short watch beside the stream. It reads no clock and does nothing by itself: its
// methods take in what has happened, and next says what is to be done.
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
type freshness struct {
	rhythm rhythm
	pace   pace
	// sent is the last question that was sent, which is under way while asking.
	sent   inquiry
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
	first, last mark
	// urgent: somebody waits for it.
	urgent bool

	// beside: a short watch is open, since opened. rested is when the next may be, and useful that the last one
	// told what the stream had not.
	beside bool
	opened time.Time
	rested time.Time
	useful bool
}

// action is what is to be done.
type action struct {
	// ask: send a question.
	ask bool
	// beside: open a short watch.
	beside bool
	// leave: the stream is in doubt.
	leave bool
	// again is when to look again, if nothing happens before.
	again time.Time
}

// follow begins with another stream.
func (f *freshness) follow(now time.Time) {
	*f = freshness{rhythm: f.rhythm, pace: f.pace, sent: f.sent, spared: f.spared, wished: f.wished, wishedAt: f.wishedAt, told: now}
}

// stop takes in that the stream is not read any more: a question that was under way is given up.
func (f *freshness) stop() { f.asking = false }

// next says what is to be done now, where the state is as new as heard.
func (f *freshness) next(now, heard time.Time) action {
	ask, beside := f.nextQuestion(now, heard), f.nextBeside(now, heard)
	a := action{again: ask}
	if a.again.IsZero() || !beside.IsZero() && beside.Before(ask) {
		a.again = beside
	}
	if a.again.IsZero() || a.again.After(now) {
		return a
	}
	switch due := !beside.IsZero() && !beside.After(now); {
	case due && f.inDoubt(now):
		return action{leave: true}
	case due:
		return action{beside: true}
	}
	return action{ask: true}
}

// nextQuestion is when to ask; zero while a question is under way.
func (f *freshness) nextQuestion(now, heard time.Time) time.Time {
	if f.asking {
		return time.Time{}
	}
	at := now.Add(f.rhythm.next(now, f.sent.asked, heard))
	if f.demanded {
		at = earlier(at, f.sent.asked.Add(demandPause))
	}
	if f.wished > f.sent.number {
		at = earlier(at, now)
	}
	return later(at, f.spared)
}

// nextBeside is when to open a short watch; zero if there is none to be opened.
func (f *freshness) nextBeside(now, heard time.Time) time.Time {
	switch {
	case f.beside:
		return time.Time{}
	case f.useful && now.Sub(f.wishedAt) < besideKept && !f.inDoubt(now):
		return later(now, f.rested)
	case f.first.revision == 0:
		return time.Time{}
	case f.urgent:
		return later(f.first.at.Add(besideDelay), f.rested)
	}
	return later(later(f.first.at.Add(besideDelay), heard.Add(f.rhythm.leave)), f.rested)
}

// inDoubt reports whether whoever answers now may have another past than the stream.
func (f *freshness) inDoubt(now time.Time) bool {
	return f.silent.After(f.told) || Age(f.told, now) > bookmarkEvery
}

// wish takes in that requests for the newest state wait for an inquiry of that number, or a later
// one.
func (f *freshness) wish(now time.Time, number uint64) {
	if number > f.wished {
		f.wished, f.wishedAt = number, now
	}
}

// demand takes in that a request waits for a revision.
func (f *freshness) demand() { f.demanded = true }

// ask takes in that a question is sent.
func (f *freshness) ask(is inquiry) {
	f.awaited = f.demanded || f.wished > f.sent.number
	f.sent, f.asking, f.demanded = is, true, false
}

// answered takes in how far the upstream is, and whether the span is there.
func (f *freshness) answered(now time.Time, revision uint64, there bool) {
	f.asking = false
	f.pace.answered(now.Sub(f.sent.asked), there)
	if there {
		return
	}
	f.last = mark{at: now, revision: revision}
	if f.first.revision == 0 {
		f.first, f.urgent = f.last, false
	}
	f.urgent = f.urgent || f.awaited
}

// refused takes in that the upstream wants to be left alone for a time.
func (f *freshness) refused(now time.Time, pause time.Duration) {
	f.asking, f.spared = false, now.Add(pause)
}

// unanswered takes in that there was no answer.
func (f *freshness) unanswered(now time.Time) {
	f.asking, f.silent, f.spared = false, now, later(f.spared, now.Add(demandPause))
}

// streamTold takes in that the stream has told something.
func (f *freshness) streamTold(at time.Time) {
	f.pace.gap.add(max(0, at.Sub(f.told)))
	f.told = at
}

// reached takes in how far the span is.
func (f *freshness) reached(to uint64) {
	switch {
	case f.first.revision > to:
	case f.last.revision > to:
		f.first = f.last
	default:
		f.first, f.last, f.urgent = mark{}, mark{}, false
	}
}

// besideOpened takes in that a short watch is opened.
func (f *freshness) besideOpened(now time.Time) { f.beside, f.opened = true, now }

// besideOver takes in that the short watch has ended. useful: it told what the stream had not.
// failed: it told nothing.
func (f *freshness) besideOver(now time.Time, useful, failed bool) {
	f.beside, f.useful = false, useful
	if failed {
		f.rested = now.Add(besidePause)
		return
	}
	f.pace.beside.add(now.Sub(f.opened))
}

// proof is how long it is likely to take to prove the newest state, for who asks for it now.
func (f *freshness) proof(now time.Time) time.Duration {
	question := f.pace.question.or(usualQuestion) + max(0, f.spared.Sub(now))
	if f.asking {
		// One that takes longer than usual may take as long again: nobody should wait for it in
		// vain.
		question = max(question, now.Sub(f.sent.asked))
	}
	return question + f.pace.wait(now.Sub(f.told))
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
