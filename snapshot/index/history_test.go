package index

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestHistoryAgainstAModel: appended to, forgotten from and looked into at random, with copies that
// stay as they were. Nothing of what was forgotten is held.
func TestHistoryAgainstAModel(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var h History
	var model []uint64
	var later []func()
	check := func(h History, want []uint64) {
		t.Helper()
		if h.Len() != len(want) {
			t.Fatalf("%d versions, not %d", h.Len(), len(want))
		}
		for range 3 {
			rev := uint64(random.IntN(40_000))
			var newest uint64
			for _, r := range want {
				if r <= rev {
					newest = r
				}
			}
			got := h.Find(rev)
			if (got == nil) != (newest == 0) || got != nil && (got.Revision != newest || got.Put == nil) {
				t.Fatalf("at %d: %+v, not %d", rev, got, newest)
			}
		}
	}
	rev := uint64(0)
	for range 10_000 {
		switch random.IntN(40) {
		case 0:
			n := random.IntN(h.Len() + 1)
			h.Forget(n)
			model = model[n:]
			if n > 0 && cap(h.versions) > 2*h.Len()+8 {
				t.Fatalf("memory for %d versions is held, of which there are %d", cap(h.versions), h.Len())
			}
		case 1:
			history, want := h, slices.Clone(model)
			later = append(later, func() { check(history, want) })
		case 2:
			check(h, model)
		default:
			rev += 1 + uint64(random.IntN(3))
			h.Append(Version{Revision: rev, Put: &Object{}})
			model = append(model, rev)
		}
	}
	for _, check := range later {
		check()
	}
	h.Forget(h.Len())
	check(h, nil)
}
