package snapshot

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/freshness"
	"github.com/listproxy/listproxy/snapshot/index"
)

// barrierWorld is an upstream, a feed of one resource and requests for its newest state, step by
// step, in random order. Nothing in it waits, and time is a number.
type barrierWorld struct {
	*rand.Rand
	c     *Collection
	fresh freshness.Machine
	now   time.Time

	// revision is the upstream's, for all resources; ours are the revisions at which this one
	// changed.
	revision uint64
	ours     []ourWrite
	s        *stream

	// question and beside are under way; nil is none.
	question *probed
	beside   *attested
	told     attested
	requests []arrival
	answered int

	broken sabotage
}

// arrival is a request that came at a time, after an inquiry.
type arrival struct {
	after uint64
	at    time.Time
}

// ourWrite is one that is acknowledged at a time.
type ourWrite struct {
	revision uint64
	at       time.Time
}

// sabotage is a barrier that proves nothing.
type sabotage string

const (
	sound            sabotage = "sound"
	tooEarly         sabotage = "a question from before the request"
	eventsProve      sabotage = "an event is taken for proof"
	othersRevision   sabotage = "another resource's revision"
	besideAlone      sabotage = "what a watch beside tells is passed over"
	goalsForgotten   sabotage = "a goal counts that was not reached"
	timeProves       sabotage = "time is taken for proof"
	anotherBookmarks sabotage = "the bookmark of another resource's watch"
)

func newBarrierWorld(seed uint64, broken sabotage) *barrierWorld {
	w := &barrierWorld{
		Rand: rand.New(rand.NewPCG(seed, 0)), c: liveCollection(Limits{History: time.Hour, Staleness: time.Hour}), now: time.Now(),
		revision: 10, s: &stream{from: 10}, broken: broken,
	}
	w.ours = []ourWrite{{10, w.now}}
	w.fresh = freshness.New(time.Hour, 0)
	w.fresh.Ask(freshness.Inquiry{Number: 0, Asked: w.now})
	w.fresh.Follow(w.now)
	return w
}

// step lets one thing happen, and reports what was answered wrongly.
func (w *barrierWorld) step() error {
	w.now = w.now.Add(time.Duration(1+w.IntN(20)) * time.Millisecond)
	switch w.IntN(9) {
	case 0:
		w.revision++
		w.ours = append(w.ours, ourWrite{w.revision, w.now})
	case 1:
		w.revision += uint64(1 + w.IntN(3)) // others are written
	case 2:
		if len(w.requests) < 10 {
			after := w.c.inquiries.Load()
			w.requests = append(w.requests, arrival{after, w.now})
			w.c.wish(after + 1)
		}
	case 3, 4:
		if err := w.tell(); err != nil {
			return err
		}
	case 5:
		w.bookmark(w.revision)
	case 6:
		if w.question != nil {
			w.answer()
		}
	case 7:
		if w.beside != nil {
			w.attest()
		}
	case 8:
		if w.IntN(20) == 0 { // the stream breaks, and is resumed
			w.fresh.Follow(w.now)
			w.question, w.beside, w.told = nil, nil, attested{}
		}
	}
	if err := w.feed(); err != nil {
		return err
	}
	return w.check()
}

// untold is the next change that the stream has to tell.
func (w *barrierWorld) untold() (uint64, bool) {
	to := w.c.view.Load().to()
	i := slices.IndexFunc(w.ours, func(o ourWrite) bool { return o.revision > to })
	if i < 0 {
		return 0, false
	}
	return w.ours[i].revision, true
}

func (w *barrierWorld) tell() error {
	rev, some := w.untold()
	if !some {
		return nil
	}
	err := w.c.apply(change{kind: modified, key: "ns/a", revision: rev, object: &index.Object{Key: "ns/a", Revision: rev}})
	w.fresh.StreamTold(w.now, w.c.view.Load().to())
	if w.broken == eventsProve {
		w.prove()
	}
	return err
}

// bookmark tells how far the stream is: before the next change, and not further than the upstream.
func (w *barrierWorld) bookmark(atMost uint64) {
	if rev, some := w.untold(); some {
		atMost = rev - 1
	}
	to := w.c.view.Load().to()
	if w.broken != anotherBookmarks && atMost < to {
		return
	}
	if w.broken == anotherBookmarks {
		atMost = w.revision
	}
	if err := w.c.progress(to + w.Uint64N(atMost-to+1)); err != nil {
		panic(err)
	}
	w.fresh.StreamTold(w.now, w.c.view.Load().to())
}

func (w *barrierWorld) answer() {
	p := *w.question
	w.question = nil
	switch w.broken {
	case tooEarly:
		p.Number = w.c.inquiries.Load() + 1
	case othersRevision:
		p.revision -= w.Uint64N(p.revision / 2)
	}
	there := w.c.expect(p)
	if w.broken == goalsForgotten {
		w.prove()
	}
	w.fresh.Answered(w.now, p.revision, there)
}

// prove publishes that everything is known up to now.
func (w *barrierWorld) prove() {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	v := w.c.view.Load()
	w.c.publishLocked(&View{spans: v.spans, heard: hearing{freshness.Inquiry{Number: w.c.inquiries.Load() + 1, Asked: w.now}, w.now}, newest: v.newest, frame: v.frame})
}

func (w *barrierWorld) attest() {
	a := *w.beside
	w.beside = nil
	a.revision = max(a.from, w.revision-w.Uint64N(3))
	for _, o := range w.ours {
		if o.revision > a.from && o.revision <= a.revision && w.broken != besideAlone {
			a.changes = append(a.changes, o.revision)
		}
	}
	w.fresh.BesideOver(w.now, a.revision > w.c.view.Load().to(), false)
	w.told = a
}

// feed does what a feed does after each event (drain).
func (w *barrierWorld) feed() (err error) {
	if w.told, err = w.c.accept(w.s, w.told); err != nil {
		return err
	}
	v := w.c.view.Load()
	w.fresh.Reached(v.to())
	w.fresh.Wish(w.now, w.c.wished.Load())
	switch do := w.fresh.Next(w.now, v.heard.Asked); {
	case do.Leave:
		w.fresh.Follow(w.now)
	case do.Ask:
		if w.question != nil {
			return errors.New("two questions at a time")
		}
		is := w.c.at(w.now)
		w.fresh.Ask(is)
		w.question = &probed{w.revision, is}
	case do.Beside:
		if w.beside != nil {
			return errors.New("two watches beside the stream")
		}
		w.fresh.BesideOpened(w.now)
		w.beside = &attested{from: v.to()}
	}
	if w.broken == timeProves && w.IntN(50) == 0 {
		w.prove()
	}
	return nil
}

// check lets go of the requests that can be answered, and reports one whose answer lacks a write
// that was acknowledged before it came.
func (w *barrierWorld) check() error {
	var wrong error
	w.requests = slices.DeleteFunc(w.requests, func(came arrival) bool {
		snap, why := w.c.view.Load().fresh(came.after)
		if why != reason.None {
			return false
		}
		w.answered++
		o, found := snap.tree.Get("ns/a")
		newest := uint64(0)
		for _, is := range w.ours {
			if is.revision <= snap.Revision {
				newest = is.revision
			}
			if !is.at.After(came.at) && (!found || o.Revision < is.revision) {
				wrong = fmt.Errorf("the answer at revision %d lacks the write at %d", snap.Revision, is.revision)
			}
		}
		if found && o.Revision != newest {
			wrong = fmt.Errorf("the answer at revision %d has the object of %d, want %d", snap.Revision, o.Revision, newest)
		}
		return true
	})
	return wrong
}

// TestAnsweredImpliesProven: whatever happens in whatever order, what is answered as the newest
// state holds every write that was acknowledged before the request came. A barrier that is broken
// on purpose is found.
func TestAnsweredImpliesProven(t *testing.T) {
	for _, broken := range []sabotage{sound, tooEarly, eventsProve, othersRevision, besideAlone, goalsForgotten, timeProves, anotherBookmarks} {
		t.Run(string(broken), func(t *testing.T) {
			answered := 0
			for seed := range uint64(300) {
				w := newBarrierWorld(seed, broken)
				for i := range 400 {
					if err := w.step(); err != nil {
						if broken == sound {
							t.Fatalf("seed %d, step %d: %v", seed, i, err)
						}
						return
					}
				}
				answered += w.answered
			}
			if broken != sound {
				t.Error("nothing wrong was found")
			}
			if answered < 1000 {
				t.Errorf("only %d requests were answered", answered)
			}
		})
	}
}
