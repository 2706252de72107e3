package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/wire"
)

const (
	// proveTimeline makes up to leasePauses pauses of leasePause: together more than the ten seconds in which each API server
	// writes its Lease once.
	leasePauses = 2
	leasePause  = 6 * time.Second
)

// proveTimeline returns nil if there is a proof that the upstream still has the timeline (the history of etcd) of the known
// states, and [errUnproven] if there is none. Any other error means that the upstream could not be asked.
//
// Suppose etcd was restored from an older backup, and was then written to until its revision passed ours. A watch could begin
// at our newest revision as if nothing had happened. Two things prove that this has not happened. API servers are stopped
// before etcd is restored, so one that ran before the break and still runs is a proof. So is the newest change, if the
// upstream sends it once more.
func (f *feed) proveTimeline(ctx context.Context) error {
	v := f.collection.view.Load()
	lastChange, _ := v.lastChange()
	for pauses := 0; ; pauses++ {
		same, mayBeKnownSoon := f.config.SameTimeline(ctx, v.To, f.freshness.StreamSentAt())
		if same {
			return nil
		}
		canCompare := lastChange != nil // if not, only a Lease can prove the timeline
		if canCompare || !mayBeKnownSoon || pauses == leasePauses {
			return f.compareLastChange(ctx, v)
		}
		if !clock.Sleep(ctx, leasePause) {
			return ctx.Err()
		}
	}
}

// compareLastChange compares the end of v's history with a progress watch, a short watch up to a bookmark: the newest change
// that is no deletion, byte for byte, and the revisions of the deletions after that change. It returns nil if the watch shows
// exactly these changes, and [errUnproven] otherwise. A history of nothing but deletions proves nothing, since another
// timeline can have deletions at the same revisions. An example with the newest revision 120, where a is an object:
//
//	the last changes known         the watch from 114 shows      result
//	115 of a, deletions 117, 120   the same                      nil
//	115 of a, deletions 117, 120   115 of a, 117, and not 120    errUnproven
//	115 of a, deletions 117, 120   115 of a with other bytes     errUnproven
func (f *feed) compareLastChange(ctx context.Context, v *View) error {
	last, revisions := v.lastChange()
	if last == nil {
		return errUnproven
	}
	var first wire.Event
	shown, err := f.watchProgress(ctx, last.Revision-1, v.To, func(ev wire.Event) error {
		if first.Object == nil {
			first = ev
		}
		return nil
	})
	switch {
	// errNoBookmark is no failure here: if the upstream sends no bookmarks, the watch has shown everything by its timeout.
	case err != nil && !errors.Is(err, errNoBookmark):
		return err
	case err == nil && shown.end < v.To:
		return fmt.Errorf("the upstream is at revision %d, and not at %d yet", shown.end, v.To)
	case !slices.Equal(shown.revisions, revisions):
		return errUnproven
	}
	again, err := f.changeOf(v.envelope, first)
	if err != nil || again.key != last.Key || again.object == nil || !bytes.Equal(again.object.Bytes, last.Bytes) {
		return errUnproven
	}
	return nil
}
