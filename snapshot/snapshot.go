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
	// CurrentAt is the time at which the state was last known to be current: everything that was written before is in it. It is
	// zero for a state at an exact revision, which need not be the newest.
	CurrentAt time.Time

	// epoch is the collection's epoch in which the state was known. A load or a drop begins another one.
	epoch uint64
	// broadcaster serves the watches that begin at the state; nil if none are served.
	broadcaster *watch.Broadcaster
}

// Page returns the page of a query. Page.Objects uses the memory of buf. See [index.Tree.Page].
func (s Snapshot) Page(q index.Query, buf []*index.Object) index.Page {
	return s.Tree.Page(s.Envelope, q, buf)
}

// listState returns the snapshot in the form that [source.Source.ComparePage] compares with the upstream's list.
func (s Snapshot) listState() source.ListState {
	return source.ListState{Revision: s.Revision, Envelope: s.Envelope, Tree: s.Tree}
}
