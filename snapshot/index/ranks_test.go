package index

import (
	"fmt"
	"math/rand/v2"
	"slices"
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

func TestPage(t *testing.T) {
	state := NewTree(false)
	// '-' sorts before '/': namespace a-b comes before a.
	keys := []string{"a-b/x", "a/1", "a/2", "a/3", "b/1"}
	for _, k := range keys {
		state.Set(&Object{Key: k})
	}
	for _, tt := range []struct {
		name      string
		scope     Scope
		start     string
		limit     int64
		want      []string
		next      string
		remaining int64
	}{
		{"all", Scope{}, "", 0, keys, "", 0},
		{"first page", Scope{}, "", 2, keys[:2], "a/1\x00", 3},
		{"next page", Scope{}, "a/1\x00", 2, keys[2:4], "a/3\x00", 1},
		{"last page", Scope{}, "a/3\x00", 2, keys[4:], "", 0},
		{"a page that just fits", Scope{}, "a/1\x00", 3, keys[2:], "", 0},
		{"past the end", Scope{}, "z", 2, nil, "", 0},
		{"namespace", Scope{"a"}, "", 0, keys[1:4], "", 0},
		{"namespace, page", Scope{"a"}, "", 2, keys[1:3], "2\x00", 1},
		{"namespace, next page", Scope{"a"}, "2\x00", 2, keys[3:4], "", 0},
		{"namespace, start beyond it stays inside", Scope{"a"}, "zzz", 0, nil, "", 0},
		{"no such namespace", Scope{"c"}, "", 1, nil, "", 0},
		{"a prefix of a namespace is not it", Scope{"a-"}, "", 0, nil, "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			page := state.Page(nil, Query{Scope: tt.scope, Start: tt.start, Limit: tt.limit}, nil)
			var got []string
			for _, o := range page.Objects {
				got = append(got, o.Key)
			}
			if !slices.Equal(got, tt.want) || page.Next != tt.next || page.Remaining != tt.remaining {
				t.Errorf("got %q next %q remaining %d, want %q, %q, %d", got, page.Next, page.Remaining, tt.want, tt.next, tt.remaining)
			}
		})
	}
}
