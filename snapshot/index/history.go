package index

import (
	"slices"
	"sort"
)

// History has the versions of a collection by revision. Its one writer appends at the end and forgets at the
// beginning. A copy of the value is a view that does not change. Many goroutines may read it while the writer goes
// on, since memory that a copy can see is never written again.
type History struct {
	versions []*Version
	// forgotten is the revision of the newest version that was forgotten; 0 if none was.
	forgotten uint64
}

// Version is the state at its revision and at all later ones before the next version's.
type Version struct {
	Revision uint64
	Tree     Tree
	// Change is the change that led from the version before to this one. It is zero for a state that was loaded, and if
	// no watches are served.
	Change Change
	// Put is the object that was created or updated; nil for a deletion, and for a state that was loaded.
	Put *Object
	// Superseded is the number of bytes that are freed when the version before this one is forgotten: those of the
	// object that was replaced or removed, and of the trees' nodes that were copied.
	Superseded int64
}

// Change is a change of one object.
type Change struct {
	// Before is the object before the change; nil if it was created. After is the object after it. For a deletion, After
	// is the object's last state, with the revision of the deletion.
	Before, After *Object
	Deleted       bool
}

// At returns version i, counted from the oldest that is kept.
func (h *History) At(i int) *Version { return h.versions[i] }

// Append adds a version, which must have a higher revision than all others.
func (h *History) Append(v Version) { h.versions = append(h.versions, &v) }

// Forgotten returns the revision of the newest version that was forgotten; 0 if none was.
func (h *History) Forgotten() uint64 { return h.forgotten }

// Len returns the number of versions.
func (h *History) Len() int { return len(h.versions) }

// Find returns the newest version at or before rev, or nil.
func (h *History) Find(rev uint64) *Version {
	i := h.FirstAfter(rev)
	if i == 0 {
		return nil
	}
	return h.At(i - 1)
}

// FirstAfter returns the index of the first version after rev.
func (h *History) FirstAfter(rev uint64) int {
	return sort.Search(len(h.versions), func(i int) bool { return h.versions[i].Revision > rev })
}

// Forget removes the n oldest versions. Their memory is freed when no copy has them any more.
func (h *History) Forget(n int) {
	if n == 0 {
		return
	}
	h.forgotten = h.At(n - 1).Revision
	h.versions = slices.Clone(h.versions[n:]) // else the memory of this slice would hold those that are forgotten
}
