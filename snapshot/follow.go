package snapshot

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// maxOrderlyGap is the longest gap between a watch that ended at its timeout and the next one for which the timeline needs no
// proof: nobody can stop etcd, restore a backup and start etcd in so short a time.
const maxOrderlyGap = 10 * time.Second

// resume opens a watch that goes on from the interval's end. It first asks the upstream for its revision, since a watch from
// a future revision would send nothing. Three examples, with the interval [100, 120]:
//
//	the upstream's revision   the watch from 120 on   then
//	130                       sends later changes     the interval grows
//	130                       is answered 410         the upstream has forgotten later changes: load anew
//	110                       is not opened           another timeline: drop everything
//
// A timeline is one history of etcd; a restored backup begins another. After a break, 130 may be a revision of another
// timeline, so [feed.proveTimeline] must succeed.
func (f *feed) resume(ctx context.Context) (*source.Stream, error) {
	if !clock.Sleep(ctx, time.Until(f.freshness.NoProbeBefore())) {
		return nil, ctx.Err()
	}
	c := f.collection
	f.freshness.ProbeAwaited(time.Now(), c.awaitedProbe.Load())
	probe := c.shared.probes.Next()
	f.freshness.ProbeSent(probe)
	c.publishFreshness(f.freshness)
	current, err := f.runProbe(ctx, probe)
	f.freshness.StreamClosed() // until read calls StreamOpened
	if err != nil {
		return nil, err
	}
	s, err := f.openWatch(ctx, c.view.Load().To, watchTimeout+rand.N(watchTimeout))
	if err != nil {
		return nil, err
	}
	if f.timelineKnownAt.IsZero() || clock.Age(f.timelineKnownAt, time.Now()) > maxOrderlyGap {
		if err := f.proveTimeline(ctx); err != nil {
			s.Stop()
			return nil, err
		}
	}
	c.recordProbe(current)
	return s, nil
}

// openWatch opens a watch that begins after a revision.
func (f *feed) openWatch(ctx context.Context, after uint64, timeout time.Duration) (*source.Stream, error) {
	return f.source.Watch(ctx, "", url.Values{
		"resourceVersion":     {strconv.FormatUint(after, 10)},
		"allowWatchBookmarks": {"true"},
	}, timeout)
}

// read applies the events of the stream until the stream ends or must be left. It returns nil if the stream ended at its
// timeout.
func (f *feed) read(ctx context.Context, s *source.Stream) error {
	f.collection.setStreaming(true)
	f.freshness.StreamOpened(time.Now())
	ctx, cancelCalls := context.WithCancel(ctx)
	r := &reader{
		feed:        f,
		stream:      s,
		cancelCalls: cancelCalls,
		outcomes:    make(chan func() error, maxCalls),
		alarm:       time.NewTimer(0),
	}
	defer r.stop()
	if f.lacksBookmark() { // the stream's first bookmark may take a minute
		r.openProgressWatch(ctx)
	}
	for {
		if err := r.act(ctx); err != nil {
			return err
		}
		if isOver, err := r.wait(ctx); isOver || err != nil {
			return err
		}
	}
}

// reader reads one stream for a feed. In each turn it does what is due, and then waits for the next event. While it reads, it
// sends probes and opens progress watches (second, short watches for a bookmark) when [source.Freshness] decides so. Both are
// calls to the upstream.
type reader struct {
	*feed
	stream *source.Stream
	// calls are the calls in flight, at most one of each kind.
	calls       sync.WaitGroup
	cancelCalls context.CancelFunc
	// outcomes gets a function from each call that has ended. The reader calls the function, which handles the outcome.
	outcomes chan func() error
	// unapplied is what the last progress watch has shown and the stream has not sent yet.
	unapplied progress
	// alarm fires when something is due.
	alarm *time.Timer
}

// maxCalls is the largest number of calls in flight: a probe and a progress watch.
const maxCalls = 2

// stop records that no stream is read any more, and cancels the calls in flight.
func (r *reader) stop() {
	r.alarm.Stop()
	r.collection.setStreaming(false)
	r.freshness.StreamClosed()
	r.collection.publishFreshness(r.freshness)
	r.cancelCalls()
	r.calls.Wait() // their outcomes are not handled
}

// errStreamLeft says that the feed stops reading a stream that has not ended.
var errStreamLeft = errors.New("the stream is silent, or may be of another timeline than the answers")

// act applies what the last progress watch has shown, does everything that is due, and sets the alarm for what will be due
// next. After an error the stream must not be read any more.
func (r *reader) act(ctx context.Context) (err error) {
	c := r.collection
	r.unapplied, err = c.applyProgress(r.unapplied)
	if err != nil {
		return err
	}
	for {
		now := time.Now()
		v := c.view.Load()
		r.freshness.StateReached(v.To)
		r.freshness.ProbeAwaited(now, c.awaitedProbe.Load())
		next := r.freshness.Next(now, v.provenBy.Sent)
		switch next.Step {
		case source.LeaveStream:
			return errStreamLeft
		case source.SendProbe:
			r.sendProbe(ctx)
		case source.OpenProgressWatch:
			r.openProgressWatch(ctx)
		case source.Wait:
			r.alarm.Stop()
			if !next.Wake.IsZero() {
				r.alarm.Reset(time.Until(next.Wake))
			}
			c.publishFreshness(r.freshness)
			return nil
		}
	}
}

// sendProbe starts a call that sends a probe. No other probe may be in flight.
func (r *reader) sendProbe(ctx context.Context) {
	probe := r.collection.shared.probes.Next()
	r.freshness.ProbeSent(probe)
	r.calls.Go(func() {
		result, err := r.runProbe(ctx, probe)
		r.outcomes <- func() error { return r.handleProbe(result, err) }
	})
}

// openProgressWatch starts a call that opens a progress watch. No other progress watch may be open.
func (r *reader) openProgressWatch(ctx context.Context) {
	start := r.collection.view.Load().To
	r.freshness.ProgressOpened()
	r.calls.Go(func() {
		shown, err := r.watchProgress(ctx, start, math.MaxUint64, func(wire.Event) error { return nil })
		r.outcomes <- func() error { return r.handleProgress(shown, err) }
	})
}

// wait waits until something happens, and handles it. isOver reports whether the stream has ended at its timeout. After an
// error the stream must not be read any more.
func (r *reader) wait(ctx context.Context) (isOver bool, err error) {
	select {
	case ev, ok := <-r.stream.Events:
		if ok {
			r.freshness.StreamSent(ev.ReadAt)
			return false, r.applyEvent(ctx, ev)
		}
		if r.stream.EndedAtTimeout(time.Now()) {
			return true, nil
		}
		return false, r.stream.Err
	case handle := <-r.outcomes:
		return false, handle()
	case <-r.collection.reloadRequests:
		return false, errReloadRequested
	case <-r.collection.newWaiters: // the next turn reads awaitedProbe
		return false, nil
	case <-r.collection.probeRequests:
		r.freshness.RequestProbe()
		return false, nil
	case <-r.alarm.C: // the next turn does what is due
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// applyEvent advances the state by one event of the stream. After an error the stream must not be read any more.
func (f *feed) applyEvent(ctx context.Context, ev wire.Event) error {
	f.checkForm(ev)
	if ev.Type == wire.Bookmarked {
		f.freshness.StreamBookmark(ev.ReadAt)
		if ev.Meta.Revision < f.collection.view.Load().To {
			f.freshness.RequestProbe() // the probe shows whether the API server lags, or its storage was restored
			return nil
		}
		return f.collection.applyBookmark(ev.Meta.Revision)
	}
	if err := f.learnItemForm(ctx, ev); err != nil {
		return err
	}
	ch, err := f.changeOf(f.envelope, ev)
	if err != nil {
		return err
	}
	return f.collection.applyChange(ch)
}
