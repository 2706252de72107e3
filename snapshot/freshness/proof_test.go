package freshness

import (
	"testing"
	"time"

	"github.com/listproxy/listproxy/snapshot/pace"
)

// TestProof: a proof takes a probe, and what comes first of the stream's next word and a watch
// beside it.
func TestProof(t *testing.T) {
	now := time.Now()
	f := freshnessAt(now)
	asks := func(took time.Duration, there bool) {
		f.ProbeSent(Probe{f.probe.Number + 1, now})
		now = now.Add(took)
		f.Answered(now, 30, there)
	}
	expect := func(what string, now time.Time, want time.Duration) {
		t.Helper()
		if got := f.Proof(now).Round(time.Microsecond); got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	expect("nothing is known", now, pace.UsualProbe+besideDelay+pace.UsualBeside)
	for range 100 {
		asks(3*time.Millisecond, false)
		now = now.Add(17 * time.Millisecond)
		f.StreamTold(now, 29)
	}
	expect("busy", now, 23*time.Millisecond)
	expect("it has become quiet", now.Add(500*time.Millisecond), 503*time.Millisecond)
	f.BesideOpened(now)
	f.BesideFailed(now.Add(time.Millisecond), 0)
	expect("a watch beside has failed", now.Add(time.Hour), 3*time.Millisecond+besideDelay+pace.UsualBeside)
	f.BesideOpened(now)
	expect("a watch beside takes long", now.Add(3*time.Second), 3*time.Millisecond+3*time.Second)
	f.BesideOver(now.Add(700*time.Millisecond), true)
	expect("quiet", now.Add(time.Hour), 803*time.Millisecond)
	f.ProbeSent(Probe{f.probe.Number + 1, now})
	expect("the upstream does not answer", now.Add(time.Hour), time.Hour+800*time.Millisecond)
	f.Refused(now, time.Minute)
	expect("the upstream wants to be spared", now.Add(20*time.Second), 40*time.Second+803*time.Millisecond)
	f.Follow(now)
	expect("another stream", now, 60*time.Second+23*time.Millisecond)
	now = now.Add(time.Minute)
	for range 400 {
		asks(3*time.Millisecond, false)
		now = now.Add(time.Millisecond)
		f.StreamTold(now, 30)
		f.Reached(30)
		now = now.Add(16 * time.Millisecond)
	}
	expect("the stream soon tells what was said", now, 4*time.Millisecond)
	expect("and has become quiet", now.Add(30*time.Millisecond), 49*time.Millisecond)
	for range 400 {
		asks(3*time.Millisecond, true)
	}
	expect("where nothing happens", now.Add(time.Hour), 3*time.Millisecond)
}

// TestProofWhileShortWatchesFail: on a quiet resource a proof takes as long as it takes until the next
// one may be opened, and one that takes longer than usual may take as long again.
func TestProofWhileShortWatchesFail(t *testing.T) {
	now := time.Now()
	f := freshnessAt(now.Add(-time.Minute))
	behind(f, now, true)
	expect := func(what string, after, want time.Duration) {
		t.Helper()
		if got := f.Proof(now.Add(after)); got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	f.BesideFailed(now, 20*time.Second)
	expect("refused", 5*time.Second, 15*time.Second+pace.UsualBeside)
	expect("when it may be opened again", 20*time.Second, besideDelay+pace.UsualBeside)
	f.BesideOpened(now)
	expect("one is open", time.Second, besideDelay+pace.UsualBeside)
	expect("for long", 3*time.Second, 3*time.Second)
	f.Stop()
	expect("the stream has ended, and it with it", 20*time.Second, besideDelay+pace.UsualBeside)
}
