package snapshot

import (
	"math"
	"sync/atomic"
)

// budget is the byte bound of all collections together. It counts the bytes that they store (objects, versions, and an
// estimate of the trees), not the memory that the Go runtime uses for them.
type budget struct {
	// limit is the number of bytes that may be stored; 0 means no limit.
	limit int64
	// used is the number of bytes that are stored.
	used atomic.Int64
}

// add adds to the number of stored bytes; a negative number says that bytes are no longer stored.
func (b *budget) add(bytes int64) { b.used.Add(bytes) }

// maxUncrowded returns the number of bytes that an empty budget can store without being crowded.
func (b *budget) maxUncrowded() int64 {
	if b.limit > 0 {
		return b.limit / 10 * 9
	}
	return math.MaxInt64
}

// free returns the number of bytes that can still be stored before the budget is crowded.
func (b *budget) free() int64 {
	if b.limit > 0 {
		return max(0, b.maxUncrowded()-b.used.Load())
	}
	return math.MaxInt64
}

// full reports whether the bound is exceeded.
func (b *budget) full() bool { return b.limit > 0 && b.used.Load() > b.limit }

// crowded reports whether less than a tenth of the bound is free.
func (b *budget) crowded() bool { return b.limit > 0 && b.used.Load() > b.maxUncrowded() }
