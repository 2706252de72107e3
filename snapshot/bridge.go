package snapshot

import (
	"context"
	"errors"
	"time"

	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
)

const (
	// maxBridgedChanges bounds the changes between the known state and one that was loaded beside it. They are held in
	// memory. If there are more, clients' watches end.
	maxBridgedChanges = 10_000
	// bridgeDeliveryTimeout bounds the wait until clients have these changes.
	bridgeDeliveryTimeout = time.Second
)

// errBridge says that the changes which a watch has shown, applied to the known state, do not give the loaded one.
var errBridge = errors.New("a watch from the known state does not lead to the loaded one")

// bridge lets clients' watches go on over a state that was loaded beside the known one: it reads with a progress watch
// what changed in between, and applies that. After an error the watches must end, since they would miss something.
// It is not enough that both states have the same objects at the same revisions: an object may have been created and
// deleted in between. An example, with the known interval [100, 120] and the loaded revision 150:
//
//	the watch from 120 on                      then
//	is answered 410                            clients' watches end
//	shows 130 and 140, and a bookmark at 155   if the state at 120 with these two changes is the loaded one, clients'
//	                                           watches deliver both, and go on from 150; otherwise they end
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
		if len(changes) > maxBridgedChanges || !ev.Reproducible {
			return errBridge
		}
		_, err = ch.applyTo(state)
		return err
	})
	if err != nil {
		return err
	}
	if p.revision < l.revision || !sameRevisions(state, l.state) {
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
