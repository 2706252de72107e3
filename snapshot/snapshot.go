package snapshot

import (
	"time"

	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/watch"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// CollectionKey names a collection.
type CollectionKey = source.CollectionKey

// Snapshot is the state of a collection at one revision. It is immutable and safe for concurrent use. While a Snapshot is
// referenced, the memory of its objects is not freed.
type Snapshot struct {
	// Revision is the resourceVersion of the list.
	Revision uint64
	// Envelope writes lists of this collection as the upstream does.
	Envelope *wire.Envelope
	// Tree has the objects.
	Tree index.Tree
	// CurrentAt is the time up to which the state has everything that was written. It is zero for a state at an exact
	// revision, which need not be the newest.
	CurrentAt time.Time

	// epoch is the collection's epoch in which the state was known.
	epoch uint64
	// broadcaster serves the watches that begin at the state; nil if none are served.
	broadcaster *watch.Broadcaster
}

// Page is [index.Tree.Page].
func (s Snapshot) Page(q index.Query, buf []*index.Object) index.Page {
	return s.Tree.Page(s.Envelope, q, buf)
}

// listState returns the snapshot in the form that [source.Source.ComparePage] compares with the upstream's list.
func (s Snapshot) listState() source.ListState {
	return source.ListState{Revision: s.Revision, Envelope: s.Envelope, Tree: s.Tree}
}
