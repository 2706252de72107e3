package checks

import (
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/expect"
)

// TestHold: after a first mismatch nothing is held, after another one soon it is, and longer each
// time, up to a bound; one that comes late is a first one.
func TestHold(t *testing.T) {
	var m Memory[string]
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
		if got := m.Note("r", Mismatch, 7, Place{}, now, least); got != step.want {
			t.Errorf("mismatch %d: held for %v, want %v", i+1, got, step.want)
		}
	}
	if got := m.Note("r", Agrees, 7, Place{}, now, least) + m.Note("other", Mismatch, 7, Place{}, now, least); got != 0 {
		t.Errorf("held for %v without a second mismatch", got)
	}
}

// TestMemory: what is gone is forgotten, unless it was ever wrong; the totals know all.
func TestMemory(t *testing.T) {
	var m Memory[string]
	now := time.Unix(1_000_000, 0)
	m.Note("right", Agrees, 3, Place{Names: "b", Bytes: "c"}, now, 0)
	m.Note("wrong", Mismatch, 4, Place{}, now, 0)
	m.Note("wrong", Inconclusive, 5, Place{Names: "a"}, now.Add(1), 0)
	if got := m.Next("right"); got != (Place{"b", "c"}) {
		t.Errorf("the next check begins at %v", got)
	}
	wrong := Stats{At: now.Add(1), Result: Inconclusive, Revision: 5, Mismatches: 1, Mismatched: now}
	m.Forget(func(r string) bool { return r != "" })
	expect.Same(t, []Stats{{}, wrong}, []Stats{m.Stats("right"), m.Stats("wrong")})
	expect.Same(t, map[string]Stats{"wrong": wrong}, m.Mismatched())
	expect.Same(t, map[Result]uint64{Agrees: 1, Mismatch: 1, Inconclusive: 1}, m.Totals())
}
