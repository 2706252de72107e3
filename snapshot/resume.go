package snapshot

import (
	"context"
	"math/rand/v2"
	"net/url"
	"strconv"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/source"
)

// minRestoreTime is less than any restore of etcd takes: nobody can stop etcd, restore a backup and start etcd in 10 s. So a
// watch that opens within this time after a load, or after a watch that ended at its timeout, has the same timeline.
const minRestoreTime = 10 * time.Second

// resume opens a watch that goes on from the newest known state. It first probes the upstream: it asks for the current
// revision, since a watch from a future revision would send nothing. Three examples, with the newest state at 120:
//
//	the upstream's revision   the watch from 120 on   what follows
//	130                       sends later changes     the history grows
//	130                       is answered 410         the upstream has forgotten changes after 120, so the state is loaded anew
//	110                       is not opened           the upstream has another timeline, so everything is dropped
//
// A timeline is one history of etcd. A restored backup begins another one, which may have reached 130 as well. So
// [feed.proveTimeline] must succeed, unless a load, or a watch that ended at its timeout, is so recent that etcd cannot have
// been restored since.
//
// Once the watch is open, the probe's revision is recorded, as if the probe had been sent while the watch was read.
func (f *feed) resume(ctx context.Context) (*source.Stream, error) {
	current, err := f.probeWithoutStream(ctx)
	if err != nil {
		return nil, err
	}
	s, err := f.openWatch(ctx, f.collection.view.Load().To, watchTimeout+rand.N(watchTimeout))
	if err != nil {
		return nil, err
	}
	// timelineKnownAt is zero after a stream that did not end at its timeout.
	if f.timelineKnownAt.IsZero() || clock.Age(f.timelineKnownAt, time.Now()) > minRestoreTime {
		if err := f.proveTimeline(ctx); err != nil {
			s.Stop()
			return nil, err
		}
	}
	f.freshness.StreamOpened(time.Now()) // StreamOpened forgets earlier answers, so ProbeAnswered follows it
	f.freshness.ProbeAnswered(time.Now(), current)
	// The proof is recorded before the caller sets the view to streaming: a streaming state ages even in an outage (see
	// View.age), and without the proof it could be too old at once.
	f.recordProof()
	return s, nil
}

// openWatch opens a watch that begins after a revision.
func (f *feed) openWatch(ctx context.Context, after uint64, timeout time.Duration) (*source.Stream, error) {
	return f.source.Watch(ctx, "", url.Values{
		"resourceVersion":     {strconv.FormatUint(after, 10)},
		"allowWatchBookmarks": {"true"},
	}, timeout)
}
