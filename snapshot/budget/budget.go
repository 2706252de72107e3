package budget

import (
	"math"
	"sync/atomic"
)

// Bound is the byte bound over all collections. It counts bytes that are stored (objects, their
// versions and an estimate of the trees), not the memory that the Go runtime takes for them.
//
// A resource can have a bound of its own within the one for all.
type Bound struct {
	Limit  int64  // 0: none
	Parent *Bound // nil: none
	// Used is how much is stored.
	Used atomic.Int64
}

// Add counts bytes that are stored or, if negative, that are no longer stored.
func (b *Bound) Add(bytes int64) {
	b.Used.Add(bytes)
	if b.Parent != nil {
		b.Parent.Add(bytes)
	}
}

// Most is how many bytes there is room for before it is crowded, if nothing else is there.
func (b *Bound) Most() int64 {
	most := int64(math.MaxInt64)
	if b.Limit > 0 {
		most = b.Limit / 10 * 9
	}
	if b.Parent != nil {
		most = min(most, b.Parent.Most())
	}
	return most
}

// Free is how many bytes are left before it is crowded.
func (b *Bound) Free() int64 {
	free := int64(math.MaxInt64)
	if b.Limit > 0 {
		free = max(0, b.Limit/10*9-b.Used.Load())
	}
	if b.Parent != nil {
		free = min(free, b.Parent.Free())
	}
	return free
}

// Full reports whether the bound is exceeded.
func (b *Bound) Full() bool {
	return b.Limit > 0 && b.Used.Load() > b.Limit || b.Parent != nil && b.Parent.Full()
}

// Crowded reports whether less than a tenth of the bound is free.
func (b *Bound) Crowded() bool {
	return b.Limit > 0 && b.Used.Load() > b.Limit/10*9 || b.Parent != nil && b.Parent.Crowded()
}
