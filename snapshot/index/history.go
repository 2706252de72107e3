package index

import (
	"slices"
	"sort"
)

// History has the versions of a collection in the order of their revisions. Its one writer appends the newest and forgets the
// oldest. The writer gives copies of the History to readers. A copy does not change, and many goroutines may read it while the
// writer goes on. This is safe since Append writes only behind the end of all copies, and Forget makes a new slice.
type History struct {
	versions []*Version
	// forgotten is the revision of the newest forgotten version; 0 if none was forgotten.
	forgotten uint64
}

// Version is the state at a revision, and at all later revisions before the next version's.
type Version struct {
	Revision uint64
	Tree     Tree
	// Change is the change from the previous version, for the events of watches. It is zero for a state that was loaded, and if
	// listproxy serves no watches.
	Change Change
	// Put is the object that was created or updated; nil for a deletion, and for a state that was loaded. It is set even if
	// listproxy serves no watches, and Change is zero.
	Put *Object
	// SupersededBytes is the number of bytes that count as freed when the previous version is forgotten as the oldest: those of
	// the object that was replaced or removed, of the old nodes of the trees and, after a deletion, of this version's own
	// event.
	SupersededBytes int64
}

// Change is a change of one object.
type Change struct {
	// Before is the object before the change; nil if the object was created.
	//
	// After is the object after the change. For a deletion, it is the object's last state with the revision of the deletion.
	Before, After *Object
	Deleted       bool
}

// At returns version i, counted from the oldest kept version.
func (h *History) At(i int) *Version { return h.versions[i] }

// Append adds a version, which must have a higher revision than all others.
func (h *History) Append(v Version) { h.versions = append(h.versions, &v) }

// Forgotten returns the revision of the newest forgotten version; 0 if none was forgotten.
func (h *History) Forgotten() uint64 { return h.forgotten }

// Len returns the number of versions.
func (h *History) Len() int { return len(h.versions) }

// Find returns the version that was the state at rev: the newest version at or before rev. There must be one.
func (h *History) Find(rev uint64) *Version { return h.At(h.FirstAfter(rev) - 1) }

// FirstAfter returns the index of the first version after rev; Len if there is none.
func (h *History) FirstAfter(rev uint64) int {
	return sort.Search(len(h.versions), func(i int) bool { return h.versions[i].Revision > rev })
}

// Forget removes the n oldest versions. Their memory is freed once no copy of the History has them.
func (h *History) Forget(n int) {
	if n == 0 {
		return
	}
	h.forgotten = h.At(n - 1).Revision
	h.versions = slices.Clone(h.versions[n:]) // A part of the old slice would keep the memory of the forgotten versions.
}
