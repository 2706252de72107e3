package snapshot

// Snapshot is an immutable view of a collection at one revision. It may be kept and read by
// any number of goroutines; it keeps what it holds in memory alive.
type Snapshot struct {
	// Revision is what the list's resourceVersion says.
	Revision uint64
	// Frame is how the upstream writes a list of this collection.
	Frame *Frame

	tree tree
}

// Page is one page of a list.
type Page struct {
	// Objects in key order. They are shared and must not be changed.
	Objects []*Object
	// Next is where the following page starts, relative to the scope; "" if this is the last.
	Next string
	// Remaining is how many objects follow this page.
	Remaining int64
}

// Page returns the objects of scope from start on (relative to the scope, "" for its
// beginning), at most limit of them (0: all), appended to buf. Its cost is that of the objects
// it returns, and of a count that does not visit the rest.
func (s Snapshot) Page(scope Scope, start string, limit int64, buf []*Object) Page {
	from, end := scope.prefix()+start, scope.end()
	page := Page{Objects: buf}
	more := false
	s.tree.ascend(from, end, func(o *Object) bool {
		if limit > 0 && int64(len(page.Objects)) == limit {
			more = true
			return false
		}
		page.Objects = append(page.Objects, o)
		return true
	})
	if more {
		// The key right after the last one, as kube-apiserver makes it (storage/continue.go).
		last := page.Objects[len(page.Objects)-1].Key + "\x00"
		page.Next = last[len(scope.prefix()):]
		page.Remaining = s.tree.count(last, end)
	}
	return page
}

// Fixed returns a snapshot of the given objects with the frame of a built-in type, for tests of
// what is made of snapshots.
func Fixed(revision uint64, kind, apiVersion string, objects []*Object) Snapshot {
	state := newTree()
	for _, o := range objects {
		state.set(o)
	}
	return Snapshot{
		Revision: revision,
		Frame:    &Frame{ContentType: JSON, kind: kind, apiVersion: apiVersion, emptyItems: "[]"},
		tree:     state,
	}
}
