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

// maxOrderlyGap is a time in which nobody can stop etcd, restore a backup and start etcd. If a watch opens within maxOrderlyGap
// after a load, or after a watch that ended at its timeout, the timeline is taken to be the same.
const maxOrderlyGap = 10 * time.Second

// resume opens a watch that goes on from the end of the view's interval. It first asks the upstream for its revision, since a
// watch from a future revision would send nothing. Three examples, with the interval [100, 120]:
//
//	the upstream's revision   the watch from 120 on   then
//	130                       sends later changes     the interval grows
//	130                       is answered 410         the upstream has forgotten later changes: load anew
//	110                       is not opened           probeWithoutStream fails: another timeline, drop everything
//
// A timeline is one history of etcd; a restored backup begins another. After a break, 130 may be a revision of another
// timeline, so [feed.proveTimeline] must succeed. Once the watch is open, the revision that the upstream gave at first counts
// as the answer to a probe on the new stream.
func (f *feed) resume(ctx context.Context) (*source.Stream, error) {
	current, err := f.probeWithoutStream(ctx)
	if err != nil {
		return nil, err
	}
	s, err := f.openWatch(ctx, f.collection.view.Load().To, watchTimeout+rand.N(watchTimeout))
	if err != nil {
		return nil, err
	}
	if f.timelineKnownAt.IsZero() || clock.Age(f.timelineKnownAt, time.Now()) > maxOrderlyGap {
		if err := f.proveTimeline(ctx); err != nil {
			s.Stop()
			return nil, err
		}
	}
	f.freshness.StreamOpened(time.Now()) // comes first, since it forgets earlier answers
	f.freshness.ProbeAnswered(time.Now(), current)
	// A state with a stream ages even in an outage (see View.age). So it is proven before the collection counts as streaming.
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
