package snapshot

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// feed keeps one collection up to date. It does not use client-go's Reflector, which would leave gaps in the history: a
// Reflector lists again after every failed watch, and goes on after events that its store refused.
//
//	openLoaded ──► read ◄──────────────────────────── resume
//	    ▲           │                                  ▲  │
//	    │           ├── the stream ends or breaks ─────┘  │
//	    └───────────┴── 410, or a contradiction ──────────┘
type feed struct {
	config     *Config // of Collections
	source     source.Source
	collection *Collection
	// watches reports whether clients may watch the collection.
	watches bool
	log     *slog.Logger

	// freshness decides when to ask the upstream for its current revision.
	freshness source.Freshness
	// envelope is the envelope of the newest state.
	envelope *wire.Envelope
	// mustLoad reports whether the next session must load a state, even if there is one.
	mustLoad bool
	// timelineKnownAt is the last time at which etcd certainly had the history (timeline) of the state: the end of a load, or of
	// a stream that ended at its timeout. It is zero after a stream that ended in another way.
	timelineKnownAt time.Time
	// pagesOnlyUntil is the end of pagesOnlyDuration; zero before the first.
	pagesOnlyUntil time.Time
	// forbiddenSince is the time of the first of the upstream's 403s in a row; zero if its last answer was no 403.
	forbiddenSince time.Time

	// attempt counts the sessions since the last progress: the session that made it is 1, the next one is 2.
	attempt int
	// backoffs give the pauses after each kind of failure.
	backoffs backoffs
}

const (
	// watchTimeout is the shortest timeout of a watch. A feed adds up to as much again at random, so that feeds do not open
	// their next watches at the same time.
	watchTimeout = 5 * time.Minute
	// pagesOnlyDuration is the duration for which states are loaded in pages after a streaming list without its bookmark.
	pagesOnlyDuration = time.Hour
	// After a stream that ended within minStreamLife, the feed pauses. If each stream begins with a load, which is expensive,
	// the pauses grow until a stream has lasted for steadyStreamLife.
	minStreamLife    = time.Second
	steadyStreamLife = time.Minute
)

// run feeds the collection until ctx ends.
func (f *feed) run(ctx context.Context) {
	defer f.collection.retire()
	f.backoffs = initialBackoffs
	f.freshness = source.NewFreshness(f.collection.limits.Staleness, rand.Float64()) // #nosec G404 -- no secret
	f.mustLoad = true
	for ctx.Err() == nil {
		f.attempt++
		end := f.session(ctx)
		if ctx.Err() != nil {
			return
		}
		f.noteProgress(end)
		if end.err == nil && end.readFor >= minStreamLife {
			continue
		}
		pause, minimum := f.handleFailure(end.err, time.Now())
		f.logFailure(ctx, end.err, pause)
		f.awaitNextSession(ctx, pause, minimum)
	}
}

// sessionEnd says how a session went.
type sessionEnd struct {
	// beganWithLoad reports whether the session loaded a state, or tried to.
	beganWithLoad bool
	// readFor is the time for which the session read its stream; 0 if none was opened.
	readFor time.Duration
	// hasAdvanced reports whether the newest known revision (View.To) rose.
	hasAdvanced bool
	// err is the error with which the session ended; nil if the stream ended at its timeout.
	err error
}

// session loads a state if necessary, opens a stream that goes on from the state, and reads the stream until it ends or
// fails.
func (f *feed) session(ctx context.Context) sessionEnd {
	end := sessionEnd{beganWithLoad: f.mustLoad}
	toBefore := f.collection.view.Load().To
	open := f.resume
	if f.mustLoad {
		open = f.openLoaded
	}
	s, err := open(ctx)
	if err != nil {
		f.collection.setStreaming(false)
		end.err = err
		return end
	}
	f.forbiddenSince = time.Time{}
	begun := time.Now()
	end.err = f.read(ctx, s)
	s.Stop()
	end.readFor = time.Since(begun)
	end.hasAdvanced = f.collection.view.Load().To > toBefore
	f.timelineKnownAt = time.Time{}
	if end.err == nil {
		f.timelineKnownAt = s.LatestEnd(time.Now())
	}
	return end
}

// openLoaded loads a state, and returns a stream that goes on from the state.
func (f *feed) openLoaded(ctx context.Context) (*source.Stream, error) {
	select {
	case <-f.collection.reloadRequests: // this load is the requested one
	default:
	}
	f.collection.setReloadingSince(time.Now())
	s, err := f.loadState(ctx)
	f.collection.loadError.Store(&err)
	if err != nil {
		f.collection.setReloadingSince(time.Time{})
		return nil, err
	}
	f.mustLoad = false
	f.timelineKnownAt = time.Now()
	f.backoffs.forbidden = initialBackoffs.forbidden
	if s == nil {
		return f.resume(ctx)
	}
	f.freshness.StreamOpened(time.Now())
	return s, nil
}

// loadState loads a state, compares it with the upstream and installs it. It returns the stream that goes on from the state,
// or nil if the state came in pages.
func (f *feed) loadState(ctx context.Context) (*source.Stream, error) {
	highestBefore := f.collection.highestSeenRevision()
	learned, err := f.source.Learn(ctx, func(ctx context.Context) ([]wire.Field, error) {
		return f.config.SelectableFields(ctx, f.collection.key.GroupVersionResource)
	})
	if err != nil {
		return nil, err
	}
	watchForm, err := f.learnWatch(ctx, learned)
	if err != nil {
		return nil, err
	}
	l, err := f.load(ctx, learned)
	if err != nil {
		return nil, err
	}
	if err := f.checkLoaded(ctx, l, highestBefore); err != nil {
		l.discard()
		return nil, err
	}
	l.watchForm = watchForm
	l.watchesUpToDate = f.bringWatchesUpToDate(ctx, l)
	f.collection.install(l)
	f.envelope = l.envelope
	f.log.Info("collection loaded", "revision", l.revision, "objects", l.state.Len(), "bytes", l.size)
	return l.stream, nil
}

// checkLoaded returns an error if a loaded state must not be installed: if its revision is below highestBefore, the highest
// one seen before the load, or if its first page differs from the upstream's.
func (f *feed) checkLoaded(ctx context.Context, l *stateLoad, highestBefore uint64) error {
	current, err := f.confirmRevision(ctx, l.revision, highestBefore)
	if err != nil {
		return err
	}
	if current != l.revision { // the load's revision was too low, and a second read gave a higher one
		return fmt.Errorf("a state was loaded at revision %d, where %d was seen before: the API server lags", l.revision, highestBefore)
	}
	return f.compareLoaded(ctx, l)
}

// noteProgress makes the next pauses short again if a session has shown that earlier failures are over.
func (f *feed) noteProgress(end sessionEnd) {
	// A resumed stream shows progress if it has lasted for minStreamLife, or has sent events. (A kube-apiserver that has just
	// started ends a watch that is more than ten events behind. A pause would put the feed further behind.)
	hasResumed := !end.beganWithLoad && (end.readFor >= minStreamLife || end.hasAdvanced)
	// After a load, which is expensive, the stream must have lasted for steadyStreamLife.
	isSteady := end.readFor >= steadyStreamLife
	if hasResumed || isSteady {
		f.attempt = 1
		f.backoffs.retry = initialBackoffs.retry
	}
	if !end.beganWithLoad && source.Answered(end.err, http.StatusGone) {
		f.backoffs.retry = initialBackoffs.retry // the upstream has only forgotten the revision, so the load need not wait
	}
	v := f.collection.view.Load()
	if v.unavailable == reason.None && time.Since(v.loadAskedAt) >= stableAfter {
		f.backoffs.full = initialBackoffs.full
		f.backoffs.unproven = initialBackoffs.unproven
	}
}

// awaitNextSession waits for a pause. It publishes that no probe is sent meanwhile, so that requests do not wait for a proof. If a
// request asks for a probe, the pause ends early, but not before both minimum and minStreamLife have passed.
func (f *feed) awaitNextSession(ctx context.Context, pause, minimum time.Duration) {
	begun := time.Now()
	f.freshness.ProbeRefused(begun, pause) // begins a pause of probes
	f.collection.publishFreshness(f.freshness)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-f.collection.probeRequests:
		short := min(pause, max(minStreamLife, minimum))
		clock.Sleep(ctx, short-time.Since(begun))
	case <-timer.C:
	case <-ctx.Done():
	}
	f.freshness.EndProbePause(time.Now())
}
