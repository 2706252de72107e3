package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
)

const (
	// proveTimeline looks at the Leases again up to leasePauses times, each time after a leasePause. Two pauses are 12 s
	// together. Each API server that runs writes its Lease every 10 s, so all of them have written by then.
	leasePauses = 2
	leasePause  = 6 * time.Second
)

// proveTimeline is called after a break of the stream. It returns nil if there is a proof that the upstream still has the
// timeline (history of etcd) of the known states, and [errUnproven] if there is none. Any other error means that the upstream
// could not be asked.
//
// Suppose etcd was restored from an older backup, and was then written to until its revision passed ours. A watch could begin
// at our newest revision as if nothing had happened. Either of two facts, tried in this order, proves that etcd was not
// restored:
//
//  1. An API server that ran before the break still runs, which its Lease shows. (All API servers are stopped before etcd is
//     restored.)
//  2. The upstream sends the last put (a creation or an update) that is known once more, with the same bytes.
//
// If no put is known, only the Leases can prove something, so proveTimeline waits for them.
func (f *feed) proveTimeline(ctx context.Context) error {
	v := f.collection.view.Load()
	put, revisions := v.lastPut()
	for pauses := 0; ; pauses++ {
		same, proofMayCome := f.config.SameTimeline(ctx, v.To, f.freshness.StreamHeardAt())
		switch {
		case same:
			return nil
		case put != nil: // the second proof is tried at once, instead of a wait for the Leases
			return f.compareLastChanges(ctx, v, put, revisions)
		case !proofMayCome || pauses == leasePauses:
			return errUnproven
		}
		if !clock.Sleep(ctx, leasePause) {
			return ctx.Err()
		}
	}
}

// compareLastChanges compares the last changes of v's history with what the upstream sends. These changes are put, and the
// deletions since then. revisions has the revisions of all of them (see View.lastPut). compareLastChanges opens a progress
// watch, a short watch up to a bookmark, that begins just before put. The watch must show put with the same bytes, then
// deletions at the same revisions, and nothing else. If it does not, the error is [errUnproven]. Deletions alone would prove
// nothing, since another timeline can have deletions at the same revisions.
//
// An example with the newest revision 120, where a is an object:
//
//	the last changes known             the watch from 114 shows           result
//	put a at 115, deletions 117, 120   the same                           nil
//	put a at 115, deletions 117, 120   put a at 115, deletion 117         errUnproven
//	put a at 115, deletions 117, 120   put a at 115 with other bytes, …   errUnproven
func (f *feed) compareLastChanges(ctx context.Context, v *View, put *index.Object, revisions []uint64) error {
	var first wire.Event // should be put
	seen, err := f.watchProgress(ctx, put.Revision-1, v.To, func(ev wire.Event) error {
		if first.Object == nil {
			first = ev
		}
		return nil
	})
	// Some upstreams send no bookmark. The watch then ends at its timeout, and has shown everything by then.
	endedAtTimeout := errors.Is(err, errNoBookmark)
	switch {
	case err != nil && !endedAtTimeout:
		return err
	case !endedAtTimeout && seen.upTo < v.To:
		return fmt.Errorf("the upstream is at revision %d, and not at %d yet", seen.upTo, v.To)
	case !slices.Equal(seen.revisions, revisions):
		return errUnproven
	}
	resent, err := f.newChange(v.envelope, first)
	isSame := err == nil && resent.key == put.Key && resent.object != nil && bytes.Equal(resent.object.Bytes, put.Bytes)
	if !isSame {
		return errUnproven
	}
	return nil
}
