package source

import (
	"testing"
	"time"
)

// newTestFreshness returns a Freshness whose stream was opened now, and whose last probe, number 7, was sent now.
func newTestFreshness(now time.Time) *Freshness {
	f := &Freshness{schedule: newProbeSchedule(90*time.Second, 0), lastProbe: Probe{Number: 7, Sent: now}}
	f.StreamOpened(now)
	return f
}

// TestFreshness: Next returns the step that is due after some events. If none is, it returns when to call Next again.
func TestFreshness(t *testing.T) {
	start := time.Now()
	at := start.Add
	type event = func(f *Freshness)
	sequence := func(events ...event) event {
		return func(f *Freshness) {
			for _, happen := range events {
				happen(f)
			}
		}
	}
	threeTimes := func(e event) event { return sequence(e, e, e) }
	// Probes. The upstream is at revision 30.
	const nextProbe, laterProbe = 8, 9 // the numbers of the first two probes that a case sends
	awaitProbe := func(number uint64) event { return func(f *Freshness) { f.ProbeAwaited(start, number) } }
	probeSent := func(f *Freshness) { f.ProbeSent(Probe{Number: f.lastProbe.Number + 1, Sent: start}) }
	probeAnswered := func(f *Freshness) { f.ProbeAnswered(start, 30) }
	probeUnansweredAt := func(after time.Duration) event {
		return func(f *Freshness) {
			f.ProbeSent(Probe{Number: nextProbe, Sent: at(after)})
			f.ProbeFailed(at(after))
		}
	}
	probeRefused := func(pause time.Duration) event { return func(f *Freshness) { f.ProbeRefused(start, pause) } }
	behind := sequence(probeSent, probeAnswered)
	behindAwaitedAt := func(after time.Duration) event { // a list waits until the state reaches the answer to a probe
		return func(f *Freshness) {
			number := f.lastProbe.Number + 1
			f.ProbeAwaited(at(after), number)
			f.ProbeSent(Probe{Number: number, Sent: at(after)})
			f.ProbeAnswered(at(after), 30)
		}
	}
	behindAwaited := behindAwaitedAt(0)
	// The stream.
	streamBegins := func(f *Freshness) { f.StreamOpened(start) }
	streamSentAt := func(after time.Duration) event { return func(f *Freshness) { f.StreamSentEvent(at(after)) } }
	streamReaches := func(revision uint64) event { return func(f *Freshness) { f.StateReached(revision) } }
	// Progress watches.
	progressOpened := (*Freshness).ProgressOpened
	progressFailed := func(retryAfter time.Duration) event {
		return func(f *Freshness) { f.ProgressFailed(start, retryAfter) }
	}
	progressHelped := func(f *Freshness) { f.ProgressSentBookmark(true) }
	noBookmark := sequence(progressOpened, func(f *Freshness) { f.ProgressTimedOut(start) })

	waitForEvent := Action{}
	probe := Action{Step: SendProbe}
	progress := Action{Step: OpenProgressWatch}
	leave := Action{Step: LeaveStream}
	wakeAfter := func(after time.Duration) Action { return Action{Wake: at(after)} }
	scheduled := wakeAfter(18 * time.Second) // for the next probe, after a fifth of the bound
	for name, tt := range map[string]struct {
		happened []event
		after    time.Duration // since the start; Next is called then
		want     Action
	}{
		// When a probe is sent.
		"nothing happened":            {want: scheduled},
		"the next probe is due":       {after: 18 * time.Second, want: probe},
		"a probe is unanswered":       {happened: []event{probeSent}, after: time.Hour, want: waitForEvent},
		"a list awaits a proof":       {happened: []event{awaitProbe(nextProbe)}, want: probe},
		"a list awaits a later probe": {happened: []event{probeSent, awaitProbe(laterProbe), probeAnswered, streamReaches(30)}, want: probe},
		"the stream ended before an answer": {
			happened: []event{awaitProbe(nextProbe), probeSent, streamBegins}, want: probe,
		},
		"the stream ended before it reached an awaited answer": {
			happened: []event{behindAwaited, streamBegins}, want: probe,
		},
		"a list waits for a revision":          {happened: []event{(*Freshness).ProbeRequested}, want: wakeAfter(probePause)},
		"a list awaited a proof that has come": {happened: []event{awaitProbe(7)}, want: scheduled},
		"the upstream refused an awaited probe for 5s": {
			happened: []event{awaitProbe(nextProbe), probeSent, probeRefused(5 * time.Second)}, want: wakeAfter(5 * time.Second),
		},
		"the upstream refused a probe for 5s": {
			happened: []event{probeRefused(5 * time.Second), probeRefused(time.Second), awaitProbe(laterProbe)},
			want:     wakeAfter(5 * time.Second),
		},
		"no answer, and a list awaits a proof": {
			happened: []event{awaitProbe(nextProbe), probeUnansweredAt(0)}, want: wakeAfter(probePause),
		},
		"no answer several times, and a list awaits a proof": {
			happened: []event{awaitProbe(nextProbe), threeTimes(probeUnansweredAt(0))}, after: probePause, want: probe,
		},

		// When a progress watch is opened.
		"the stream has not reached an awaited answer yet": {
			happened: []event{behindAwaited}, want: wakeAfter(progressDelay),
		},
		"the stream has not reached an awaited answer in time": {
			happened: []event{behindAwaited, streamReaches(29)}, after: progressDelay, want: progress,
		},
		"the stream has not reached an awaited answer for longer than a list waits": {
			happened: []event{behindAwaited, streamSentAt(longestWait)}, after: longestWait, want: probe,
		},
		"the stream has not reached the answer to a requested probe in time": {
			happened: []event{(*Freshness).ProbeRequested, behind}, after: progressDelay, want: progress,
		},
		"the stream has not reached an answer, and the state is old": {
			happened: []event{behind, streamSentAt(80 * time.Second)}, after: 84 * time.Second, want: progress,
		},
		"a progress watch is open": {
			happened: []event{behindAwaited, progressOpened}, after: progressDelay, want: scheduled,
		},
		"a progress watch has failed": {
			happened: []event{behindAwaited, progressOpened, progressFailed(0)}, after: progressDelay, want: wakeAfter(minFailurePause),
		},
		"the upstream refused a progress watch for 10s": {
			happened: []event{behindAwaited, progressOpened, progressFailed(10 * time.Second)}, after: progressDelay,
			want: wakeAfter(10 * time.Second),
		},
		"three progress watches had no bookmark": {
			happened: []event{threeTimes(noBookmark), awaitProbe(laterProbe), (*Freshness).ProbeRequested},
			want:     wakeAfter(missingBookmarksPause),
		},
		"three progress watches had no bookmark, some time ago": {
			happened: []event{threeTimes(noBookmark), streamSentAt(missingBookmarksPause)}, after: missingBookmarksPause, want: probe,
		},
		"a progress watch helped, and lists keep coming": {
			happened: []event{behindAwaited, progressOpened, progressHelped, streamReaches(30)}, want: progress,
		},
		"a progress watch helped after a requested probe": {
			happened: []event{(*Freshness).ProbeRequested, behind, progressOpened, progressHelped}, want: wakeAfter(progressDelay),
		},

		// When a progress watch would prove nothing.
		"no answer since the stream last sent something": {
			happened: []event{probeUnansweredAt(time.Millisecond), behindAwaited}, after: time.Second, want: leave,
		},
		"no answer before the stream last sent something": {
			happened: []event{probeUnansweredAt(time.Millisecond), streamSentAt(2 * time.Millisecond), behindAwaited},
			after:    time.Second, want: progress,
		},
		"the stream was silent for longer than bookmarks take": {
			happened: []event{behindAwaitedAt(70 * time.Second)}, after: 71 * time.Second, want: leave,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newTestFreshness(start)
			sequence(tt.happened...)(f)
			proven := Probe{Number: 7, Sent: start}
			if got := f.Next(at(tt.after), proven); got != tt.want {
				t.Errorf("%v after the start: got %+v, want %+v", tt.after, got, tt.want)
			}
		})
	}
}

// TestUnreachedAnswersAreBounded: at most maxPending answers are kept, however long a stream lags. Even so, the state counts as
// about as new as the last probe whose answer it has reached.
func TestUnreachedAnswersAreBounded(t *testing.T) {
	const last = 10 * maxPending
	f := newTestFreshness(time.Now())
	for number := uint64(8); number <= last; number++ {
		f.ProbeSent(Probe{Number: number})
		f.ProbeAnswered(time.Now(), number)
		if n := len(f.pending); n > maxPending {
			t.Fatalf("got %d answers, want at most %d", n, maxPending)
		}
	}
	if proof := f.StateReached(last); proof.Number != last {
		t.Errorf("at the last revision: got probe %d, want %d", proof.Number, last)
	}
	if proof := f.StateReached(last); proof != (Probe{}) {
		t.Errorf("once more: got probe %d, want none", proof.Number)
	}
}

// TestSameAnswerOnceMore: if the upstream answers several probes with one revision, the last of them proves the state, but a
// progress watch is due since the first.
func TestSameAnswerOnceMore(t *testing.T) {
	start := time.Now()
	f := newTestFreshness(start)
	for number := uint64(8); number <= 10; number++ {
		sent := Probe{Number: number, Sent: start.Add(time.Duration(number-8) * progressDelay)}
		f.ProbeAwaited(sent.Sent, number)
		f.ProbeSent(sent)
		f.ProbeAnswered(sent.Sent, 30)
	}
	if next := f.Next(start.Add(progressDelay), Probe{Number: 7, Sent: start}); next.Step != OpenProgressWatch {
		t.Errorf("progressDelay after the first answer: got %+v, want a progress watch", next)
	}
	if proof := f.StateReached(30); proof.Number != 10 {
		t.Errorf("got probe %d, want 10", proof.Number)
	}
}
