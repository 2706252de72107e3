package snapshot

import (
	"context"
	"errors"
	"time"

	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
)

const (
	// maxBridgedChanges bounds the changes that bridge keeps in memory. If there are more, clients' watches end.
	maxBridgedChanges = 10_000
	// bridgeDeliveryTimeout bounds the wait for clients' watches to deliver the bridged changes.
	bridgeDeliveryTimeout = time.Second
)

// bringWatchesUpToDate makes clients' watches deliver all changes from the known state to the loaded one. It returns false if
// this is not possible, or if nobody watches.
func (f *feed) bringWatchesUpToDate(ctx context.Context, l *stateLoad) bool {
	v := f.collection.view.Load()
	if !v.isWatched() || l.watchForm == nil || !v.envelope.AgreesWith(l.envelope) {
		return false
	}
	err := f.bridge(ctx, v, l)
	f.log.Debug("clients' watches after a state was loaded anew", "continued", err == nil, "error", err)
	return err == nil
}

// bridge applies to the known state, v, the changes that lead to the loaded one, so that clients' watches deliver them. It
// reads the changes with a progress watch (a short watch up to a bookmark), since a comparison of the two states would miss
// an object that was created and deleted in between. After an error the clients' watches must end, since they would miss
// changes.
//
// Three examples, with the known state at 120 and the loaded one at 150. The bookmark at 155 shows that nothing else changed
// until 150; the loaded state's stream has the changes after 150.
//
//	the watch from 120 on                      its changes lead to   clients' watches
//	is answered 410                                                  end
//	shows 130 and 140, and a bookmark at 155   the loaded state      deliver both changes and go on
//	shows 130 and 140, and a bookmark at 155   another state         end
func (f *feed) bridge(ctx context.Context, v *View, l *stateLoad) error {
	var changes []stateChange
	replayed := v.newest.Clone()
	shown, err := f.watchProgress(ctx, v.To, l.revision, func(ev wire.Event) error {
		ch, err := f.changeOf(v.envelope, ev)
		if err != nil {
			return err
		}
		if !ev.Reproducible {
			return errors.New("listproxy could not write the event of a change with the upstream's bytes")
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
	if shown.upTo < l.revision || !sameRevisions(replayed, l.state) {
		return errors.New("the changes that a watch shows do not lead to the loaded state")
	}
	for _, ch := range changes {
		if err := f.collection.applyChange(ch); err != nil {
			return err
		}
	}
	// Clients' watches that take longer end when the loaded state is installed.
	v.broadcaster.AwaitDelivered(ctx, bridgeDeliveryTimeout)
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
		return same // Ascend stops at false
	})
	return same
}
