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

	"github.com/listproxy/listproxy/snapshot/wire"
)

const (
	// aMoment is how long a stream lasts that was worth opening. One that ends sooner is not
	// opened again without a pause.
	aMoment = time.Second
	// bookmarkEvery is the time in which kube-apiserver sends a bookmark on every watch whose
	// revision has moved (storage/cacher: once a minute, and some jitter).
	bookmarkEvery = 65 * time.Second
	// probeTimeout bounds a probe. It is longer than kube-apiserver lets a request wait in a queue of
	// priority and fairness (a quarter of --request-timeout, 15 s by default), so that a probe which
	// is rejected there is seen as the 429 that it is.
	probeTimeout = 30 * time.Second
	// demandPause is the least time between two probes because somebody waits.
	demandPause = 500 * time.Millisecond
)

var errLate = fmt.Errorf("the next watch was not open %v after the end of the last", orderly)

// ending is how the reading of a stream came to its end.
type ending int

const (
	ended  ending = iota // at its timeout
	broken               // otherwise: whoever answers next may be another upstream
	behind               // by us: the upstream is further than the stream has told
)

// follow keeps the span live: it reads the stream (nil if there is none yet), and resumes it in
// place when it ends. It returns only when the span cannot go on.
func (f *feed) follow(ctx context.Context, frame *wire.Frame, s *stream) (err error) {
	retry := resumeBackoff()
	if s == nil {
		if s, err = f.resume(ctx, frame, ended, time.Now(), &retry); err != nil {
			return err
		}
	}
	for {
		begun := time.Now()
		how, err := f.drain(ctx, frame, s)
		s.stop()
		if err != nil {
			return err
		}
		if time.Since(begun) >= aMoment {
			retry = resumeBackoff()
		} else if how != behind && !sleep(ctx, retry.Step()) {
			return ctx.Err()
		}
		over := time.Now()
		if how == ended {
			over, _ = s.Ended(over)
		}
		if s, err = f.resume(ctx, frame, how, over, &retry); err != nil {
			return err
		}
	}
}

// resume opens a watch that goes on from the live span, and tries until it has one or the span
// is lost. over is when the last one ended, or was left. An API server that answers that it is busy
// is the one from before: that alone puts nothing in doubt.
func (f *feed) resume(ctx context.Context, frame *wire.Frame, how ending, over time.Time, retry *wait.Backoff) (*stream, error) {
	var refused time.Time // since when the upstream has said 403
	for {
		s, err := f.reopen(ctx, frame, how, over)
		if err == nil {
			if how == broken {
				f.collection.life.resumed()
			}
			return s, nil
		}
		if !troubled(err) {
			how = broken
		}
		if !answered(err, http.StatusForbidden) {
			refused = time.Time{}
		} else if refused.IsZero() {
			refused = time.Now()
		}
		if lost(err) || ctx.Err() != nil || !refused.IsZero() && time.Since(refused) > refusalGrace {
			return nil, err
		}
		pause := wanted(retry.Step(), err)
		f.log.Info("watch not resumed yet", "error", err, "retry", pause.Round(time.Millisecond))
		if !sleep(ctx, pause) {
			return nil, ctx.Err()
		}
	}
}

// lost reports whether an error ends the span at once: the history is gone upstream, or there
// is doubt. After all other errors the watch is resumed in place.
func lost(err error) bool {
	var contradiction wire.InconsistencyError
	var back wentBackError
	return errors.As(err, &contradiction) || errors.As(err, &back) ||
		errors.Is(err, errObject) || errors.Is(err, wire.ErrForm) || errors.Is(err, errFull) || errors.Is(err, errUnproven) ||
		answered(err, http.StatusGone, http.StatusNotFound)
}

// troubled reports whether the upstream answered that it has too much to do, or cannot do it now: it
// lives, and its watches may be well. An error that is not a Status is not the API server's own: what is
// before it may have lost it, and still hold its watches open.
func troubled(err error) bool {
	answer, ok := errors.AsType[*wire.AnswerError](err)
	return ok && (answer.Code == http.StatusTooManyRequests || answer.Code >= http.StatusInternalServerError && answer.Message != "")
}

// reopen opens a watch that goes on from the live span. If the last one ended in order, or was left, the
// next must be answered soon after that. Otherwise it is in doubt whether the upstream still has the past
// that is known here. Then the upstream is first asked how far it is, since a watch from a revision of
// the future is silent and tells nothing; and it must show that it has the same past.
func (f *feed) reopen(ctx context.Context, frame *wire.Frame, how ending, over time.Time) (*stream, error) {
	if !sleep(ctx, time.Until(f.prober.spared)) {
		return nil, ctx.Err()
	}
	if how == broken {
		now, err := f.prober.ask(ctx)
		if err != nil {
			return nil, err
		}
		s, err := f.recognise(ctx, frame)
		if err != nil {
			return nil, err
		}
		f.collection.expect(now)
		return s, nil
	}
	late := func() bool { return InDoubt(over, time.Now()) }
	if late() {
		return nil, errLate
	}
	timeout := watchTimeout + rand.N(watchTimeout)
	if how == behind {
		timeout = shortWatch
	}
	s, err := f.goOn(ctx, f.collection.view.Load().to(), timeout)
	if err == nil && late() {
		s.stop()
		return nil, errLate
	}
	return s, err
}

// goOn opens a watch from a revision on.
func (f *feed) goOn(ctx context.Context, from uint64, timeout time.Duration) (*stream, error) {
	s, err := f.source.watch(ctx, "", url.Values{
		"resourceVersion":     {strconv.FormatUint(from, 10)},
		"allowWatchBookmarks": {"true"},
	}, timeout)
	if err != nil {
		return nil, err
	}
	s.from = from
	return s, nil
}

// probe reads the upstream's current revision and holds it against the floor.
func (f *feed) probe(ctx context.Context) (probed, error) {
	floor, asked := f.collection.floor(), time.Now()
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_, rev, err := f.source.probe(ctx)
	if err != nil {
		return probed{}, err
	}
	return probed{rev, asked}, f.collection.observe(rev, floor)
}

// drain applies what the stream delivers, until it ends or has to be left. The error is not nil
// only if the span is lost.
//
// How new the state is only a probe can say, whether the stream tells something or not. On a quiet
// resource it does more: it makes the upstream's watch cache ask etcd how far it is, so that the next
// of its bookmarks says so. If that bookmark would come too late, or somebody waits, the stream is left
// for a short watch, which brings one within seconds.
//
// A probe that is not answered says nothing about the stream, which stays: if its connection is dead, the
// connection's own pings end it. But whoever answers later may be somebody else. So the stream must have told
// something since, or the watch after it must show that the past is the same.
func (f *feed) drain(ctx context.Context, frame *wire.Frame, s *stream) (ending, error) {
	p := &f.prober
	defer p.stop()
	heard := func() time.Time { return f.collection.view.Load().heard }
	due := time.NewTimer(p.untilDue(f.rhythm, heard()))
	defer due.Stop()
	asked := false // a first time: what the stream has to tell may be on its way
	leave := false // if the probe under way says that we are behind
	ahead := uint64(0)
	told, unanswered := time.Now(), time.Time{} // when the stream last told something, and when a probe last failed
	left := func() (ending, error) {
		if unanswered.After(told) || Age(told, time.Now()) > bookmarkEvery {
			return broken, nil
		}
		return behind, nil
	}
	var demanded <-chan time.Time // when the demand may be met
	// A short watch is worth staying for until its bookmark has come.
	mayLeave := s.Timeout > shortWatch
	for {
		select {
		case ev, ok := <-s.events:
			if !ok {
				return f.endOf(s)
			}
			if err := f.take(frame, s, ev); err != nil {
				return broken, err
			}
			told = ev.Came
			mayLeave = mayLeave || ev.Kind == "BOOKMARK"
			if f.collection.view.Load().to() >= ahead {
				ahead = 0
			} else if mayLeave {
				return left()
			}
		case <-f.collection.demand:
			if demanded == nil {
				demanded = time.After(p.untilDemand())
			}
		case <-demanded:
			if wait := p.untilDemand(); wait > 0 {
				demanded = time.After(wait)
				continue
			}
			demanded, leave = nil, true
			p.start(ctx)
		case <-due.C:
			leave = leave || asked && Age(heard(), time.Now()) >= f.rhythm.leave
			asked = true
			p.start(ctx)
		case a := <-p.answers:
			p.answers = nil
			switch {
			case lost(a.err):
				return broken, a.err
			case troubled(a.err):
				// To open watches again would not help it. The state grows old meanwhile, as it should.
				f.log.Info("probe refused", "error", a.err)
				p.spare(wanted(f.rhythm.again, a.err))
			case isAnswer(a.err):
				f.log.Info("probe refused, the watch is resumed", "error", a.err)
				return broken, nil // the watch would not be permitted either, or somebody else answers
			case a.err != nil:
				f.log.Info("probe not answered", "error", a.err)
				unanswered = time.Now()
			case f.collection.expect(a.probed):
				leave = false
			case leave && mayLeave:
				return left()
			case leave:
				leave, ahead = false, a.revision
			}
			due.Reset(p.untilDue(f.rhythm, heard()))
		case <-ctx.Done():
			return broken, ctx.Err()
		}
	}
}

// endOf says how a stream ended.
func (f *feed) endOf(s *stream) (ending, error) {
	if lost(s.err) {
		return broken, s.err
	}
	f.log.Debug("watch ended", "error", s.err)
	if s.inOrder(time.Now()) {
		return ended, nil
	}
	return broken, nil
}

// take applies one event.
func (f *feed) take(frame *wire.Frame, s *stream, ev wire.Event) error {
	if ev.Kind == "BOOKMARK" {
		if err := f.collection.passes(s, ev.Meta.Revision); err != nil {
			return err
		}
		if rev := ev.Meta.Revision; s.from <= rev && rev < f.collection.view.Load().to() {
			return nil // another API server, which is not as far yet
		}
		return f.collection.progress(ev.Meta.Revision)
	}
	ch, err := f.change(frame, ev)
	if err != nil {
		return err
	}
	if f.collection.precedes(s, ch) {
		return nil
	}
	if err := f.collection.passes(s, ch.revision); err != nil {
		return err
	}
	return f.collection.apply(ch)
}
