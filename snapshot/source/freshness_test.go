package source

import (
	"testing"
	"time"
)

// freshnessAt is that of a feed whose stream is open, and whose last probe was sent at a moment.
func freshnessAt(now time.Time) *Freshness {
	f := &Freshness{schedule: newProbeSchedule(90*time.Second, 0), probe: Probe{Number: 7, Sent: now}}
	f.Follow(now)
	return f
}

// TestFreshness: Next says what the feed has to do, and when, after what has happened.
func TestFreshness(t *testing.T) {
	start := time.Now()
	at := start.Add
	type event = func(f *Freshness)
	repeat := func(n int, events ...event) event {
		return func(f *Freshness) {
			for range n {
				for _, happen := range events {
					happen(f)
				}
			}
		}
	}
	// Lists that wait for the newest state, and probes, of which the first is number 8.
	awaitProbe := func(number uint64) event { return func(f *Freshness) { f.Await(start, number) } }
	probeSent := func(f *Freshness) { f.ProbeSent(Probe{f.probe.Number + 1, start}) }
	probeAnswered := func(f *Freshness) { f.Answered(start, 30, true) }
	probeUnanswered := func(f *Freshness) { f.Unanswered(start) }
	probeUnansweredAt := func(after time.Duration) event {
		return func(f *Freshness) {
			f.ProbeSent(Probe{8, at(after)})
			f.Unanswered(at(after))
		}
	}
	refused := func(pause time.Duration) event { return func(f *Freshness) { f.Refused(start, pause) } }
	// The stream, which tells all up to a revision.
	streamEnds, streamBegins := (*Freshness).Stop, func(f *Freshness) { f.Follow(start) }
	streamSentAt := func(at time.Time) event { return func(f *Freshness) { f.StreamSent(at) } }
	streamReaches := func(revision uint64) event { return func(f *Freshness) { f.Reached(revision) } }
	// The upstream is at revision 30, which the stream has not reached.
	behind := func(f *Freshness) {
		probeSent(f)
		f.Answered(start, 30, false)
	}
	behindAwaited := func(f *Freshness) {
		f.Await(start, f.probe.Number+1)
		behind(f)
	}
	// The progress watch.
	progressOpened := (*Freshness).ProgressOpened
	progressFailed := func(pause time.Duration) event { return func(f *Freshness) { f.ProgressFailed(start, pause) } }
	progressOver := func(ahead bool) event { return func(f *Freshness) { f.ProgressOver(ahead) } }
	withoutBookmark := func(n int) event {
		return repeat(n, progressOpened, func(f *Freshness) { f.ProgressUnmarked(start) })
	}
	probe, progress, leave := Action{Probe: true}, Action{Progress: true}, Action{Leave: true}
	wake := func(after time.Duration) Action { return Action{Wake: at(after)} }
	scheduled := wake(18 * time.Second)
	for name, tt := range map[string]struct {
		happened []event
		after    time.Duration
		want     Action
	}{
		"nothing: the next probe is due by the schedule": {want: scheduled},
		"due": {after: 18 * time.Second, want: probe},
		"due again, where the state is old already": {
			happened: []event{probeUnansweredAt(84 * time.Second)},
			after:    84 * time.Second, want: wake(93 * time.Second),
		},
		"a probe is in flight":                {happened: []event{probeSent}, after: time.Hour, want: Action{}},
		"a list waits for the newest state":   {happened: []event{awaitProbe(8)}, want: probe},
		"for a later probe than is in flight": {happened: []event{probeSent, awaitProbe(9), probeAnswered}, want: probe},
		"for an answer that the stream's end was sooner than": {
			happened: []event{awaitProbe(8), probeSent, streamEnds, streamBegins}, want: probe,
		},
		"for what the stream had not told at its end": {
			happened: []event{behindAwaited, streamEnds, streamBegins}, want: probe,
		},
		"a list waits for a revision": {happened: []event{(*Freshness).RequestProbe}, want: wake(probePause)},
		"the upstream wants to be spared for longer than a stream's pause": {
			happened: []event{refused(5 * time.Second), refused(time.Second), awaitProbe(9)}, want: wake(5 * time.Second),
		},
		"no answer: not at once again": {
			happened: []event{probeSent, probeUnanswered, awaitProbe(9)}, want: wake(probePause),
		},
		"no answer again, and a list still waits": {
			happened: []event{awaitProbe(8), repeat(3, probeSent, probeUnanswered)}, after: probePause, want: probe,
		},
		"no answer, and the list that waited has given up": {
			happened: []event{awaitProbe(8), probeUnansweredAt(awaitedKept)},
			after:    awaitedKept, want: wake(awaitedKept + 18*time.Second),
		},
		"behind, and a list waits: the stream has a moment to tell": {
			happened: []event{behindAwaited}, want: wake(progressDelay),
		},
		"the stream has told a part": {
			happened: []event{behindAwaited, streamReaches(29)}, after: progressDelay, want: progress,
		},
		"behind, and nobody waits: not before the state is old": {
			happened: []event{behind}, after: progressDelay, want: scheduled,
		},
		"behind, nobody waits, and the state is old": {
			happened: []event{behind, streamSentAt(at(80 * time.Second))}, after: 84 * time.Second, want: progress,
		},
		"a progress watch is open": {
			happened: []event{behindAwaited, progressOpened}, after: progressDelay, want: scheduled,
		},
		"the progress watch has failed": {
			happened: []event{behindAwaited, progressOpened, progressFailed(0)}, after: progressDelay, want: wake(progressPause),
		},
		"it has failed for long, beside one stream after the other": {
			happened: []event{repeat(100, progressFailed(0), streamBegins), behindAwaited},
			after:    progressDelay, want: wake(9 * time.Second),
		},
		"it was refused for a time": {
			happened: []event{behindAwaited, progressFailed(15 * time.Second)},
			after:    progressDelay, want: wake(15 * time.Second),
		},
		"it has failed after one that did not": {
			happened: []event{behindAwaited, progressFailed(0), progressOver(false), progressFailed(0)},
			after:    progressDelay, want: wake(progressPause),
		},
		"three had no bookmark: nothing is asked for a time": {
			happened: []event{withoutBookmark(3), awaitProbe(9), (*Freshness).RequestProbe}, want: wake(unmarkedPause),
		},
		"three had none, then it is tried again": {
			happened: []event{withoutBookmark(3), streamSentAt(at(unmarkedPause))}, after: unmarkedPause, want: probe,
		},
		"it has had none for long": {happened: []event{withoutBookmark(100)}, want: wake(maxUnmarkedPause)},
		"one had one again": {
			happened: []event{withoutBookmark(100), progressOver(false), awaitProbe(9)}, want: probe,
		},
		"the progress watch told what the stream had not, and lists keep coming": {
			happened: []event{behindAwaited, progressOpened, progressOver(true), streamReaches(30)}, want: progress,
		},
		"a probe went without an answer since the stream told something": {
			happened: []event{probeSent, func(f *Freshness) { f.Unanswered(at(1)) }, behindAwaited},
			after:    time.Second, want: leave,
		},
		"and it has told something": {
			happened: []event{probeSent, func(f *Freshness) { f.Unanswered(at(1)) }, streamSentAt(at(2)), behindAwaited},
			after:    time.Second, want: progress,
		},
		"the stream was silent for longer than bookmarks take": {
			happened: []event{func(f *Freshness) {
				f.Await(at(70*time.Second), 8)
				f.ProbeSent(Probe{8, at(70 * time.Second)})
				f.Answered(at(70*time.Second), 30, false)
			}},
			after: 71 * time.Second, want: leave,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := freshnessAt(start)
			repeat(1, tt.happened...)(f)
			if got := f.Next(at(tt.after), start); got != tt.want {
				t.Errorf("after %v: %+v, want %+v", tt.after, got, tt.want)
			}
		})
	}
}
