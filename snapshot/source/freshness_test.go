package source

import (
	"testing"
	"time"
)

// freshnessAt is a feed in touch with its upstream, which asked it for the last time at a moment.
func freshnessAt(now time.Time) *Freshness {
	f := &Freshness{schedule: newProbeSchedule(90*time.Second, 0), probe: Probe{Number: 7, Sent: now}}
	f.Follow(now)
	return f
}

// TestFreshness: what is done next, and when, after what has happened.
func TestFreshness(t *testing.T) {
	start := time.Now()
	at := start.Add
	type happens = func(f *Freshness)
	times := func(n int, what ...happens) happens {
		return func(f *Freshness) {
			for range n {
				for _, do := range what {
					do(f)
				}
			}
		}
	}
	// Who waits for the newest state, and probes, of which the first is number 8.
	awaits := func(number uint64) happens { return func(f *Freshness) { f.Await(start, number) } }
	sent := func(f *Freshness) { f.ProbeSent(Probe{f.probe.Number + 1, start}) }
	answered := func(f *Freshness) { f.Answered(start, 30, true) }
	unanswered := func(f *Freshness) { f.Unanswered(start) }
	refused := func(pause time.Duration) happens { return func(f *Freshness) { f.Refused(start, pause) } }
	// The stream, which tells all up to a revision.
	ends, follows := (*Freshness).Stop, func(f *Freshness) { f.Follow(start) }
	tells := func(at time.Time) happens { return func(f *Freshness) { f.StreamSent(at) } }
	reaches := func(revision uint64) happens { return func(f *Freshness) { f.Reached(revision) } }
	// The upstream is at revision 30, which the stream has not reached.
	behind := func(f *Freshness) { sent(f); f.Answered(start, 30, false) }
	behindAwaited := func(f *Freshness) { f.Await(start, f.probe.Number+1); behind(f) }
	// The watch beside.
	opened := (*Freshness).ProgressOpened
	failed := func(pause time.Duration) happens { return func(f *Freshness) { f.ProgressFailed(start, pause) } }
	over := func(ahead bool) happens { return func(f *Freshness) { f.ProgressOver(ahead) } }
	unmarked := func(n int) happens {
		return times(n, opened, func(f *Freshness) { f.ProgressUnmarked(start) })
	}
	probe, beside, leave := Action{Probe: true}, Action{Progress: true}, Action{Leave: true}
	wake := func(after time.Duration) Action { return Action{Wake: at(after)} }
	probeSchedule := wake(18 * time.Second)
	for name, tt := range map[string]struct {
		happened []happens
		now      time.Duration
		want     Action
	}{
		"nothing: the next probe is due by the probeSchedule": {nil, 0, probeSchedule},
		"due": {nil, 18 * time.Second, probe},
		"due again, where the state is old already": {[]happens{func(f *Freshness) {
			f.ProbeSent(Probe{8, at(84 * time.Second)})
			f.Unanswered(at(84 * time.Second))
		}}, 84 * time.Second, wake(93 * time.Second)},
		"a probe is under way":                                {[]happens{sent}, time.Hour, Action{}},
		"somebody waits for the newest state":                 {[]happens{awaits(8)}, 0, probe},
		"for more than is under way":                          {[]happens{sent, awaits(9), answered}, 0, probe},
		"for an answer that the stream's end was sooner than": {[]happens{awaits(8), sent, ends, follows}, 0, probe},
		"for what the stream had not told at its end":         {[]happens{behindAwaited, ends, follows}, 0, probe},
		"somebody waits for a revision":                       {[]happens{(*Freshness).RequestProbe}, 0, wake(probePause)},
		"the upstream wants to be spared for longer than a stream's pause": {
			[]happens{refused(5 * time.Second), refused(time.Second), awaits(9)}, 0, wake(5 * time.Second),
		},
		"no answer: not at once again":              {[]happens{sent, unanswered, awaits(9)}, 0, wake(probePause)},
		"no answer again, and somebody still waits": {[]happens{awaits(8), times(3, sent, unanswered)}, probePause, probe},
		"no answer, and who waited has given up": {
			[]happens{awaits(8), func(f *Freshness) { f.ProbeSent(Probe{8, at(awaitedKept)}); f.Unanswered(at(awaitedKept)) }},
			awaitedKept, wake(awaitedKept + 18*time.Second),
		},
		"behind, and somebody waits: the stream has a moment to tell": {[]happens{behindAwaited}, 0, wake(progressDelay)},
		"the stream has told a part":                                  {[]happens{behindAwaited, reaches(29)}, progressDelay, beside},
		"behind, and nobody waits: not before the state is old":       {[]happens{behind}, progressDelay, probeSchedule},
		"behind, nobody waits, and the state is old":                  {[]happens{behind, tells(at(80 * time.Second))}, 84 * time.Second, beside},
		"a watch beside is open":                                      {[]happens{behindAwaited, opened}, progressDelay, probeSchedule},
		"the watch beside has failed":                                 {[]happens{behindAwaited, opened, failed(0)}, progressDelay, wake(progressPause)},
		"it has failed for long, beside one stream after the other":   {[]happens{times(100, failed(0), follows), behindAwaited}, progressDelay, wake(9 * time.Second)},
		"it was refused for a time":                                   {[]happens{behindAwaited, failed(15 * time.Second)}, progressDelay, wake(15 * time.Second)},
		"it has failed after one that did not":                        {[]happens{behindAwaited, failed(0), over(false), failed(0)}, progressDelay, wake(progressPause)},
		"three had none: nothing is asked for a time":                 {[]happens{unmarked(3), awaits(9), (*Freshness).RequestProbe}, 0, wake(unmarkedPause)},
		"three had none, then it is tried again":                      {[]happens{unmarked(3), tells(at(unmarkedPause))}, unmarkedPause, probe},
		"it has had none for long":                                    {[]happens{unmarked(100)}, 0, wake(longestUnmarked)},
		"one had one again":                                           {[]happens{unmarked(100), over(false), awaits(9)}, 0, probe},
		"the watch beside told what the stream had not, and lists keep coming": {
			[]happens{behindAwaited, opened, over(true), reaches(30)}, 0, beside,
		},
		"a probe went without an answer since the stream told something": {
			[]happens{sent, func(f *Freshness) { f.Unanswered(at(1)) }, behindAwaited}, time.Second, leave,
		},
		"and it has told something": {
			[]happens{sent, func(f *Freshness) { f.Unanswered(at(1)) }, tells(at(2)), behindAwaited}, time.Second, beside,
		},
		"the stream was silent for longer than bookmarks take": {[]happens{func(f *Freshness) {
			f.Await(at(70*time.Second), 8)
			f.ProbeSent(Probe{8, at(70 * time.Second)})
			f.Answered(at(70*time.Second), 30, false)
		}}, 71 * time.Second, leave},
	} {
		t.Run(name, func(t *testing.T) {
			f := freshnessAt(start)
			times(1, tt.happened...)(f)
			if got := f.Next(at(tt.now), start); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}
