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

// Snapshot is an immutable view of a collection at one revision. It may be kept and read by
// any number of goroutines; it keeps what it holds in memory alive.
type Snapshot struct {
	// Revision is what the list's resourceVersion says.
	Revision uint64
	// Envelope writes lists of this collection as the upstream does.
	Envelope *wire.Envelope
	// Tree has the objects.
	Tree index.Tree
	// CurrentAt is the time when the upstream was probed for a newest state, which has everything that was written
	// before. It is zero for a state at an exact revision.
	CurrentAt time.Time

	// epoch is the epoch of the collection in which the state was learned.
	epoch uint64
	// broadcaster serves the watches that begin with a newest state; nil if no watches are served.
	broadcaster *watch.Broadcaster
}

// Page is [index.Tree.Page].
func (s Snapshot) Page(q index.Query, buf []*index.Object) index.Page {
	return s.Tree.Page(s.Envelope, q, buf)
}

// state returns the snapshot in the form in which it is compared with the upstream's list.
func (s Snapshot) state() source.ListState {
	return source.ListState{Revision: s.Revision, Envelope: s.Envelope, Tree: s.Tree}
}
