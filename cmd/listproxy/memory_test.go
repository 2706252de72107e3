package main

import (
	"math"
	"testing"
)

func TestMemoryLimit(t *testing.T) {
	const gi = 1 << 30
	for _, tt := range []struct{ stored, least, most int64 }{
		{0, math.MaxInt64, math.MaxInt64},
		{math.MaxInt64, math.MaxInt64, math.MaxInt64},
		{2 * gi, 3 * gi, 4 * gi},
		{16 * gi, 27 * gi, 28 * gi},
		{1, otherMemory, otherMemory + 1<<20},
	} {
		if got := memoryLimit(tt.stored); got < tt.least || got > tt.most {
			t.Errorf("%d stored: %d, not from %d to %d", tt.stored, got, tt.least, tt.most)
		}
	}
}

// TestBoundsOfMemory: what follows from --cache-bytes and from the limit of memory, as
// docs/operate.md has it.
func TestBoundsOfMemory(t *testing.T) {
	const gi = 1 << 30
	for stored, want := range map[int64]int64{0: gi / 4, 2 * gi: gi / 4, 64 << 10: 8 << 10} {
		if got := compressedBound(stored); got != want {
			t.Errorf("%d stored: %d compressed, want %d", stored, got, want)
		}
	}
	for limit, want := range map[int64]int{0: 256, 24 << 20: 256, 921 << 20: 921, 4 * gi: 4096, 64 * gi: 20_000, math.MaxInt64: 20_000} {
		if got := connectionBound(limit); got != want {
			t.Errorf("a limit of %d: %d connections, want %d", limit, got, want)
		}
	}
}
