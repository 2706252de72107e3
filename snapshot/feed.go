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

// feed keeps one collection up to date, in one session after another. A session loads a state if necessary, opens a stream (a
// watch) that goes on from the state, and reads the stream until it ends:
//
//	openLoaded ──► read ◄──────────────────────────── resume
//	    ▲           │                                  ▲  │
//	    │           ├── the stream ends or breaks ─────┘  │
//	    └───────────┴── 410, or a contradiction ──────────┘
//
// feed does not use client-go's Reflector, which would leave gaps in the history: a Reflector lists again after every failed
// watch, and goes on after events that its store refused.
type feed struct {
	config     *Config // of Collections
	source     source.Source
	collection *Collection
	// servesWatches reports whether clients may watch the collection.
	servesWatches bool
	log           *slog.Logger

	// freshness decides when to send a probe, which asks the upstream for its current revision.
	freshness source.Freshness
	// envelope has the bytes of a list around its items, for the newest state.
	envelope *wire.Envelope
	// mustLoad reports whether the next session must load a state, even if one is known.
	mustLoad bool
	// timelineKnownAt is the last time at which etcd certainly had the state's timeline. (A timeline is one history of etcd. A
	// restored backup begins another one.) It is the end of a load, or of a stream that ended at its timeout. It is zero after
	// a stream that ended in another way.
	timelineKnownAt time.Time
	// pagesOnlyUntil is the time until which states are loaded in pages, without an attempt at a streaming list.
	pagesOnlyUntil time.Time
	// forbiddenSince is the time of the first 403 since a stream was opened, or since a session ended in another way; zero if
	// there was none.
	forbiddenSince time.Time

	// attempt is the number of the session, for the log and its level. It starts again after a session that has shown progress:
	// the next session is attempt 2.
	attempt int
	// backoffs give the pauses after each kind of failure.
	backoffs backoffs
}

const (
	// watchTimeout is the shortest timeout of a watch. A feed adds up to five more minutes at random, so that feeds do not open
	// their next watches at the same time.
	watchTimeout = 5 * time.Minute
	// pagesOnlyDuration is the duration for which states are loaded in pages after a streaming list without its bookmark.
	pagesOnlyDuration = time.Hour
	// minStreamLife is the time after which a stream counts as progress, if it was resumed without a load. After a shorter
	// stream the feed pauses. The pauses grow, unless the stream has brought something new (see resetBackoffs).
	minStreamLife = time.Second
	// steadyStreamLife is the time after which a stream counts as progress, if the session began with a load. It is longer,
	// since a load is expensive: if each load is followed by a stream of only ten seconds, the pauses between the loads must
	// grow.
	steadyStreamLife = time.Minute
)

// run feeds the collection until ctx ends.
func (f *feed) run(ctx context.Context) {
	defer f.collection.retire()
	f.backoffs = initialBackoffs
	// The random number spreads the probes of replicas.
	f.freshness = source.NewFreshness(f.collection.limits.Staleness, rand.Float64()) // #nosec G404 -- no secret
	f.mustLoad = true
	for ctx.Err() == nil {
		f.attempt++ // resetBackoffs sets it back to 1
		end := f.session(ctx)
		if ctx.Err() != nil {
			return
		}
		f.resetBackoffs(end)
		hasFailed := end.err != nil || end.readFor < minStreamLife // a stream that ends at once is a failure, too
		if !hasFailed {
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
	// readFor is the time for which the session read its stream; 0 if no stream was opened.
	readFor time.Duration
	// hasAdvanced reports whether the newest known revision (View.To) rose in the session.
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
	stream, err := open(ctx)
	if err != nil {
		f.collection.setStreaming(false)
		end.err = err
		return end
	}
	f.forbiddenSince = time.Time{}
	begun := time.Now()
	end.err = f.read(ctx, stream)
	stream.Stop()
	end.readFor = time.Since(begun)
	end.hasAdvanced = f.collection.view.Load().To > toBefore
	f.timelineKnownAt = time.Time{}
	if end.err == nil {
		f.timelineKnownAt = stream.LatestEnd(time.Now())
	}
	return end
}

// openLoaded loads a state, and returns a stream that goes on from the state.
func (f *feed) openLoaded(ctx context.Context) (*source.Stream, error) {
	select {
	case <-f.collection.reloadRequests: // this load serves the request
	default:
	}
	f.collection.setReloadingSince(time.Now())
	stream, err := f.loadState(ctx)
	f.collection.loadError.Store(&err)
	if err != nil {
		f.collection.setReloadingSince(time.Time{})
		return nil, err
	}
	f.mustLoad = false
	f.timelineKnownAt = time.Now()
	f.backoffs.forbidden = initialBackoffs.forbidden
	if stream == nil { // the state came in pages
		return f.resume(ctx)
	}
	f.freshness.StreamOpened(time.Now())
	return stream, nil
}

// loadState learns the form of lists and watches, loads a state, compares it with the upstream and installs it. It returns the
// stream that goes on from the state. The stream is nil if the state came in pages.
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
	loaded, err := f.load(ctx, learned)
	if err != nil {
		return nil, err
	}
	if err := f.checkLoaded(ctx, loaded, highestBefore); err != nil {
		loaded.discard()
		return nil, err
	}
	loaded.watchForm = watchForm
	loaded.watchesUpToDate = f.bringWatchesUpToDate(ctx, loaded)
	f.collection.install(loaded)
	f.envelope = loaded.envelope
	f.log.Info("collection loaded", "revision", loaded.revision, "objects", loaded.state.Len(), "bytes", loaded.size)
	return loaded.stream, nil
}

// checkLoaded returns an error if a loaded state must not be installed, for one of these reasons:
//
//   - Its revision is below highestBefore, the highest revision that was seen before the load.
//   - Its first page differs from the upstream's.
//   - One of these could not be found out.
func (f *feed) checkLoaded(ctx context.Context, loaded *stateLoad, highestBefore uint64) error {
	confirmed, err := f.confirmRevision(ctx, loaded.revision, highestBefore)
	if err != nil {
		return err
	}
	if confirmed != loaded.revision { // loaded.revision was too low, and a second read has given a higher one
		return fmt.Errorf("a state was loaded at revision %d, where %d was seen before: the API server lags",
			loaded.revision, highestBefore)
	}
	return f.compareLoaded(ctx, loaded)
}

// resetBackoffs makes the next pauses short again if the session has shown that earlier failures are over.
func (f *feed) resetBackoffs(end sessionEnd) {
	// A resumed stream need not last for minStreamLife (1 s) if View.To rose. A kube-apiserver that has just started ends a
	// watch that is more than ten events behind. Ever longer pauses would put the feed further behind.
	hasResumed := !end.beganWithLoad && (end.readFor >= minStreamLife || end.hasAdvanced)
	isSteady := end.readFor >= steadyStreamLife
	if hasResumed || isSteady {
		f.attempt = 1
		f.backoffs.retry = initialBackoffs.retry
	}
	if !end.beganWithLoad && source.Answered(end.err, http.StatusGone) {
		f.backoffs.retry = initialBackoffs.retry // the upstream has only forgotten the revision, so the load need not wait
	}
	v := f.collection.view.Load()
	if v.unavailable == reason.None && time.Since(v.loadAskedAt) >= stableAfter { // loaded 40 minutes ago or earlier
		f.backoffs.full = initialBackoffs.full
		f.backoffs.unproven = initialBackoffs.unproven
	}
}

// awaitNextSession waits until a pause is over. If a request asks for a probe, the pause ends early, but not before both
// minimum and minStreamLife have passed.
func (f *feed) awaitNextSession(ctx context.Context, pause, minimum time.Duration) {
	begun := time.Now()
	// No probe is sent in the pause. The pause is recorded like one after a refused probe, so that requests do not wait for a
	// proof that cannot come.
	f.freshness.ProbeRefused(begun, pause)
	f.collection.publishFreshness(f.freshness)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-f.collection.probeRequests:
		shortest := max(minStreamLife, minimum)
		clock.Sleep(ctx, min(pause, shortest)-time.Since(begun))
	case <-timer.C:
	case <-ctx.Done():
	}
	f.freshness.EndProbePause(time.Now())
}
