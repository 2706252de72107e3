package freshness

import (
	"math/rand/v2"
	"testing"
	"time"
)

// freshnessAt is a feed in touch with its upstream, which asked it for the last time at a moment.
func freshnessAt(now time.Time) *Machine {
	f := &Machine{rhythm: rhythmOf(90*time.Second, 0), probe: Probe{Number: 7, Sent: now}}
	f.Follow(now)
	return f
}

// TestFreshness: what is done next, and when, after what has happened.
func TestFreshness(t *testing.T) {
	start := time.Now()
	at := start.Add
	for name, tt := range map[string]struct {
		happens func(f *Machine)
		now     time.Duration
		heard   time.Duration
		want    Action
	}{
		"nothing: the next probe is due by the rhythm": {
			happens: func(*Machine) {}, want: Action{Wake: at(18 * time.Second)},
		},
		"due": {
			happens: func(*Machine) {}, now: 18 * time.Second, want: Action{Probe: true},
		},
		"a probe is under way": {
			happens: func(f *Machine) { f.ProbeSent(Probe{8, start}) }, now: time.Hour, want: Action{},
		},
		"somebody waits for the newest state": {
			happens: func(f *Machine) { f.Await(start, 8) }, want: Action{Probe: true},
		},
		"for what is under way": {
			happens: func(f *Machine) { f.Await(start, 8); f.ProbeSent(Probe{8, start}) }, want: Action{},
		},
		"for more than is under way": {
			happens: func(f *Machine) {
				f.ProbeSent(Probe{8, start})
				f.Await(start, 9)
				f.Answered(start, 30, true)
			}, want: Action{Probe: true},
		},
		"for what was answered": {
			happens: func(f *Machine) {
				f.Await(start, 8)
				f.ProbeSent(Probe{8, start})
				f.Answered(start, 30, true)
			}, want: Action{Wake: at(18 * time.Second)},
		},
		"for an answer that the stream's end was sooner than": {
			happens: func(f *Machine) {
				f.Await(start, 8)
				f.ProbeSent(Probe{8, start})
				f.Stop()
				f.Follow(start)
			}, want: Action{Probe: true},
		},
		"for what the stream had not told at its end": {
			happens: func(f *Machine) { behind(f, start, true); f.Stop(); f.Follow(start) }, want: Action{Probe: true},
		},
		"another stream, and nobody waits": {
			happens: func(f *Machine) { behind(f, start, false); f.Stop(); f.Follow(start) }, want: Action{Wake: at(18 * time.Second)},
		},
		"somebody waits for a revision": {
			happens: func(f *Machine) { f.RequestProbe() }, want: Action{Wake: at(probePause)},
		},
		"the upstream wants to be spared": {
			happens: func(f *Machine) {
				f.ProbeSent(Probe{8, start})
				f.Refused(start, 5*time.Second)
				f.Await(start, 9)
			}, now: time.Second, want: Action{Wake: at(5 * time.Second)},
		},
		"no answer: not at once again": {
			happens: func(f *Machine) {
				f.ProbeSent(Probe{8, start})
				f.Unanswered(start)
				f.Await(start, 9)
			}, want: Action{Wake: at(probePause)},
		},
		"no answer, and somebody waits for it": {
			happens: func(f *Machine) {
				f.Await(start, 8)
				f.ProbeSent(Probe{8, start})
				f.Unanswered(start)
			}, now: probePause, want: Action{Probe: true},
		},
		"no answer again, and somebody still waits": {
			happens: func(f *Machine) {
				f.Await(start, 8)
				for n := range uint64(3) {
					f.ProbeSent(Probe{8 + n, start})
					f.Unanswered(start)
				}
			}, now: probePause, want: Action{Probe: true},
		},
		"no answer, and who waited has given up": {
			happens: func(f *Machine) {
				f.Await(start, 8)
				f.ProbeSent(Probe{8, at(awaitedKept)})
				f.Unanswered(at(awaitedKept))
			}, now: awaitedKept, want: Action{Wake: at(awaitedKept + 18*time.Second)},
		},
		"behind, and somebody waits: the stream has a moment to tell": {
			happens: func(f *Machine) { behind(f, start, true) }, want: Action{Wake: at(progressDelay)},
		},
		"behind, and somebody waits": {
			happens: func(f *Machine) { behind(f, start, true) }, now: progressDelay, want: Action{Progress: true},
		},
		"the stream has told it": {
			happens: func(f *Machine) { behind(f, start, true); f.Reached(30) }, now: progressDelay, want: Action{Wake: at(18 * time.Second)},
		},
		"the stream has told a part": {
			happens: func(f *Machine) { behind(f, start, true); f.Reached(29) }, now: progressDelay, want: Action{Progress: true},
		},
		"behind, and nobody waits: not before the state is old": {
			happens: func(f *Machine) { behind(f, start, false) }, now: progressDelay, want: Action{Wake: at(18 * time.Second)},
		},
		"behind, nobody waits, and the state is old": {
			happens: func(f *Machine) { behind(f, start, false); f.StreamSent(at(80 * time.Second)) },
			now:     84 * time.Second, want: Action{Progress: true},
		},
		"a watch beside is open": {
			happens: func(f *Machine) { behind(f, start, true); f.ProgressOpened() },
			now:     progressDelay, want: Action{Wake: at(18 * time.Second)},
		},
		"the watch beside has failed": {
			happens: func(f *Machine) {
				behind(f, start, true)
				f.ProgressOpened()
				f.ProgressFailed(start, 0)
			}, now: progressDelay, want: Action{Wake: at(progressPause)},
		},
		"it has failed again": {
			happens: func(f *Machine) {
				behind(f, start, true)
				f.ProgressFailed(start, 0)
				f.ProgressFailed(start, 0)
			}, now: progressDelay, want: Action{Wake: at(2 * progressPause)},
		},
		"it has failed for long, beside one stream after the other": {
			happens: func(f *Machine) {
				for range 100 {
					f.ProgressFailed(start, 0)
					f.Follow(start)
				}
				behind(f, start, true)
			}, now: progressDelay, want: Action{Wake: at(9 * time.Second)},
		},
		"it was refused for a time": {
			happens: func(f *Machine) {
				behind(f, start, true)
				f.ProgressFailed(start, 15*time.Second)
			}, now: progressDelay, want: Action{Wake: at(15 * time.Second)},
		},
		"it has failed after one that did not": {
			happens: func(f *Machine) {
				behind(f, start, true)
				f.ProgressFailed(start, 0)
				f.ProgressOver(false)
				f.ProgressFailed(start, 0)
			}, now: progressDelay, want: Action{Wake: at(progressPause)},
		},
		"two short watches had no bookmark": {
			happens: func(f *Machine) { unmarked(f, start, 2); behind(f, start, true) }, now: progressDelay, want: Action{Wake: at(2 * progressPause)},
		},
		"three had none: nothing is asked for a time": {
			happens: func(f *Machine) { unmarked(f, start, 3); f.Await(start, 9); f.RequestProbe() }, want: Action{Wake: at(unmarkedPause)},
		},
		"three had none, then it is tried again": {
			happens: func(f *Machine) { unmarked(f, start, 3); f.StreamSent(at(unmarkedPause)) }, now: unmarkedPause, want: Action{Probe: true},
		},
		"beside one stream after the other": {
			happens: func(f *Machine) {
				for range 4 {
					unmarked(f, start, 1)
					f.Follow(start)
				}
			}, want: Action{Wake: at(2 * unmarkedPause)},
		},
		"it has had none for long": {
			happens: func(f *Machine) { unmarked(f, start, 100) }, want: Action{Wake: at(longestUnmarked)},
		},
		"one had one again": {
			happens: func(f *Machine) { unmarked(f, start, 100); f.ProgressOver(false); f.Await(start, 9) }, want: Action{Probe: true},
		},
		"the upstream wants to be spared for longer than a stream's pause": {
			happens: func(f *Machine) {
				f.Refused(start, 5*time.Second)
				f.Refused(start, time.Second)
				f.Await(start, 9)
			}, want: Action{Wake: at(5 * time.Second)},
		},
		"the watch beside told what the stream had not, and lists keep coming": {
			happens: func(f *Machine) {
				behind(f, start, true)
				f.ProgressOpened()
				f.ProgressOver(true)
				f.Reached(30)
			}, want: Action{Progress: true},
		},
		"and they have ended": {
			happens: func(f *Machine) {
				behind(f, start, true)
				f.ProgressOpened()
				f.ProgressOver(true)
				f.Reached(30)
			}, now: progressKept, want: Action{Wake: at(18 * time.Second)},
		},
		"a probe went without an answer since the stream told something": {
			happens: func(f *Machine) {
				f.ProbeSent(Probe{8, start})
				f.Unanswered(at(1))
				behind(f, start, true)
			}, now: time.Second, want: Action{Leave: true},
		},
		"and it has told something": {
			happens: func(f *Machine) {
				f.ProbeSent(Probe{8, start})
				f.Unanswered(at(1))
				f.StreamSent(at(2))
				behind(f, start, true)
			}, now: time.Second, want: Action{Progress: true},
		},
		"the stream was silent for longer than bookmarks take": {
			happens: func(f *Machine) { behind(f, at(70*time.Second), true) }, now: 71 * time.Second, want: Action{Leave: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := freshnessAt(start)
			tt.happens(f)
			if got := f.Next(at(tt.now), at(tt.heard)); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// behind lets the feed learn that the upstream is at revision 30, which the span has not reached.
func behind(f *Machine, now time.Time, awaited bool) {
	if awaited {
		f.Await(now, f.probe.Number+1)
	}
	f.ProbeSent(Probe{f.probe.Number + 1, now})
	f.Answered(now, 30, false)
}

// unmarked makes short watches end without a bookmark.
func unmarked(f *Machine, now time.Time, n int) {
	for range n {
		f.ProgressOpened()
		f.ProgressUnmarked(now)
	}
}

// TestFreshnessKeepsItsRules: whatever happens, one probe and one watch beside are under way at
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
				f.Await(now, f.probe.Number+1+uint64(rng.IntN(2)))
			case 1:
				f.RequestProbe()
			case 2:
				to += uint64(rng.IntN(3))
				f.StreamSent(now)
				f.Reached(to)
			case 3, 4, 5:
				if f.probing {
					switch rng.IntN(5) {
					case 0:
						f.Refused(now, time.Duration(rng.IntN(10))*time.Second)
					case 1:
						f.Unanswered(now)
					case 2:
						f.Answered(now, to, true)
						heard = f.probe.Sent
					default:
						f.Answered(now, to+uint64(1+rng.IntN(5)), false)
					}
				}
			case 6:
				if beside {
					beside = false
					switch rng.IntN(4) {
					case 0:
						f.ProgressFailed(now, time.Duration(rng.IntN(5))*time.Second)
					case 1:
						f.ProgressUnmarked(now)
					default:
						f.ProgressOver(rng.IntN(2) == 0)
					}
				}
			case 7:
				if rng.IntN(20) == 0 {
					f.Follow(now)
					beside = false
				}
			}
			for range 4 { // at most leave, beside and ask come one after the other
				do := f.Next(now, heard)
				switch {
				case do.Leave:
					f.Follow(now)
					beside = false
					continue
				case do.Progress:
					if beside || f.PastUncertain(now) {
						t.Fatalf("seed %d: a watch beside, while another is %v, in doubt %v", seed, beside, f.PastUncertain(now))
					}
					beside = true
					f.ProgressOpened()
					continue
				case do.Probe:
					if f.probing || now.Before(f.probesFrom) || f.NoBookmarks() && now.Before(f.progressFrom) {
						t.Fatalf("seed %d: a probe, while another is %v, spared for %v", seed, f.probing, f.probesFrom.Sub(now))
					}
					f.ProbeSent(Probe{f.probe.Number + 1, now})
					continue
				}
				if !f.probing && f.awaited > f.probe.Number && !now.Before(f.probesFrom) && !f.NoBookmarks() {
					t.Fatalf("seed %d: somebody waits, and nothing is asked", seed)
				}
				if !f.probing && do.Wake.IsZero() {
					t.Fatalf("seed %d: nothing is to be done ever again", seed)
				}
				if !do.Wake.IsZero() && !do.Wake.After(now) {
					t.Fatalf("seed %d: to be looked at again at once: %+v", seed, do)
				}
				break
			}
		}
	}
}
