package budget

import (
	"math"
	"sync/atomic"
)

// Bound is the byte bound over all collections. It counts bytes that are stored (objects, their
// versions and an estimate of the trees), not the memory that the Go runtime takes for them.
type Bound struct {
	Limit int64 // 0: none
	// Used is how much is stored.
	Used atomic.Int64
}

// Add counts bytes that are stored or, if negative, that are no longer stored.
func (b *Bound) Add(bytes int64) { b.Used.Add(bytes) }

// Most is the number of bytes that there is room for before it is crowded, if nothing else is there.
func (b *Bound) Most() int64 {
	if b.Limit > 0 {
		return b.Limit / 10 * 9
	}
	return math.MaxInt64
}

// Free is the number of bytes that are left before it is crowded.
func (b *Bound) Free() int64 {
	if b.Limit > 0 {
		return max(0, b.Most()-b.Used.Load())
	}
	return math.MaxInt64
}

// Full reports whether the bound is exceeded.
func (b *Bound) Full() bool { return b.Limit > 0 && b.Used.Load() > b.Limit }

// Crowded reports whether less than a tenth of the bound is free.
func (b *Bound) Crowded() bool { return b.Limit > 0 && b.Used.Load() > b.Most() }
