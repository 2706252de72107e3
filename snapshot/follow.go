package snapshot

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// aMoment: if a stream ends sooner than this, the next one is opened only after a pause.
const aMoment = time.Second

var errLate = fmt.Errorf("the next watch was not open %v after the end of the last", clock.Orderly)

// stream is the watch that keeps the live span.
type stream struct {
	*source.Stream
	// from is the revision that it begins after.
	from uint64
}

// ending is how a stream ended.
type ending int

const (
	ended  ending = iota // at its timeout
	broken               // otherwise: whoever answers next may be another upstream
)

// follow keeps the span live: it reads the stream (nil if there is none yet), and resumes it in
// place when it ends. It returns only when the span cannot go on.
func (f *feed) follow(ctx context.Context, s *stream) (err error) {
	retry := source.Backoff()
	if s == nil {
		if s, err = f.resume(ctx, ended, time.Now(), &retry); err != nil {
			return err
		}
	}
	for {
		begun := time.Now()
		how, err := f.drain(ctx, s)
		s.Stop()
		if err != nil {
			return err
		}
		if time.Since(begun) >= aMoment {
			retry = source.Backoff()
		} else if !f.pause(ctx, retry.Step(), nil) {
			return ctx.Err()
		}
		over := time.Now()
		if how == ended {
			over, _ = s.Ended(over)
		}
		if s, err = f.resume(ctx, how, over, &retry); err != nil {
			return err
		}
	}
}

// resume opens a watch that goes on from the live span, and tries until it has one or the span
// is lost. over is when the last one ended. An answer that the API server is busy shows that it is
// still the same one, so it puts nothing in doubt.
func (f *feed) resume(ctx context.Context, how ending, over time.Time, retry *wait.Backoff) (*stream, error) {
	var refused time.Time // since when the upstream has said 403
	for {
		s, err := f.reopen(ctx, how, over)
		if err == nil {
			if how == broken {
				f.collection.life.resumed()
			}
			return s, nil
		}
		if !source.Troubled(err) {
			how = broken
		}
		if !source.Answered(err, http.StatusForbidden) {
			refused = time.Time{}
		} else if refused.IsZero() {
			refused = time.Now()
		}
		if lost(err) || ctx.Err() != nil || !refused.IsZero() && time.Since(refused) > refusalGrace {
			return nil, err
		}
		pause := retry.Step()
		f.log.Debug("watch not resumed yet", "error", err, "retry", source.Wanted(pause, err).Round(time.Millisecond))
		if !f.pause(ctx, pause, err) {
			return nil, ctx.Err()
		}
	}
}

// pause waits before the next stream is opened, after an error of the last try if there was one. No
// request need wait for a proof meanwhile.
func (f *feed) pause(ctx context.Context, d time.Duration, err error) bool {
	f.fresh.Refused(time.Now(), source.Wanted(d, err))
	f.collection.publish(f.fresh)
	defer func() { f.fresh.Retry(time.Now()) }()
	return f.collection.pause(ctx, d, source.Wanted(0, err))
}

// lost reports whether an error ends the span at once: the history is gone upstream, or there
// is doubt. After all other errors the watch is resumed in place.
func lost(err error) bool {
	why := lossOf(err)
	return why != reason.Other && why != reason.NotPermitted
}

// reopen opens a watch that goes on from the live span. If the last one ended at its timeout, and
// the next is answered soon after that, nothing is in doubt. Otherwise the upstream may have
// another past than the one known here. Then it is first asked for its current revision, since a
// watch from a revision in the future stays silent; and it must show that it has the same past.
func (f *feed) reopen(ctx context.Context, how ending, over time.Time) (*stream, error) {
	if !clock.Sleep(ctx, time.Until(f.fresh.SparedUntil())) {
		return nil, ctx.Err()
	}
	if how == broken {
		f.fresh.Await(time.Now(), f.collection.awaited.Load())
		sent := f.collection.probes.Next()
		f.fresh.ProbeSent(sent)
		f.collection.publish(f.fresh)
		now, err := f.probe(ctx, sent)
		f.fresh.Stop()
		if err != nil {
			return nil, err
		}
		s, err := f.recognise(ctx)
		if err != nil {
			return nil, err
		}
		f.collection.expect(now)
		return s, nil
	}
	late := func() bool { return clock.InDoubt(over, time.Now()) }
	if late() {
		return nil, errLate
	}
	s, err := f.goOn(ctx, f.collection.confirmedTo(), watchTimeout+rand.N(watchTimeout))
	if err == nil && late() {
		s.Stop()
		return nil, errLate
	}
	return s, err
}

// goOn opens a watch from a revision on.
func (f *feed) goOn(ctx context.Context, from uint64, timeout time.Duration) (*stream, error) {
	s, err := f.source.Watch(ctx, "", url.Values{
		"resourceVersion":     {strconv.FormatUint(from, 10)},
		"allowWatchBookmarks": {"true"},
	}, timeout)
	if err != nil {
		return nil, err
	}
	return &stream{Stream: s, from: from}, nil
}

// drain applies the events of the stream, until it ends or must be closed. The error is not nil
// only if the span is lost. [freshness.Machine] decides what the feed asks meanwhile, and when.
func (f *feed) drain(ctx context.Context, s *stream) (_ ending, err error) {
	var probe call[probed]
	var beside call[attested]
	defer probe.stop()
	defer beside.stop()
	var shown attested // shown by a watch beside the stream, and not by the stream yet
	timer := time.NewTimer(0)
	defer timer.Stop()
	c, fresh := f.collection, &f.fresh
	c.follows(true)
	defer func() {
		c.follows(false)
		fresh.Stop()
		c.publish(*fresh)
	}()
	fresh.Follow(time.Now())
	for {
		if shown, err = c.accept(shown); err != nil {
			return broken, err
		}
		now, v, confirmed := time.Now(), c.view.Load(), c.confirmedTo()
		fresh.Reached(confirmed)
		fresh.Await(now, c.awaited.Load())
		switch do := fresh.Next(now, v.heard.Sent); {
		case do.Leave:
			return broken, nil
		case do.Probe:
			sent := c.probes.Next()
			fresh.ProbeSent(sent)
			probe.start(ctx, func(ctx context.Context) (probed, error) { return f.probe(ctx, sent) })
			continue
		case do.Beside:
			fresh.BesideOpened(now)
			beside.start(ctx, func(ctx context.Context) (attested, error) { return f.attest(ctx, confirmed) })
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
				return f.howEnded(s)
			}
			if err := f.take(ctx, s, ev); err != nil {
				return broken, err
			}
			fresh.StreamTold(ev.Came, c.confirmedTo())
		case <-c.newWaiters:
		case <-c.probeRequests:
			fresh.RequestProbe()
		case a := <-probe.outcome:
			probe.clear()
			if how, err := f.probeOver(a); how != ended {
				return how, err
			}
		case a := <-beside.outcome:
			beside.clear()
			if shown, err = f.besideOver(a); err != nil {
				return broken, err
			}
		case <-timer.C:
		case <-ctx.Done():
			return broken, ctx.Err()
		}
	}
}

// howEnded says how a stream ended.
func (f *feed) howEnded(s *stream) (ending, error) {
	if lost(s.Err) {
		return broken, s.Err
	}
	f.log.Debug("watch ended", "error", s.Err)
	if s.InOrder(time.Now()) {
		return ended, nil
	}
	return broken, nil
}

// take applies one event.
func (f *feed) take(ctx context.Context, s *stream, ev wire.Event) error {
	f.checkForm(ev)
	if ev.Kind == wire.Bookmarked {
		if _, err := f.collection.repeats(ev.Meta.Revision, nil); err != nil {
			return err
		}
		if rev := ev.Meta.Revision; s.from <= rev && rev < f.collection.view.Load().to() {
			return nil // another API server, which is not as far yet
		}
		return f.collection.progress(ev.Meta.Revision)
	}
	if err := f.learnFirst(ctx, ev); err != nil {
		return err
	}
	ch, err := f.change(f.frame, ev)
	if err != nil {
		return err
	}
	if again, err := f.collection.repeats(ch.revision, &ch); err != nil || again {
		return err
	}
	if err = f.collection.apply(ch); errors.Is(err, errFull) && f.makeRoom() {
		return nil // what nobody asks for has gone instead
	}
	return err
}
