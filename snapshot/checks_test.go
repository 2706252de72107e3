package snapshot

import (
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/expect"
)

// TestPauseAfterMismatches: after a first mismatch nothing is held, after another one soon it is, and longer each
// time, up to a bound; one that comes late is a first one.
func TestPauseAfterMismatches(t *testing.T) {
	var m selfChecks
	now := time.Unix(1_000_000, 0)
	const least = 2 * time.Minute
	for i, step := range []struct {
		after time.Duration
		want  time.Duration
	}{
		{0, 0},
		{time.Hour, least},
		{time.Minute, 2 * least},
		{time.Minute, 4 * least},
		{time.Minute, 8 * least},
		{time.Minute, 16 * least},
		{time.Minute, time.Hour},
		{time.Hour + 1, 0},
		{time.Minute, least},
	} {
		now = now.Add(step.after)
		if got := m.record(resourceNamed("r"), CheckMismatch, place{}, now, least); got != step.want {
			t.Errorf("mismatch %d: held for %v, want %v", i+1, got, step.want)
		}
	}
	if got := m.record(resourceNamed("r"), CheckAgrees, place{}, now, least) + m.record(resourceNamed("other"), CheckMismatch, place{}, now, least); got != 0 {
		t.Errorf("held for %v without a second mismatch", got)
	}
}

// TestSelfChecksAreRemembered: what is gone is forgotten, unless it was ever wrong; the totals know all.
func TestSelfChecksAreRemembered(t *testing.T) {
	var m selfChecks
	now := time.Unix(1_000_000, 0)
	m.record(resourceNamed("right"), CheckAgrees, place{Names: "b", Bytes: "c"}, now, 0)
	m.record(resourceNamed("wrong"), CheckMismatch, place{}, now, 0)
	m.record(resourceNamed("wrong"), CheckInconclusive, place{Names: "a"}, now.Add(1), 0)
	if got := m.next(resourceNamed("right")); got != (place{"b", "c"}) {
		t.Errorf("the next check begins at %v", got)
	}
	wrong := CheckStats{At: now.Add(1), Result: CheckInconclusive, Mismatches: 1, Mismatched: now}
	m.forget(func(CollectionKey) bool { return true })
	expect.Same(t, []CheckStats{{}, wrong}, []CheckStats{m.stats(resourceNamed("right")), m.stats(resourceNamed("wrong"))})
	expect.Same(t, map[CollectionKey]CheckStats{resourceNamed("wrong"): wrong}, m.mismatched())
	expect.Same(t, map[CheckResult]uint64{CheckAgrees: 1, CheckMismatch: 1, CheckInconclusive: 1}, m.totals())
}
