package snapshot

import (
	"math"
	"sync/atomic"
)

// budget is the byte bound over all collections. It counts bytes that are stored (objects, their
// versions and an estimate of the trees), not the memory that the Go runtime takes for them.
type budget struct {
	limit int64 // 0: none
	// used is how much is stored.
	used atomic.Int64
}

// add counts bytes that are stored or, if negative, that are no longer stored.
func (b *budget) add(bytes int64) { b.used.Add(bytes) }

// most is the number of bytes that there is room for before it is crowded, if nothing else is there.
func (b *budget) most() int64 {
	if b.limit > 0 {
		return b.limit / 10 * 9
	}
	return math.MaxInt64
}

// free is the number of bytes that are left before it is crowded.
func (b *budget) free() int64 {
	if b.limit > 0 {
		return max(0, b.most()-b.used.Load())
	}
	return math.MaxInt64
}

// full reports whether the bound is exceeded.
func (b *budget) full() bool { return b.limit > 0 && b.used.Load() > b.limit }

// crowded reports whether less than a tenth of the bound is free.
func (b *budget) crowded() bool { return b.limit > 0 && b.used.Load() > b.most() }
