package snapshot

import (
	"math/rand/v2"
	"testing"
	"time"
)

// freshnessAt is a feed in touch with its upstream, which asked it for the last time at a moment.
func freshnessAt(now time.Time) *freshness {
	f := &freshness{rhythm: rhythmOf(90*time.Second, 0), sent: inquiry{number: 7, asked: now}}
	f.follow(now)
	return f
}

// TestFreshness: what is done next, and when, after what has happened.
func TestFreshness(t *testing.T) {
	start := time.Now()
	at := start.Add
	for name, tt := range map[string]struct {
		happens func(f *freshness)
		now     time.Duration
		heard   time.Duration
		want    action
	}{
		"nothing: the next question is due by the rhythm": {
			happens: func(*freshness) {}, want: action{again: at(18 * time.Second)},
		},
		"due": {
			happens: func(*freshness) {}, now: 18 * time.Second, want: action{ask: true},
		},
		"a question is under way": {
			happens: func(f *freshness) { f.ask(inquiry{8, start}) }, now: time.Hour, want: action{},
		},
		"somebody waits for the newest state": {
			happens: func(f *freshness) { f.wish(start, 8) }, want: action{ask: true},
		},
		"for what is under way": {
			happens: func(f *freshness) { f.wish(start, 8); f.ask(inquiry{8, start}) }, want: action{},
		},
		"for more than is under way": {
			happens: func(f *freshness) {
				f.ask(inquiry{8, start})
				f.wish(start, 9)
				f.answered(start, 30, true)
			}, want: action{ask: true},
		},
		"for what was answered": {
			happens: func(f *freshness) {
				f.wish(start, 8)
				f.ask(inquiry{8, start})
				f.answered(start, 30, true)
			}, want: action{again: at(18 * time.Second)},
		},
		"somebody waits for a revision": {
			happens: func(f *freshness) { f.demand() }, want: action{again: at(demandPause)},
		},
		"the upstream wants to be spared": {
			happens: func(f *freshness) {
				f.ask(inquiry{8, start})
				f.refused(start, 5*time.Second)
				f.wish(start, 9)
			}, now: time.Second, want: action{again: at(5 * time.Second)},
		},
		"no answer: not at once again": {
			happens: func(f *freshness) {
				f.ask(inquiry{8, start})
				f.unanswered(start)
				f.wish(start, 9)
			}, want: action{again: at(demandPause)},
		},
		"behind, and somebody waits: the stream has a moment to tell": {
			happens: func(f *freshness) { behind(f, start, true) }, want: action{again: at(besideDelay)},
		},
		"behind, and somebody waits": {
			happens: func(f *freshness) { behind(f, start, true) }, now: besideDelay, want: action{beside: true},
		},
		"the stream has told it": {
			happens: func(f *freshness) { behind(f, start, true); f.reached(30) }, now: besideDelay, want: action{again: at(18 * time.Second)},
		},
		"the stream has told a part": {
			happens: func(f *freshness) { behind(f, start, true); f.reached(29) }, now: besideDelay, want: action{beside: true},
		},
		"behind, and nobody waits: not before the state is old": {
			happens: func(f *freshness) { behind(f, start, false) }, now: besideDelay, want: action{again: at(18 * time.Second)},
		},
		"behind, nobody waits, and the state is old": {
			happens: func(f *freshness) { behind(f, start, false); f.streamTold(at(80 * time.Second)) },
			now:     84 * time.Second, want: action{beside: true},
		},
		"a watch beside is open": {
			happens: func(f *freshness) { behind(f, start, true); f.besideOpened(start) },
			now:     besideDelay, want: action{again: at(18 * time.Second)},
		},
		"the watch beside has failed": {
			happens: func(f *freshness) {
				behind(f, start, true)
				f.besideOpened(start)
				f.besideOver(start, false, true)
			}, now: besideDelay, want: action{again: at(besidePause)},
		},
		"the watch beside told what the stream had not, and lists keep coming": {
			happens: func(f *freshness) {
				behind(f, start, true)
				f.besideOpened(start)
				f.besideOver(start, true, false)
				f.reached(30)
			}, want: action{beside: true},
		},
		"and they have ended": {
			happens: func(f *freshness) {
				behind(f, start, true)
				f.besideOpened(start)
				f.besideOver(start, true, false)
				f.reached(30)
			}, now: besideKept, want: action{again: at(18 * time.Second)},
		},
		"a question went without an answer since the stream told something": {
			happens: func(f *freshness) {
				f.ask(inquiry{8, start})
				f.unanswered(at(1))
				behind(f, start, true)
			}, now: time.Second, want: action{leave: true},
		},
		"and it has told something": {
			happens: func(f *freshness) {
				f.ask(inquiry{8, start})
				f.unanswered(at(1))
				f.streamTold(at(2))
				behind(f, start, true)
			}, now: time.Second, want: action{beside: true},
		},
		"the stream was silent for longer than bookmarks take": {
			happens: func(f *freshness) { behind(f, at(70*time.Second), true) }, now: 71 * time.Second, want: action{leave: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := freshnessAt(start)
			tt.happens(f)
			if got := f.next(at(tt.now), at(tt.heard)); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// behind lets the feed learn that the upstream is at revision 30, which the span has not reached.
func behind(f *freshness, now time.Time, awaited bool) {
	if awaited {
		f.wish(now, f.sent.number+1)
	}
	f.ask(inquiry{f.sent.number + 1, now})
	f.answered(now, 30, false)
}

// TestFreshnessKeepsItsRules: whatever happens, one question and one watch beside are under way at
// most, none while the upstream wants to be spared, and what somebody waits for is asked for at
// once.
func TestFreshnessKeepsItsRules(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		now := time.Now()
		f := freshnessAt(now)
		heard, to, beside := now, uint64(10), false
		for range 500 {
			now = now.Add(time.Duration(rng.IntN(2000)) * time.Millisecond)
			switch rng.IntN(10) {
			case 0:
				f.wish(now, f.sent.number+1+uint64(rng.IntN(2)))
			case 1:
				f.demand()
			case 2:
				f.streamTold(now)
				to += uint64(rng.IntN(3))
				f.reached(to)
			case 3, 4, 5:
				if f.asking {
					switch rng.IntN(5) {
					case 0:
						f.refused(now, time.Duration(rng.IntN(10))*time.Second)
					case 1:
						f.unanswered(now)
					case 2:
						f.answered(now, to, true)
						heard = f.sent.asked
					default:
						f.answered(now, to+uint64(1+rng.IntN(5)), false)
					}
				}
			case 6:
				if beside {
					beside = false
					f.besideOver(now, rng.IntN(2) == 0, rng.IntN(2) == 0)
				}
			case 7:
				if rng.IntN(20) == 0 {
					f.follow(now)
					beside = false
				}
			}
			for range 4 { // at most leave, beside and ask come one after the other
				do := f.next(now, heard)
				switch {
				case do.leave:
					f.follow(now)
					beside = false
					continue
				case do.beside:
					if beside || f.inDoubt(now) {
						t.Fatalf("seed %d: a watch beside, while another is %v, in doubt %v", seed, beside, f.inDoubt(now))
					}
					beside = true
					f.besideOpened(now)
					continue
				case do.ask:
					if f.asking || now.Before(f.spared) {
						t.Fatalf("seed %d: a question, while another is %v, spared for %v", seed, f.asking, f.spared.Sub(now))
					}
					f.ask(inquiry{f.sent.number + 1, now})
					continue
				}
				if !f.asking && f.wished > f.sent.number && !now.Before(f.spared) {
					t.Fatalf("seed %d: somebody waits, and nothing is asked", seed)
				}
				if !f.asking && do.again.IsZero() {
					t.Fatalf("seed %d: nothing is to be done ever again", seed)
				}
				if !do.again.IsZero() && !do.again.After(now) {
					t.Fatalf("seed %d: to be looked at again at once: %+v", seed, do)
				}
				break
			}
		}
	}
}
