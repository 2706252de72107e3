package snapshot

import (
	"cmp"

	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// stateChange is a change of a state: an event of a watch that is no bookmark.
type stateChange struct {
	// kind is wire.Added, wire.Modified or wire.Deleted.
	kind     string
	key      string
	revision uint64
	// object is the object after the change; nil for a deletion.
	object *index.Object
	// deleted is the object in the event of a deletion; nil for other events, or if no watches are served.
	deleted *index.Object
}

// forWatchers returns the change in the form that watchers deliver. old is what applyTo has returned.
func (ch stateChange) forWatchers(old *index.Object) index.Change {
	return index.Change{Before: old, After: cmp.Or(ch.object, ch.deleted), Deleted: ch.kind == wire.Deleted}
}

// applyTo makes the change in state, the caller's tree, and returns the object that it replaces or removes, or nil. After an
// error the caller must not use state any more, since it may have been changed.
func (ch stateChange) applyTo(state index.Tree) (*index.Object, error) {
	if ch.kind == wire.Deleted {
		old := state.Remove(ch.key)
		if old == nil {
			return nil, wire.Inconsistent("revision %d deletes an object that is not there", ch.revision)
		}
		return old, nil
	}
	old := state.Set(ch.object)
	switch {
	case ch.kind == wire.Added && old != nil:
		return nil, wire.Inconsistent("revision %d adds an object that is there already", ch.revision)
	case ch.kind == wire.Modified && old == nil:
		return nil, wire.Inconsistent("revision %d modifies an object that is not there", ch.revision)
	}
	return old, nil
}

// sizeOf returns the size of an object; 0 for nil.
func sizeOf(o *index.Object) int64 {
	if o == nil {
		return 0
	}
	return o.Size()
}
