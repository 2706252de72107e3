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
	// Envelope is how the upstream writes a list of this collection.
	Envelope *wire.Envelope
	// CurrentAt is how new a newest state is: it has everything that was written by then. It is the time
	// when the upstream was asked for its current revision. It is zero for a state at an exact revision.
	CurrentAt time.Time

	// epoch is the one in which it was learned.
	epoch uint64
	tree  index.Tree
	// broadcaster has those who follow the collection that a newest state is from; nil if nobody may.
	broadcaster *watch.Broadcaster
}

// Page returns what q asks for, with the objects appended to buf. Its cost grows with the number of
// objects that it returns; the remaining ones are counted without visiting them. With selectors, it
// also looks at objects that it does not return, but reads none of their bytes.
func (s Snapshot) Page(q index.Query, buf []*index.Object) index.Page {
	return s.tree.Page(s.Envelope, q, buf)
}

// state is what is compared of it.
func (s Snapshot) state() source.ListState {
	return source.ListState{Revision: s.Revision, Envelope: s.Envelope, Tree: s.tree}
}

// Fixed returns a snapshot of the given objects with the envelope of a built-in type in JSON, for
// tests of what is made of snapshots.
func Fixed(revision uint64, kind, apiVersion string, objects []*index.Object) Snapshot {
	state := index.NewTree(false)
	for _, o := range objects {
		state.Set(o)
	}
	return Snapshot{Revision: revision, Envelope: wire.FixedEnvelope(kind, apiVersion), tree: state}
}
