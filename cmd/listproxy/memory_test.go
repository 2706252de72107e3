package main

import (
	"math"
	"testing"
)

func TestMemoryLimit(t *testing.T) {
	const gi = 1 << 30
	for _, tt := range []struct{ stored, compressed, least, most int64 }{
		{0, 0, math.MaxInt64, math.MaxInt64},
		{0, gi, math.MaxInt64, math.MaxInt64},
		{math.MaxInt64, 0, math.MaxInt64, math.MaxInt64},
		{2 * gi, 0, 3 * gi, 4 * gi},
		{2 * gi, 2 * gi, 6 * gi, 7 * gi},
		{1, 0, otherMemory, otherMemory + 1<<20},
	} {
		if got := memoryLimit(tt.stored, tt.compressed); got < tt.least || got > tt.most {
			t.Errorf("%d stored, %d compressed: %d, not from %d to %d", tt.stored, tt.compressed, got, tt.least, tt.most)
		}
	}
}
