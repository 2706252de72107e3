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
	// maxBridgedChanges bounds the changes that readChangesTo keeps in memory. If there are more, clients' watches end.
	maxBridgedChanges = 10_000
	// bridgeDeliveryTime is the time that clients' watches have to deliver the changes.
	bridgeDeliveryTime = time.Second
)

// bringWatchesUpToDate makes clients' watches deliver all changes from the known state to the loaded one. It returns false if
// nobody watches, or if the changes cannot be delivered. In the second case, clients' watches must end, since they would miss
// changes.
func (f *feed) bringWatchesUpToDate(ctx context.Context, l *stateLoad) bool {
	v := f.collection.view.Load()
	if !v.isWatched() || l.watchForm == nil || !v.envelope.CanBeReplacedBy(l.envelope) {
		return false
	}
	changes, err := f.readChangesTo(ctx, v, l)
	for i := 0; err == nil && i < len(changes); i++ {
		err = f.collection.applyChange(changes[i])
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

// readChangesTo returns the changes that lead from the known state, v, to the loaded one, l. It reads them with a progress
// watch (a short watch up to a bookmark), since a comparison of the two states would miss an object that was created and
// deleted in between.
//
// Three examples, with the known state at 120 and the loaded one at 150. The bookmark at 155 shows that nothing else changed
// until 150; the loaded state's stream has the changes after 150.
//
//	the watch from 120 on                      its changes lead to   readChangesTo returns
//	is answered 410                                                  an error
//	shows 130 and 140, and a bookmark at 155   the loaded state      both changes
//	shows 130, and a bookmark at 155           another state         an error
func (f *feed) readChangesTo(ctx context.Context, v *View, l *stateLoad) ([]stateChange, error) {
	var changes []stateChange
	replayed := v.newest.Clone()
	shown, err := f.watchProgress(ctx, v.To, l.revision, func(ev wire.Event) error {
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
	if shown.upTo < l.revision || !sameRevisions(replayed, l.state) {
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
		return same // Ascend stops at false
	})
	return same
}
