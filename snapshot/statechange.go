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
func (change stateChange) forWatchers(old *index.Object) index.Change {
	return index.Change{Before: old, After: cmp.Or(change.object, change.deleted), Deleted: change.kind == wire.Deleted}
}

// applyTo makes the change in state, the caller's tree, and returns the object that it replaces or removes, or nil. After an
// error the caller must not use state any more, since it may have been changed.
func (change stateChange) applyTo(state index.Tree) (*index.Object, error) {
	if change.kind == wire.Deleted {
		old := state.Remove(change.key)
		if old == nil {
			return nil, wire.Inconsistent("revision %d deletes an object that is not there", change.revision)
		}
		return old, nil
	}
	old := state.Set(change.object)
	switch {
	case change.kind == wire.Added && old != nil:
		return nil, wire.Inconsistent("revision %d adds an object that is there already", change.revision)
	case change.kind == wire.Modified && old == nil:
		return nil, wire.Inconsistent("revision %d modifies an object that is not there", change.revision)
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
