package index

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestCountAgainstAWalk holds counts by segments against walking, while objects come and go.
func TestCountAgainstAWalk(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 0))
			state := NewTree(false)
			var old []Tree
			for step := range 30000 {
				key := JoinKey(fmt.Sprintf("ns-%d", rnd.IntN(5)), fmt.Sprintf("p%05d", rnd.IntN(9000)))
				// The number of objects goes up, down again and up.
				if grow := step/10000 != 1; rnd.IntN(10) < 7 == grow {
					state.Set(&Object{Key: key})
				} else {
					state.Remove(key)
				}
				if step%2500 == 0 {
					old = append(old, state.Clone())
					checkCounts(t, state, rnd)
				}
			}
			for _, o := range old {
				checkCounts(t, o, rnd) // clones kept their own counts
			}
		})
	}
}

func checkCounts(t *testing.T, state Tree, rnd *rand.Rand) {
	t.Helper()
	total := 0
	state.ranks.segments.Ascend(func(s segment) bool {
		if s.n < 0 || s.n > maxSegment {
			t.Fatalf("segment %q counts %d", s.first, s.n)
		}
		total += s.n
		return true
	})
	if total != state.Len() {
		t.Fatalf("the segments count %d of %d objects", total, state.Len())
	}
	for range 50 {
		from := JoinKey(fmt.Sprintf("ns-%d", rnd.IntN(6)), fmt.Sprintf("p%05d", rnd.IntN(9500)))
		end := Scope{Namespace: fmt.Sprintf("ns-%d", rnd.IntN(6))}.End()
		if rnd.IntN(3) == 0 {
			end = ""
		}
		if rnd.IntN(5) == 0 {
			from = ""
		}
		want := int64(0)
		state.objects.Ascend(func(o *Object) bool {
			if o.Key >= from && (end == "" || o.Key < end) {
				want++
			}
			return true
		})
		if got := state.Count(from, end); got != want {
			t.Fatalf("count(%q, %q) = %d, want %d", from, end, got, want)
		}
	}
}

// TestCountVisitsFewObjects is the law that a page costs what it holds: what follows is counted
// without being walked.
func TestCountVisitsFewObjects(t *testing.T) {
	for _, n := range []int{10_000, 100_000} {
		state := NewTree(false)
		for i := range n {
			state.Set(&Object{Key: fmt.Sprintf("ns-%03d/p%06d", i%100, i)})
		}
		segments := state.ranks.segments.Len()
		if most := n / (maxSegment / 4); segments > most {
			t.Errorf("%d objects in %d segments, want at most %d", n, segments, most)
		}
		state.ranks.segments.Ascend(func(s segment) bool {
			if s.n > maxSegment {
				t.Errorf("a segment of %d objects would be walked", s.n)
			}
			return true
		})
	}
}
