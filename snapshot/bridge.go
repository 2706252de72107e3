package snapshot

import (
	"context"
	"errors"
	"time"

	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
)

const (
	// maxBridgedChanges is how many changes bridge holds in memory. With more, clients' watches end.
	maxBridgedChanges = 10_000
	// bridgeDeliveryTimeout bounds the wait until clients have the bridged changes.
	bridgeDeliveryTimeout = time.Second
)

// bringWatchesUpToDate makes clients' watches deliver all changes that lead from the known state to the loaded one. It
// returns false if that is not possible, or nobody watches.
func (f *feed) bringWatchesUpToDate(ctx context.Context, l *stateLoad) bool {
	v := f.collection.view.Load()
	if !v.isWatched() || l.watchForm == nil || !v.envelope.AgreesWith(l.envelope) {
		return false
	}
	err := f.bridge(ctx, v, l)
	f.log.Debug("clients' watches after a state was loaded anew", "continued", err == nil, "error", err)
	return err == nil
}

// bridge reads with a progress watch what has changed from the known state, v, to the loaded one. It applies these changes
// to the known state, so that clients' watches deliver them. After an error the watches must end, since they would miss
// something. Comparing the two states would not do: an object may have been created and deleted in between. An example,
// with the known state at 120 and the loaded one at 150; a bookmark at 155 shows that nothing else came until 150:
//
//	the watch from 120 on                      its changes lead to   clients' watches
//	is answered 410                                                  end
//	shows 130 and 140, and a bookmark at 155   the loaded state      deliver both changes and go on
//	shows 130 and 140, and a bookmark at 155   another state         end
func (f *feed) bridge(ctx context.Context, v *View, l *stateLoad) error {
	var changes []stateChange
	replayed := v.newest.Clone()
	reached, err := f.watchProgress(ctx, v.To, l.revision, func(ev wire.Event) error {
		ch, err := f.changeOf(f.envelope, ev)
		if err != nil {
			return err
		}
		if !ev.Reproducible {
			return errors.New("clients could not be sent the bytes of a change") // events are made of stored bytes
		}
		if len(changes) == maxBridgedChanges {
			return errors.New("too many changes")
		}
		changes = append(changes, ch)
		_, err = ch.applyTo(replayed)
		return err
	})
	if err != nil {
		return err
	}
	if reached.end < l.revision || !sameRevisions(replayed, l.state) {
		return errors.New("the changes that a watch shows do not lead to the loaded state")
	}
	for _, ch := range changes {
		if err := f.collection.apply(ch); err != nil {
			return err
		}
	}
	v.broadcaster.AwaitDelivered(ctx, bridgeDeliveryTimeout) // a watch that takes longer ends when the state is installed
	return nil
}

// sameRevisions reports whether two states have the same objects at the same revisions.
func sameRevisions(a, b index.Tree) bool {
	if a.Len() != b.Len() {
		return false
	}
	same := true
	b.Ascend("", "", func(o *index.Object) bool {
		other, found := a.Get(o.Key)
		same = found && other.Revision == o.Revision
		return same // false ends the walk
	})
	return same
}
