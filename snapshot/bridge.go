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

// errBridge says that clients' watches cannot go on over a loaded state: the changes that a watch shows do not lead from the
// known state to the loaded one, or are too many, or have bytes that clients could not be sent.
var errBridge = errors.New("a watch from the known state does not lead to the loaded one")

// bridge keeps clients' watches alive when a newly loaded state is about to replace the known one: it reads, with a progress
// watch, what has changed from the known state to the loaded one, and applies these changes. After an error the watches
// must end, since they would miss something. Comparing the two states would not do: an object may have been created and
// deleted in between. An example, with the known state at 120 and the loaded one at 150:
//
//	the watch from 120 on                      then
//	is answered 410                            clients' watches end
//	shows 130 and 140, and a bookmark at 155   nothing else came until 150: if the state at 120 with these two changes is
//	                                           the loaded one, clients' watches deliver both; otherwise they end
func (f *feed) bridge(ctx context.Context, l *loaded) error {
	v := f.collection.view.Load()
	var changes []stateChange
	state := v.newest.Clone()
	p, err := f.watchProgress(ctx, v.To, l.revision, func(ev wire.Event) error {
		ch, err := f.stateChange(f.envelope, ev)
		if err != nil {
			return err
		}
		changes = append(changes, ch)
		isTooLong := len(changes) > maxBridgedChanges
		if isTooLong || !ev.Reproducible { // clients' events are made of stored bytes
			return errBridge
		}
		_, err = ch.applyTo(state) // a clone, which no request gets
		return err
	})
	if err != nil {
		return err
	}
	if p.revision < l.revision || !sameRevisions(state, l.state) { // the watch may have ended early
		return errBridge
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
