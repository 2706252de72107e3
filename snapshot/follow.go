package snapshot

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net/url"
	"strconv"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// maxOrderlyGap is how long it may take at most from the end of a watch at its timeout until the next watch is answered, so
// that both see one timeline: nobody can stop etcd, restore a backup and start it again in less.
const maxOrderlyGap = 10 * time.Second

// resume opens a watch that goes on where the last one had come to. The upstream is first asked for its
// revision: with another timeline than the one that is known here, a watch from a revision in the future
// would stay silent. A worked example, the interval being [100, 120]:
//
//	asked  answer  then
//	  1     130    a watch from 120 on: what happened since is told, and the interval grows
//	  2     130    that watch is answered 410: what happened since is forgotten; load anew
//	  3     110    another timeline: drop everything
//
// After a break, 130 may be of another timeline, too: then [feed.proveTimeline] must hold.
func (f *feed) resume(ctx context.Context) (*source.Stream, error) {
	if !clock.Sleep(ctx, time.Until(f.fresh.ProbesFrom())) {
		return nil, ctx.Err()
	}
	c := f.collection
	f.fresh.Await(time.Now(), c.awaited.Load())
	sent := c.probes.Next()
	f.fresh.ProbeSent(sent)
	c.publish(f.fresh)
	now, err := f.probe(ctx, sent)
	f.fresh.Stop()
	if err != nil {
		return nil, err
	}
	s, err := f.openWatch(ctx, c.view.Load().To, watchTimeout+rand.N(watchTimeout))
	if err != nil {
		return nil, err
	}
	if f.timedOutAt.IsZero() || clock.Age(f.timedOutAt, time.Now()) > maxOrderlyGap {
		if err := f.proveTimeline(ctx); err != nil {
			s.Stop()
			return nil, err
		}
		c.life.resumed()
	}
	c.expect(now)
	return s, nil
}

// pause waits before the next try. No request need wait for a proof meanwhile.
func (f *feed) pause(ctx context.Context, d, least time.Duration) {
	f.fresh.Refused(time.Now(), max(d, least))
	f.collection.publish(f.fresh)
	f.collection.pause(ctx, d, least)
	f.fresh.Retry(time.Now())
}

// openWatch opens a watch from a revision on.
func (f *feed) openWatch(ctx context.Context, from uint64, timeout time.Duration) (*source.Stream, error) {
	return f.source.Watch(ctx, "", url.Values{
		"resourceVersion":     {strconv.FormatUint(from, 10)},
		"allowWatchBookmarks": {"true"},
	}, timeout)
}

// errStreamLeft says that a stream is not read any more, though it has not ended.
var errStreamLeft = errors.New("the stream is silent, or may be of another timeline than the answers")

// read applies the events of the stream, until it ends or must be left. It returns nil if the stream
// has ended at its timeout. [source.Freshness] decides what the feed asks meanwhile, and when: each turn
// takes over what a progress watch has shown, does what the machine says, and waits for one thing.
func (f *feed) read(ctx context.Context, s *source.Stream) (err error) {
	var probe call[probeResult]
	var progressWatch call[progress]
	defer probe.stop()
	defer progressWatch.stop()
	var shown progress // by a progress watch, and not by the stream yet
	timer := time.NewTimer(0)
	defer timer.Stop()
	c, fresh := f.collection, &f.fresh
	c.setStreaming(true)
	defer func() {
		c.setStreaming(false)
		fresh.Stop()
		c.publish(*fresh)
	}()
	fresh.Follow(time.Now())
	watchProgress := func() {
		from := c.view.Load().To
		fresh.ProgressOpened()
		progressWatch.start(ctx, func(ctx context.Context) (progress, error) { return f.watchProgress(ctx, from, math.MaxUint64, nil) })
	}
	if f.lacksBookmark() { // the stream's own may take a minute
		watchProgress()
	}
	for {
		if shown, err = c.takeProgress(shown); err != nil {
			return err
		}
		now, v := time.Now(), c.view.Load()
		fresh.Reached(v.To)
		fresh.Await(now, c.awaited.Load())
		switch do := fresh.Next(now, v.currentAt.Sent); {
		case do.Leave:
			return errStreamLeft
		case do.Probe:
			sent := c.probes.Next()
			fresh.ProbeSent(sent)
			probe.start(ctx, func(ctx context.Context) (probeResult, error) { return f.probe(ctx, sent) })
			continue
		case do.Progress:
			watchProgress()
			continue
		case do.Wake.IsZero():
			timer.Stop()
		default:
			timer.Reset(do.Wake.Sub(now))
		}
		c.publish(*fresh)
		select {
		case ev, ok := <-s.Events:
			if !ok {
				return f.streamEndError(s)
			}
			if err := f.takeEvent(ctx, ev); err != nil {
				return err
			}
			fresh.StreamSent(ev.Came)
			if ev.Kind == wire.Bookmarked {
				fresh.StreamBookmark(ev.Came)
			}
		case <-c.outOfDate:
			return errOutOfDate
		case <-c.newWaiters:
		case <-c.probeRequests:
			fresh.RequestProbe()
		case outcome := <-probe.outcome:
			probe.clear()
			if err := f.handleProbe(outcome); err != nil {
				return err
			}
		case outcome := <-progressWatch.outcome:
			progressWatch.clear()
			if shown, err = f.handleProgress(outcome); err != nil {
				return err
			}
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// streamEndError returns how a stream ended; nil: at its timeout.
func (f *feed) streamEndError(s *source.Stream) error {
	if s.InOrder(time.Now()) {
		return nil
	}
	return s.Err
}

// takeEvent applies one event.
func (f *feed) takeEvent(ctx context.Context, ev wire.Event) error {
	f.checkForm(ev)
	if ev.Kind == wire.Bookmarked {
		if ev.Meta.Revision < f.collection.view.Load().To {
			f.fresh.RequestProbe() // the API server lags, or its storage was restored
			return nil
		}
		return f.collection.progress(ev.Meta.Revision)
	}
	if err := f.learnFirst(ctx, ev); err != nil {
		return err
	}
	ch, err := f.stateChange(f.envelope, ev)
	if err != nil {
		return err
	}
	if err = f.collection.apply(ch); errors.Is(err, errFull) && f.makeRoom() {
		return nil // what nobody asks for has gone instead
	}
	return err
}
