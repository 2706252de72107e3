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

// maxOrderlyGap bounds the gap between the end of a watch at its timeout and the answer to the next watch, if both are
// to have the same timeline without a proof: to stop etcd, restore a backup and start etcd again takes longer.
const maxOrderlyGap = 10 * time.Second

// resume opens a watch that goes on from the interval's end. Before, it asks the upstream for its revision: a watch
// from a revision that is still in the future would send nothing. Three examples, with the interval [100, 120]:
//
//	the upstream's revision   the watch from 120 on   then
//	130                       sends later changes     the interval grows
//	130                       is answered 410         the upstream has forgotten later changes: load anew
//	110                       is not opened           another timeline: drop everything
//
// After a break, 130 may be of another timeline, too: so [feed.proveTimeline] must succeed.
func (f *feed) resume(ctx context.Context) (*source.Stream, error) {
	if !clock.Sleep(ctx, time.Until(f.fresh.NoProbeBefore())) {
		return nil, ctx.Err()
	}
	c := f.collection
	f.fresh.Await(time.Now(), c.awaitedProbe.Load())
	sent := c.probes.Next()
	f.fresh.ProbeSent(sent)
	c.publishForecast(f.fresh)
	current, err := f.probe(ctx, sent)
	f.fresh.StreamClosed()
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
	}
	c.recordProbe(current)
	return s, nil
}

// pause waits before the next session ([Collection.pause]). Requests learn that no proof can come meanwhile, and do not
// wait for a proof.
func (f *feed) pause(ctx context.Context, usual, least time.Duration) {
	f.fresh.Refused(time.Now(), max(usual, least))
	f.collection.publishForecast(f.fresh)
	f.collection.pause(ctx, usual, least)
	f.fresh.EndPause(time.Now())
}

// openWatch opens a watch from a revision on.
func (f *feed) openWatch(ctx context.Context, from uint64, timeout time.Duration) (*source.Stream, error) {
	return f.source.Watch(ctx, "", url.Values{
		"resourceVersion":     {strconv.FormatUint(from, 10)},
		"allowWatchBookmarks": {"true"},
	}, timeout)
}

// errStreamLeft says that the feed stops reading a stream that has not ended.
var errStreamLeft = errors.New("the stream is silent, or may be of another timeline than the answers")

// read applies the events of the stream until the stream ends or must be left. It returns nil if the stream ended at
// its timeout. Meanwhile [source.Freshness] decides when a probe is sent and a progress watch is opened. Each turn of
// the loop applies what the last progress watch has shown, does what Freshness decides, and waits for the next event or
// outcome.
func (f *feed) read(ctx context.Context, s *source.Stream) (err error) {
	c, fresh := f.collection, &f.fresh
	var probe call[probeResult]
	var progressWatch call[progress]
	c.setStreaming(true)
	fresh.StreamOpened(time.Now())
	defer func() {
		c.setStreaming(false)
		fresh.StreamClosed()
		c.publishForecast(*fresh)
		progressWatch.stop()
		probe.stop()
	}()
	sendProbe := func() {
		sent := c.probes.Next()
		fresh.ProbeSent(sent)
		probe.start(ctx, func(ctx context.Context) (probeResult, error) { return f.probe(ctx, sent) })
	}
	openProgressWatch := func() {
		from := c.view.Load().To
		fresh.ProgressOpened()
		progressWatch.start(ctx, func(ctx context.Context) (progress, error) {
			return f.watchProgress(ctx, from, math.MaxUint64, nil)
		})
	}
	if f.lacksBookmark() { // the stream's first bookmark may take a minute
		openProgressWatch()
	}
	var shown progress // what the last progress watch has shown, if the stream has not sent all of it yet
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		shown, err = c.applyProgress(shown)
		if err != nil {
			return err
		}
		now := time.Now()
		v := c.view.Load()
		fresh.Reached(v.To)
		fresh.Await(now, c.awaitedProbe.Load())
		next := fresh.Next(now, v.currentAt.Sent)
		switch next.Step {
		case source.LeaveStream:
			return errStreamLeft
		case source.SendProbe:
			sendProbe()
			continue // there may be more to do
		case source.OpenProgressWatch:
			openProgressWatch()
			continue
		case source.Wait:
			timer.Stop()
			if !next.Wake.IsZero() {
				timer.Reset(next.Wake.Sub(now))
			}
		}
		c.publishForecast(*fresh)
		select {
		case ev, ok := <-s.Events:
			if !ok {
				return f.streamEndError(s)
			}
			if err := f.applyEvent(ctx, ev); err != nil {
				return err
			}
			fresh.StreamSent(ev.ReadAt)
			if ev.Type == wire.Bookmarked {
				fresh.StreamBookmark(ev.ReadAt)
			}
		case <-c.reloadRequests:
			return errReloadRequested
		case <-c.newWaiters: // the next turn reads awaitedProbe
		case <-c.probeRequests:
			fresh.RequestProbe()
		case outcome := <-probe.outcome:
			probe.clear()
			if err := f.handleProbe(outcome); err != nil {
				return err
			}
		case outcome := <-progressWatch.outcome:
			progressWatch.clear()
			shown, err = f.handleProgress(outcome)
			if err != nil {
				return err
			}
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// streamEndError returns the error with which a stream ended; nil if it ended at its timeout.
func (f *feed) streamEndError(s *source.Stream) error {
	if s.EndedAtTimeout(time.Now()) {
		return nil
	}
	return s.Err
}

// applyEvent applies one event of the stream. It returns an error if the stream must not be read any more.
func (f *feed) applyEvent(ctx context.Context, ev wire.Event) error {
	f.checkForm(ev)
	if ev.Type == wire.Bookmarked {
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
	return f.collection.apply(ch)
}
