package source

import (
	"testing"
	"time"
)

// The numbers of probes.
const (
	provenNumber = 7 // of the probe that is sent, and has proven the state, when a test starts
	nextNumber   = 8
	laterNumber  = 9
)

// newTestFreshness returns a Freshness whose stream was opened now, and whose last probe was sent now.
func newTestFreshness(now time.Time) *Freshness {
	f := &Freshness{schedule: newProbeSchedule(90*time.Second, 0), lastProbe: Probe{Number: provenNumber, Sent: now}}
	f.StreamOpened(now)
	return f
}

// TestFreshness: Next returns the step that is due after some events. If none is, it returns when to call Next again.
func TestFreshness(t *testing.T) {
	start := time.Now()
	at := start.Add
	const upstream = 30 // the upstream's revision
	type event = func(f *Freshness)
	sequence := func(events ...event) event {
		return func(f *Freshness) {
			for _, happen := range events {
				happen(f)
			}
		}
	}
	threeTimes := func(e event) event { return sequence(e, e, e) }
	// Probes.
	awaitProbe := func(number uint64) event { return func(f *Freshness) { f.ProbeAwaited(start, number) } }
	probeRequested := (*Freshness).ProbeRequested
	probeSent := func(f *Freshness) { f.ProbeSent(Probe{Number: f.lastProbe.Number + 1, Sent: start}) }
	probeAnswered := func(f *Freshness) { f.ProbeAnswered(start, upstream) }
	probeFailedAt := func(after time.Duration) event {
		return func(f *Freshness) {
			f.ProbeSent(Probe{Number: nextNumber, Sent: at(after)})
			f.ProbeFailed(at(after))
		}
	}
	probeRefused := func(pause time.Duration) event { return func(f *Freshness) { f.ProbeRefused(start, pause) } }
	answerPending := sequence(probeSent, probeAnswered)
	answerAwaitedAt := func(after time.Duration) event { // a list waits until the state reaches the answer to a probe
		return func(f *Freshness) {
			sent := Probe{Number: f.lastProbe.Number + 1, Sent: at(after)}
			f.ProbeAwaited(at(after), sent.Number)
			f.ProbeSent(sent)
			f.ProbeAnswered(at(after), upstream)
		}
	}
	answerAwaited := answerAwaitedAt(0)
	// The stream.
	streamOpened := func(f *Freshness) { f.StreamOpened(start) }
	streamSentAt := func(after time.Duration) event { return func(f *Freshness) { f.StreamSentEvent(at(after)) } }
	streamReaches := func(revision uint64) event { return func(f *Freshness) { f.StateReached(revision) } }
	// Progress watches.
	progressOpened := (*Freshness).ProgressOpened
	progressFailed := func(retryAfter time.Duration) event {
		return func(f *Freshness) { f.ProgressFailed(start, retryAfter) }
	}
	progressHelped := func(f *Freshness) { f.ProgressSentBookmark(true) }
	progressTimedOut := func(f *Freshness) { f.ProgressTimedOut(start) }
	noBookmark := sequence(progressOpened, progressTimedOut)

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
		"nothing happened":      {want: scheduled},
		"the next probe is due": {after: 18 * time.Second, want: probe},
		"a probe is in flight":  {happened: []event{probeSent}, after: time.Hour, want: waitForEvent},
		"a list awaits a proof": {happened: []event{awaitProbe(nextNumber)}, want: probe},
		"a list awaits a later probe": {
			happened: []event{probeSent, awaitProbe(laterNumber), probeAnswered, streamReaches(upstream)}, want: probe,
		},
		"the stream ended before it reached an awaited answer": {happened: []event{answerAwaited, streamOpened}, want: probe},
		"a list waits for a revision":                          {happened: []event{probeRequested}, want: wakeAfter(probePause)},
		"a list awaited a proof that has come":                 {happened: []event{awaitProbe(provenNumber)}, want: scheduled},
		"the upstream refused an awaited probe for 5s": {
			happened: []event{awaitProbe(nextNumber), probeSent, probeRefused(5 * time.Second)}, want: wakeAfter(5 * time.Second),
		},
		"the stream ended before an answer": {happened: []event{awaitProbe(nextNumber), probeSent, streamOpened}, want: probe},
		"the upstream refused a probe for 5s": {
			happened: []event{probeRefused(5 * time.Second), probeRefused(time.Second), awaitProbe(laterNumber)},
			want:     wakeAfter(5 * time.Second),
		},
		"no answer, and a list awaits a proof": {
			happened: []event{awaitProbe(nextNumber), probeFailedAt(0)}, want: wakeAfter(probePause),
		},
		"no answer several times, and a list awaits a proof": {
			happened: []event{awaitProbe(nextNumber), threeTimes(probeFailedAt(0))}, after: probePause, want: probe,
		},

		// When a progress watch is opened.
		"the stream has not reached an awaited answer yet": {happened: []event{answerAwaited}, want: wakeAfter(progressDelay)},
		"the stream has not reached an awaited answer in time": {
			happened: []event{answerAwaited, streamReaches(upstream - 1)}, after: progressDelay, want: progress,
		},
		"the stream has not reached an awaited answer for longer than a list waits": {
			happened: []event{answerAwaited, streamSentAt(longestWait)}, after: longestWait, want: probe,
		},
		"the stream has not reached the answer to a requested probe in time": {
			happened: []event{probeRequested, answerPending}, after: progressDelay, want: progress,
		},
		"the stream has not reached an answer, and the state is old": {
			happened: []event{answerPending, streamSentAt(80 * time.Second)}, after: 84 * time.Second, want: progress,
		},
		"a progress watch is open": {happened: []event{answerAwaited, progressOpened}, after: progressDelay, want: scheduled},
		"a progress watch has failed": {
			happened: []event{answerAwaited, progressOpened, progressFailed(0)}, after: progressDelay,
			want: wakeAfter(minProgressPause),
		},
		"the upstream refused a progress watch for 10s": {
			happened: []event{answerAwaited, progressOpened, progressFailed(10 * time.Second)}, after: progressDelay,
			want: wakeAfter(10 * time.Second),
		},
		"three progress watches had no bookmark": {
			happened: []event{threeTimes(noBookmark), awaitProbe(laterNumber), probeRequested},
			want:     wakeAfter(missingBookmarksPause),
		},
		"three progress watches had no bookmark, some time ago": {
			happened: []event{threeTimes(noBookmark), streamSentAt(missingBookmarksPause)},
			after:    missingBookmarksPause, want: probe,
		},
		"a progress watch helped, and lists keep coming": {
			happened: []event{answerAwaited, progressOpened, progressHelped, streamReaches(upstream)}, want: progress,
		},
		"a progress watch helped after a requested probe": {
			happened: []event{probeRequested, answerPending, progressOpened, progressHelped}, want: wakeAfter(progressDelay),
		},

		// When a progress watch would prove nothing.
		"no answer since the stream last sent something": {
			happened: []event{probeFailedAt(time.Millisecond), answerAwaited}, after: time.Second, want: leave,
		},
		"no answer before the stream last sent something": {
			happened: []event{probeFailedAt(time.Millisecond), streamSentAt(2 * time.Millisecond), answerAwaited},
			after:    time.Second, want: progress,
		},
		"the stream was silent for longer than bookmarks take": {
			happened: []event{answerAwaitedAt(70 * time.Second)}, after: 71 * time.Second, want: leave,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newTestFreshness(start)
			sequence(tt.happened...)(f)
			proven := Probe{Number: provenNumber, Sent: start}
			if got := f.Next(at(tt.after), proven); got != tt.want {
				t.Errorf("%v after the start: got %+v, want %+v", tt.after, got, tt.want)
			}
		})
	}
}

// TestPendingAnswersAreBounded: at most maxPending answers are pending, however long a stream lags. Even so, the state counts as
// about as new as the last probe whose answer it has reached.
func TestPendingAnswersAreBounded(t *testing.T) {
	const last = 10 * maxPending
	f := newTestFreshness(time.Now())
	for number := uint64(nextNumber); number <= last; number++ {
		f.ProbeSent(Probe{Number: number})
		f.ProbeAnswered(time.Now(), number)
		if n := len(f.pending); n > maxPending {
			t.Fatalf("got %d pending answers, want at most %d", n, maxPending)
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
	const upstream = 30 // the upstream's revision
	start := time.Now()
	f := newTestFreshness(start)
	for i, number := range []uint64{nextNumber, laterNumber} {
		sentAt := start.Add(time.Duration(i) * progressDelay)
		f.ProbeAwaited(sentAt, number)
		f.ProbeSent(Probe{Number: number, Sent: sentAt})
		f.ProbeAnswered(sentAt, upstream)
	}
	if next := f.Next(start.Add(progressDelay), Probe{Number: provenNumber, Sent: start}); next.Step != OpenProgressWatch {
		t.Errorf("progressDelay after the first answer: got %+v, want a progress watch", next)
	}
	if proof := f.StateReached(upstream); proof.Number != laterNumber {
		t.Errorf("got probe %d, want %d", proof.Number, laterNumber)
	}
}
