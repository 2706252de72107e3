package index

import "slices"

// chunkLen is the number of versions that are allocated, and forgotten, at once.
const chunkLen = 128

// Version is the state from its revision on, until the next version or the end of the span.
type Version struct {
	Revision uint64
	Tree     Tree
	// Change is what made this version of the one before it; the zero Change for a state that was
	// loaded as a whole.
	Change Change
	// Put is the object that made this version; nil for a deletion, and for a state that was loaded.
	Put *Object
	// Superseded is what is freed when the version before this one is forgotten: the object
	// that this one replaced or removed, and the path of the trees.
	Superseded int64
}

// Change is what happened to one object.
type Change struct {
	// Before is the object until then, nil if it was created. After is what it became; for one that
	// was deleted, the object as it was at last, at the revision of the deletion.
	Before, After *Object
	Deleted       bool
}

// History is the versions of a collection by revision. Its one writer appends at the end and
// forgets at the beginning. A copy of the value is a view that does not change. Many goroutines may
// read it while the writer goes on: memory that a copy can see is never written again. The cost of
// appending does not depend on the history's length.
type History struct {
	chunks []*[chunkLen]Version
	// skip is how many versions at the beginning are forgotten, n how many there are after them.
	skip, n int
	// forgotten is the revision of the newest that was forgotten.
	forgotten uint64
}

// At returns a version, counted from the oldest that is kept.
func (h *History) At(i int) *Version {
	i += h.skip
	return &h.chunks[i/chunkLen][i%chunkLen]
}

// Append adds a version with a higher revision than all others.
func (h *History) Append(v Version) {
	if end := h.skip + h.n; end == len(h.chunks)*chunkLen {
		h.chunks = append(h.chunks, new([chunkLen]Version))
	}
	h.n++
	*h.At(h.n - 1) = v
}

// Forgotten is the revision of the newest version that was forgotten; 0 if none was.
func (h *History) Forgotten() uint64 { return h.forgotten }

// Len is the number of versions.
func (h *History) Len() int { return h.n }

// Find returns the newest version at or before rev, or nil.
func (h *History) Find(rev uint64) *Version {
	i := h.FirstAfter(rev)
	if i == 0 {
		return nil
	}
	return h.At(i - 1)
}

// FirstAfter is the index of the first version after rev.
func (h *History) FirstAfter(rev uint64) int {
	low, high := 0, h.n
	for low < high {
		if middle := (low + high) / 2; h.At(middle).Revision <= rev {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// Forget removes the n oldest versions. Their memory is freed when no copy has them any more.
func (h *History) Forget(n int) {
	if n > 0 {
		h.forgotten = h.At(n - 1).Revision
	}
	h.skip, h.n = h.skip+n, h.n-n
	if h.n == 0 {
		*h = History{forgotten: h.forgotten}
		return
	}
	// New slices, since copies share those there are.
	h.chunks, h.skip = slices.Clone(h.chunks[h.skip/chunkLen:]), h.skip%chunkLen
	if n > 0 && h.skip > 0 {
		first := new([chunkLen]Version)
		copy(first[h.skip:], h.chunks[0][h.skip:])
		h.chunks[0] = first
	}
}
