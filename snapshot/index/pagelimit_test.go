package index

import (
	"strconv"
	"testing"
)

// TestPageLimit: a page ends before its bytes are too many, with at least one object, and is not cut where all of the
// rest fits.
func TestPageLimit(t *testing.T) {
	state := NewTree(false)
	for i := range 10 {
		state.Set(NewObject(0, strconv.Itoa(i), 1, make([]byte, 100)))
	}
	for _, tt := range []struct {
		from       string
		n, bytes   int64
		want       int64
		whatItSays string
	}{
		{n: 500, bytes: 10_000, want: 500, whatItSays: "as many as there may be, also if there are fewer"},
		{n: 500, bytes: 350, want: 3, whatItSays: "as many as fit"},
		{from: "8", n: 500, bytes: 350, want: 500, whatItSays: "all of the rest"},
		{n: 500, bytes: 10, want: 1, whatItSays: "one at least"},
		{from: "x", n: 500, bytes: 10, want: 500, whatItSays: "after the last"},
	} {
		if got := state.PageLimit(tt.from, tt.n, tt.bytes); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.whatItSays, got, tt.want)
		}
	}
}
