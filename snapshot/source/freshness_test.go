package source

import (
	"testing"
	"time"
)

// The numbers of probes.
const (
	provenNumber = 7 // The probe was sent, and has proven the state, when a test begins.
	nextNumber   = 8 // The next probe after it.
	laterNumber  = 9 // The probe after the next.
)

// upstream is the upstream's revision. In the tests, each probe is answered with it.
const upstream = 30

// start is the time at which each test begins.
var start = time.Now()

// theStart is the time from the start to itself, for events at the start.
const theStart time.Duration = 0

// at returns the time that is a duration after the start.
func at(after time.Duration) time.Time { return start.Add(after) }

// newTestFreshness returns a Freshness of a stream that was opened at the start. The last probe was sent at the start.
func newTestFreshness() *Freshness {
	const bound, spread = 90 * time.Second, 0
	f := &Freshness{schedule: newProbeSchedule(bound, spread), lastProbe: Probe{Number: provenNumber, Sent: start}}
	f.StreamOpened(start)
	return f
}

// event is something that happens, as the feed records it in f.
type event func(f *Freshness)

// inOrder returns the event that these events happen, one after the other.
func inOrder(events ...event) event {
	return func(f *Freshness) {
		for _, happen := range events {
			happen(f)
		}
	}
}

func threeTimes(e event) event { return inOrder(e, e, e) }

// What happens to probes. Without a time in its name, an event happens at the start.
var (
	probeRequested event = (*Freshness).ProbeRequested
	probeSent      event = func(f *Freshness) { f.ProbeSent(Probe{Number: f.lastProbe.Number + 1, Sent: start}) }
	probeAnswered  event = func(f *Freshness) { f.ProbeAnswered(start, upstream) }
	// In sentAndAnswered, the next probe is sent and answered. No request waits for it.
	sentAndAnswered = inOrder(probeSent, probeAnswered)
	// In awaitedAndAnswered, a list waits for the next probe, which is sent and answered.
	awaitedAndAnswered = awaitedAndAnsweredAt(theStart)
)

// awaitedAndAnsweredAt returns the event awaitedAndAnswered at a time after the start.
func awaitedAndAnsweredAt(after time.Duration) event {
	return func(f *Freshness) {
		next := Probe{Number: f.lastProbe.Number + 1, Sent: at(after)}
		f.ProbeAwaited(at(after), next.Number)
		f.ProbeSent(next)
		f.ProbeAnswered(at(after), upstream)
	}
}

// probeAwaited returns the event that a list waits for the probe with a number.
func probeAwaited(number uint64) event { return func(f *Freshness) { f.ProbeAwaited(start, number) } }

// probeRefused returns the event that the upstream refuses a probe, and asks for a pause.
func probeRefused(pause time.Duration) event {
	return func(f *Freshness) { f.ProbeRefused(start, pause) }
}

// probeFailedAt returns the event that a probe is sent and fails, both at one time.
func probeFailedAt(after time.Duration) event {
	return func(f *Freshness) {
		f.ProbeSent(Probe{Number: nextNumber, Sent: at(after)})
		f.ProbeFailed(at(after))
	}
}

// What happens to the stream.

func streamOpened(f *Freshness) { f.StreamOpened(start) }

// streamSentAt returns the event that the stream sends something at a time after the start.
func streamSentAt(after time.Duration) event {
	return func(f *Freshness) { f.StreamSentEvent(at(after)) }
}

func streamReached(revision uint64) event { return func(f *Freshness) { f.StateReached(revision) } }

// What happens to progress watches. (A progress watch is a short watch for its bookmark, which shows how far the state has
// got.)
var (
	progressOpened event = (*Freshness).ProgressOpened
	// In progressHadNews, a progress watch ends with a bookmark at a higher revision than the state.
	progressHadNews event = func(f *Freshness) {
		const isAboveState = true
		f.ProgressSentBookmark(isAboveState)
	}
	progressTimedOut event = func(f *Freshness) { f.ProgressTimedOut(start) }
	// In withoutBookmark, a progress watch is opened, and reaches its timeout without a bookmark.
	withoutBookmark = inOrder(progressOpened, progressTimedOut)
)

// noRetryAfter is the argument of progressFailed for a failure without a Retry-After.
const noRetryAfter time.Duration = 0

// progressFailed returns the event that a progress watch fails. retryAfter is the pause for which the upstream asks.
func progressFailed(retryAfter time.Duration) event {
	return func(f *Freshness) { f.ProgressFailed(start, retryAfter) }
}

// What Next returns.
var (
	sendProbe         = Action{Step: SendProbe}
	openProgressWatch = Action{Step: OpenProgressWatch}
	leaveStream       = Action{Step: LeaveStream}
	waitForEvent      = Action{Step: Wait}
	// The action waitForSchedule is to wait for the schedule's next probe, a fifth of the bound of 90 s after the last one.
	waitForSchedule = waitUntil(18 * time.Second)
)

// waitUntil returns the action to wait until a time after the start.
func waitUntil(after time.Duration) Action { return Action{Step: Wait, Wake: at(after)} }

// nextTest is a case for [Freshness.Next].
type nextTest struct {
	happened []event
	after    time.Duration // the time from the start to the call of Next
	want     Action
}

// checkNext compares what Next returns with the case's want. The last probe that has proven the state is provenNumber.
func checkNext(t *testing.T, tests map[string]nextTest) {
	t.Helper()
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := newTestFreshness()
			inOrder(tt.happened...)(f)
			proven := Probe{Number: provenNumber, Sent: start}
			if got := f.Next(at(tt.after), proven); got != tt.want {
				t.Errorf("%v after the start: got %+v, want %+v", tt.after, got, tt.want)
			}
		})
	}
}

// TestNextSendsProbe: a probe is sent when the schedule says so. It is sent earlier if a request waits for its proof, but not
// in the pause after a probe that was refused or failed.
func TestNextSendsProbe(t *testing.T) {
	checkNext(t, map[string]nextTest{
		"nothing happened":      {want: waitForSchedule},
		"the next probe is due": {after: 18 * time.Second, want: sendProbe},
		"a probe is in flight":  {happened: []event{probeSent}, after: time.Hour, want: waitForEvent},

		// A request waits.
		"a list awaits a proof": {happened: []event{probeAwaited(nextNumber)}, want: sendProbe},
		"a list awaits a later probe than the one that has proven the state": {
			happened: []event{probeSent, probeAwaited(laterNumber), probeAnswered, streamReached(upstream)}, want: sendProbe,
		},
		"a list awaited a proof that has come": {happened: []event{probeAwaited(provenNumber)}, want: waitForSchedule},
		"the stream ended before an awaited answer": {
			happened: []event{probeAwaited(nextNumber), probeSent, streamOpened}, want: sendProbe,
		},
		"the stream ended before it reached an awaited answer": {
			happened: []event{awaitedAndAnswered, streamOpened}, want: sendProbe,
		},
		"the stream has not reached an awaited answer for longer than a list waits": {
			happened: []event{awaitedAndAnswered, streamSentAt(longestWait)}, after: longestWait, want: sendProbe,
		},
		"a list waits for a revision": {happened: []event{probeRequested}, want: waitUntil(probePause)},

		// The upstream refused the probe, or did not answer.
		"the upstream refused an awaited probe for 5s": {
			happened: []event{probeAwaited(nextNumber), probeSent, probeRefused(5 * time.Second)},
			want:     waitUntil(5 * time.Second),
		},
		"the upstream refused one probe for 5s and another for 1s": {
			happened: []event{probeRefused(5 * time.Second), probeRefused(time.Second), probeAwaited(laterNumber)},
			want:     waitUntil(5 * time.Second),
		},
		"no answer, and a list awaits a proof": {
			happened: []event{probeAwaited(nextNumber), probeFailedAt(theStart)}, want: waitUntil(probePause),
		},
		"no answer several times, and a list awaits a proof": {
			happened: []event{probeAwaited(nextNumber), threeTimes(probeFailedAt(theStart))}, after: probePause, want: sendProbe,
		},

		// The upstream sends no bookmarks, so a probe would prove nothing.
		"three progress watches had no bookmark": {
			happened: []event{threeTimes(withoutBookmark), probeAwaited(laterNumber), probeRequested},
			want:     waitUntil(missingBookmarksPause),
		},
		"three progress watches had no bookmark, some time ago": {
			happened: []event{threeTimes(withoutBookmark), streamSentAt(missingBookmarksPause)},
			after:    missingBookmarksPause, want: sendProbe,
		},
	})
}

// TestNextOpensProgressWatch: a progress watch is opened if the stream has not reached the answer to a probe in time. The time
// is progressDelay if a request waits, and otherwise lasts until the state is old. After a progress watch with a bookmark above
// the state's revision, another one is opened while lists keep coming.
func TestNextOpensProgressWatch(t *testing.T) {
	checkNext(t, map[string]nextTest{
		"the stream has not reached an awaited answer yet": {
			happened: []event{awaitedAndAnswered}, want: waitUntil(progressDelay),
		},
		"the stream has not reached an awaited answer in time": {
			happened: []event{awaitedAndAnswered, streamReached(upstream - 1)}, after: progressDelay, want: openProgressWatch,
		},
		"the stream has not reached the answer to a requested probe in time": {
			happened: []event{probeRequested, sentAndAnswered}, after: progressDelay, want: openProgressWatch,
		},
		"the stream has not reached an answer, and the state is old": {
			happened: []event{sentAndAnswered, streamSentAt(80 * time.Second)}, after: 84 * time.Second, want: openProgressWatch,
		},
		"a progress watch is open": {
			happened: []event{awaitedAndAnswered, progressOpened}, after: progressDelay, want: waitForSchedule,
		},
		"a progress watch has failed": {
			happened: []event{awaitedAndAnswered, progressOpened, progressFailed(noRetryAfter)}, after: progressDelay,
			want: waitUntil(minProgressPause),
		},
		"the upstream refused a progress watch for 10s": {
			happened: []event{awaitedAndAnswered, progressOpened, progressFailed(10 * time.Second)}, after: progressDelay,
			want: waitUntil(10 * time.Second),
		},
		"a progress watch had a bookmark above the state, and lists keep coming": {
			happened: []event{awaitedAndAnswered, progressOpened, progressHadNews, streamReached(upstream)}, want: openProgressWatch,
		},
		"a progress watch had a bookmark above the state, and no list has come": {
			happened: []event{probeRequested, sentAndAnswered, progressOpened, progressHadNews}, want: waitUntil(progressDelay),
		},
	})
}

// TestNextLeavesStream: instead of a progress watch, the stream is left if the server that answers now may be another than the
// stream's. This is so after a probe that failed, or a long silence of the stream, until the stream sends something.
func TestNextLeavesStream(t *testing.T) {
	checkNext(t, map[string]nextTest{
		"a probe failed after the stream last sent something": {
			happened: []event{probeFailedAt(time.Millisecond), awaitedAndAnswered}, after: time.Second, want: leaveStream,
		},
		"a probe failed before the stream last sent something": {
			happened: []event{probeFailedAt(time.Millisecond), streamSentAt(2 * time.Millisecond), awaitedAndAnswered},
			after:    time.Second, want: openProgressWatch,
		},
		"the stream was silent for longer than BookmarkEvery": {
			happened: []event{awaitedAndAnsweredAt(70 * time.Second)}, after: 71 * time.Second, want: leaveStream,
		},
	})
}

// TestPendingAnswersAreBounded: at most maxPending answers are pending, however long the stream lags. Even so, once the stream
// has reached the last answer, the last probe has proven the state.
func TestPendingAnswersAreBounded(t *testing.T) {
	const last = 10 * maxPending // The number of the last probe. Each probe is answered with its number as the revision.
	f := newTestFreshness()
	for number := uint64(nextNumber); number <= last; number++ {
		f.ProbeSent(Probe{Number: number})
		f.ProbeAnswered(start, number)
		if n := len(f.pending); n > maxPending {
			t.Fatalf("got %d pending answers, want at most %d", n, maxPending)
		}
	}
	if proof := f.StateReached(last); proof.Number != last {
		t.Errorf("at the last revision: got probe %d, want %d", proof.Number, last)
	}
	if proof := f.StateReached(last); proof != (Probe{}) {
		t.Errorf("at the last revision once more: got probe %d, want none", proof.Number)
	}
}

// TestSameAnswerOnceMore: two probes are answered with the same revision. A progress watch is due progressDelay after the first
// answer. When the state has reached the revision, the second probe proves it.
func TestSameAnswerOnceMore(t *testing.T) {
	f := newTestFreshness()
	awaitedAndAnswered(f)                  // nextNumber
	awaitedAndAnsweredAt(progressDelay)(f) // laterNumber
	if next := f.Next(at(progressDelay), Probe{Number: provenNumber, Sent: start}); next != openProgressWatch {
		t.Errorf("progressDelay after the first answer: got %+v, want %+v", next, openProgressWatch)
	}
	if proof := f.StateReached(upstream); proof.Number != laterNumber {
		t.Errorf("the state has reached both answers: got probe %d, want %d", proof.Number, laterNumber)
	}
}
