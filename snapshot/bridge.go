package snapshot

import (
	"context"
	"errors"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
)

const (
	// maxBridgedChanges bounds the changes between the known and the loaded state that readChangesTo keeps in memory. If there
	// are more, clients' watches end.
	maxBridgedChanges = 10_000
	// bridgeDeliveryTime is the time that clients' watches have to deliver these changes.
	bridgeDeliveryTime = time.Second
)

// bringWatchesUpToDate applies all changes from the known state to the loaded state, and gives clients' watches some time to
// deliver them. Then the watches can go on after the loaded state is installed. It returns false if nobody watches, or if the
// watches cannot deliver all changes: these are not known for certain, too many, too large for the budget, or in another form.
// Then clients' watches must end.
func (f *feed) bringWatchesUpToDate(ctx context.Context, loaded *stateLoad) bool {
	v := f.collection.view.Load()
	if !v.isWatched() || loaded.watchForm == nil || !v.envelope.CanBeReplacedBy(loaded.envelope) {
		return false
	}
	changes, err := f.readChangesTo(ctx, v, loaded)
	for i := 0; err == nil && i < len(changes); i++ {
		err = f.collection.applyChange(changes[i]) // makes the change due at clients' watches
	}
	if err != nil {
		f.log.Debug("clients' watches end after a new load", "error", err)
		return false
	}
	// A client's watch that has not delivered all changes after this time will end when the loaded state is installed.
	clock.Sleep(ctx, bridgeDeliveryTime)
	f.log.Debug("clients' watches go on after a new load")
	return true
}

// readChangesTo reads the changes that lead from the known state, v, to the loaded state. It reads them with a progress watch
// (a short watch up to a bookmark), since a comparison of the two states would miss an object that was created and deleted
// between the two revisions.
//
// Three examples, with the known state at 120 and the loaded state at 150. The bookmark at 155 says that the watch has sent
// every change up to 150. (Later changes come on the loaded state's stream.)
//
//	the watch from 120 on sends            the known state and these changes give   readChangesTo returns
//	changes at 130, 140; bookmark at 155   the loaded state                         the two changes
//	a change at 130; bookmark at 155       another state                            an error
//	an error: 410                          (not compared)                           an error
func (f *feed) readChangesTo(ctx context.Context, v *View, loaded *stateLoad) ([]stateChange, error) {
	var changes []stateChange
	replayed := v.newest.Clone()
	seen, err := f.watchProgress(ctx, v.To, loaded.revision, func(ev wire.Event) error {
		change, err := f.newChange(v.envelope, ev)
		if err != nil {
			return err
		}
		if !ev.Reproducible {
			return errors.New("listproxy could not write the event of a change with the upstream's bytes")
		}
		if len(changes) == maxBridgedChanges {
			return errors.New("too many changes")
		}
		changes = append(changes, change)
		_, err = change.applyTo(replayed)
		return err
	})
	if err != nil {
		return nil, err
	}
	if seen.upTo < loaded.revision || !sameRevisions(replayed, loaded.state) {
		return nil, errors.New("the changes that a watch shows do not lead to the loaded state")
	}
	return changes, nil
}

// sameRevisions reports whether two states have the same objects at the same revisions.
func sameRevisions(a, b index.Tree) bool {
	same := a.Len() == b.Len()
	b.Ascend("", "", func(o *index.Object) bool {
		other, found := a.Get(o.Key)
		same = same && found && other.Revision == o.Revision
		return same // false ends Ascend
	})
	return same
}
