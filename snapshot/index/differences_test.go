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
		{"", 500, 10_000, 500, "as many as there may be, also if there are fewer"},
		{"", 500, 350, 3, "as many as fit"},
		{"8", 500, 350, 500, "all of the rest"},
		{"", 500, 10, 1, "one at least"},
		{"x", 500, 10, 500, "after the last"},
	} {
		if got := state.PageLimit(tt.from, tt.n, tt.bytes); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.whatItSays, got, tt.want)
		}
	}
}
