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
	// proveTimeline waits for a Lease of an API server in up to leasePauses pauses of leasePause. Together they are longer than
	// the ten seconds in which each API server writes its Lease once.
	leasePauses = 2
	leasePause  = 6 * time.Second
)

// proveTimeline is called after a break of the stream. It returns nil if there is a proof that the upstream still has the
// timeline (the history of etcd) of the known states, and [errUnproven] if there is none. Any other error means that the
// upstream could not be asked.
//
// Suppose etcd was restored from an older backup, and was then written to until its revision passed ours. A watch could begin
// at our newest revision as if nothing had happened. Either of two facts proves that etcd was not restored:
//
//   - An API server that ran before the break still runs: all are stopped before etcd is restored. Their Leases show this.
//   - The upstream sends the newest known change once more.
func (f *feed) proveTimeline(ctx context.Context) error {
	v := f.collection.view.Load()
	lastChange, _ := v.lastChange()
	for pauses := 0; ; pauses++ {
		lastHeardAt := f.freshness.StreamSentAt()
		same, leaseMayCome := f.config.SameTimeline(ctx, v.To, lastHeardAt)
		switch {
		case same:
			return nil
		case lastChange != nil: // no need to wait for a Lease
			return f.compareLastChange(ctx, v)
		case !leaseMayCome || pauses == leasePauses:
			return errUnproven
		}
		if !clock.Sleep(ctx, leasePause) {
			return ctx.Err()
		}
	}
}

// compareLastChange compares the end of v's history with what the upstream sends in a progress watch, a short watch up to a
// bookmark. The watch begins just before the newest change that is not a deletion. It must show that change with the same
// bytes, then deletions at the same revisions, and nothing else. If it does not, the error is [errUnproven].
//
// v's history must have a change that is not a deletion. Deletions alone would prove nothing, since another timeline can have
// deletions at the same revisions. An example with the newest revision 120, where a is an object:
//
//	the last changes known         the watch from 114 shows      result
//	115 of a, deletions 117, 120   the same                      nil
//	115 of a, deletions 117, 120   115 of a, 117, and not 120    errUnproven
//	115 of a, deletions 117, 120   115 of a with other bytes     errUnproven
func (f *feed) compareLastChange(ctx context.Context, v *View) error {
	last, revisions := v.lastChange() // the revisions of last, and of the deletions after it
	var first wire.Event
	shown, err := f.watchProgress(ctx, last.Revision-1, v.To, func(ev wire.Event) error {
		if first.Object == nil {
			first = ev
		}
		return nil
	})
	// Some upstreams send no bookmark. By its timeout, the watch has shown everything all the same.
	endedAtTimeout := errors.Is(err, errNoBookmark)
	switch {
	case err != nil && !endedAtTimeout:
		return err
	case !endedAtTimeout && shown.end < v.To:
		return fmt.Errorf("the upstream is at revision %d, and not at %d yet", shown.end, v.To)
	case !slices.Equal(shown.revisions, revisions):
		return errUnproven
	}
	again, err := f.changeOf(v.envelope, first)
	isSame := err == nil && again.key == last.Key && again.object != nil && bytes.Equal(again.object.Bytes, last.Bytes)
	if !isSame {
		return errUnproven
	}
	return nil
}
