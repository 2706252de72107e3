package snapshot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// feed keeps one collection up to date. It is a loop of its own instead of client-go's Reflector. A Reflector lists
// again after every failed watch, and continues after events that its store refused. Either would leave gaps in the
// history.
//
//	load ──► read the stream ──► it ends or breaks: open it again at the interval's end
//	 ▲             │                                    │
//	 └─────────────┴── 410, or a contradiction ─────────┘
type feed struct {
	source     source.Source
	collection *Collection
	// elsewhere is [Config.Elsewhere].
	elsewhere *http.Client
	// sameTimeline is [Config.SameTimeline].
	sameTimeline func(ctx context.Context, revision uint64, heard time.Time) (same, soon bool)
	// fields returns the fields that a selector may name, if the upstream accepts them.
	fields func(context.Context) ([]wire.Field, error)
	// loadSlots has room for as many values as feeds may load at the same time.
	loadSlots chan struct{}
	// watches reports whether clients may watch the collection.
	watches bool
	log     *slog.Logger

	// fresh decides when to ask the upstream for its current revision.
	fresh source.Freshness
	// envelope is the envelope of the newest state.
	envelope *wire.Envelope
	// mustLoad reports whether the next session must load a state, even if there is one.
	mustLoad bool
	// timedOutAt is the time at which the last stream ended at its timeout. It is zero if the stream ended otherwise:
	// then the upstream may have another timeline.
	timedOutAt time.Time
	// noStreamingBefore is the time before which states are loaded in pages, since the upstream did not end the last
	// streaming list with its bookmark.
	noStreamingBefore time.Time
	// forbiddenSince is the time of the first of the upstream's 403s in a row; zero if its last answer was no 403.
	forbiddenSince time.Time

	// These give the pauses before the next session:
	retries   wait.Backoff // after a failure that a retry is likely to cure
	refusals  wait.Backoff // after a 403
	overflows wait.Backoff // after a state that does not fit
	doubts    wait.Backoff // before a load because the timeline was not shown to be the same
}

const (
	// watchTimeout is the shortest duration of a watch. Feeds add up to as much again, so that they do not open their
	// watches anew all at once.
	watchTimeout = 5 * time.Minute
	// unlikelyRetry is the pause after a failure that a retry is unlikely to cure.
	unlikelyRetry = 2 * time.Minute
	// maxOverflowPause bounds the pause after a state that did not fit.
	maxOverflowPause = 40 * time.Minute
	// maxDoubtPause bounds the pause before a load that is due because streams break.
	maxDoubtPause = 2 * time.Minute
	// noStreamingFor is the duration for which states are loaded in pages after a streaming list without its bookmark.
	noStreamingFor = time.Hour
	// refusalGrace is the duration for which a state is kept after a 403: an API server that has just started refuses
	// everybody until it has read its roles.
	refusalGrace = 15 * time.Second
	// After a stream that ends within minStreamLife, the next one is opened only after a pause. If each stream began
	// with a load, pauses grow until a stream has lasted for steadyStreamLife: loads are expensive.
	minStreamLife    = time.Second
	steadyStreamLife = time.Minute
)

// The reasons why a state must be loaded anew.
var (
	// errObject means that an empty collection has got its first object, and the form of items could not be learned
	// from that object.
	errObject = errors.New("the first object of an empty collection: its form could not be learned")
	// errReloadRequested means that [Collection.requestReload] was called, since the API servers may write another
	// state than the known one.
	errReloadRequested = errors.New("the API servers write it differently now")
	// errUnproven means that a stream could go on, but nothing shows that the upstream has the same timeline.
	errUnproven = errors.New("the upstream may have another timeline")
)

// refusalBackoff grows, because an account that lacks a right seldom gets it soon.
func refusalBackoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 10, Cap: unlikelyRetry}
}

// overflowBackoff grows, because finding out that a state does not fit may cost the upstream most of a whole list.
func overflowBackoff() wait.Backoff {
	return wait.Backoff{Duration: unlikelyRetry, Factor: 2, Jitter: 0.5, Steps: 10, Cap: maxOverflowPause}
}

// doubtBackoff grows, because a reload must not follow each break where streams break again and again.
func doubtBackoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 4, Jitter: 0.5, Steps: 10, Cap: maxDoubtPause}
}

// retryBackoff is for failures that a retry is likely to cure.
func retryBackoff() wait.Backoff {
	return wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 20 * time.Second}
}

// loggedAttempt is the attempt at which a failure that may be about this resource only is logged, once: by then it has
// lasted for more than a moment.
const loggedAttempt = 4

// run feeds the collection until ctx ends.
func (f *feed) run(ctx context.Context) {
	defer f.collection.retire(reason.Warming)
	f.retries, f.refusals, f.overflows, f.doubts = retryBackoff(), refusalBackoff(), overflowBackoff(), doubtBackoff()
	f.fresh = source.NewFreshness(f.collection.limits.Staleness, rand.Float64()) // #nosec G404 -- no secret
	f.mustLoad = true
	for attempt := 0; ctx.Err() == nil; attempt++ {
		loads := f.mustLoad
		before := f.collection.view.Load().To
		readFor, err := f.session(ctx)
		if ctx.Err() != nil {
			return
		}
		v := f.collection.view.Load()
		// A kube-apiserver that has just started ends a watch that is more than ten events behind. What it has sent
		// before is progress, and a pause would put us further behind.
		hasProgressed := !loads && (readFor >= minStreamLife || v.To > before)
		if hasProgressed || readFor >= steadyStreamLife {
			f.retries = retryBackoff()
			attempt = 0
		}
		if v.unavailable == reason.None && time.Since(v.loaded) >= maxOverflowPause { // the state has fitted for long
			f.overflows = overflowBackoff()
			f.doubts = doubtBackoff()
		}
		if err == nil && readFor >= minStreamLife {
			continue
		}
		if !loads && source.Answered(err, http.StatusGone) { // the upstream answers again: load at once
			f.retries = retryBackoff()
		}
		usual, least := f.handleFailure(err, time.Now())
		message := "watch not resumed yet"
		if f.mustLoad {
			message = "collection cannot be followed"
		}
		f.log.Log(ctx, f.logLevel(err, attempt+1), message,
			"error", err, "attempt", attempt+1, "retry", max(usual, least).Round(time.Millisecond))
		f.pause(ctx, usual, least)
	}
}

// session loads a state if it must, opens a stream that goes on from the state, and reads the stream until that ends.
// It returns for how long it has read. The error is nil if the stream ended at its timeout.
func (f *feed) session(ctx context.Context) (readFor time.Duration, err error) {
	open := f.resume
	if f.mustLoad {
		open = f.openLoaded
	}
	s, err := open(ctx)
	if err != nil {
		f.collection.setStreaming(false)
		return 0, err
	}
	f.forbiddenSince = time.Time{}
	begun := time.Now()
	err = f.read(ctx, s)
	s.Stop()
	f.timedOutAt = time.Time{}
	if err == nil {
		f.timedOutAt = s.LatestEnd(time.Now())
	}
	return time.Since(begun), err
}

// openLoaded loads a state, and returns a stream that goes on from the state.
func (f *feed) openLoaded(ctx context.Context) (*source.Stream, error) {
	select {
	case <-f.collection.reloadRequests: // this load serves a request that came before
	default:
	}
	f.collection.setReloadingSince(time.Now())
	s, err := f.loadState(ctx)
	if err != nil {
		f.collection.setReloadingSince(time.Time{})
		f.collection.loadError.Store(&err)
		return nil, err
	}
	f.collection.loadError.Store(nil)
	f.mustLoad = false
	f.timedOutAt = time.Now() // a stream that is opened now needs no proof of the timeline
	f.refusals = refusalBackoff()
	if s == nil {
		return f.resume(ctx)
	}
	return s, nil
}

// loadState loads a state, compares it with the upstream and installs it. It returns the stream that goes on from the
// state, or nil if the state came in pages.
func (f *feed) loadState(ctx context.Context) (*source.Stream, error) {
	lowest := f.collection.minRevision()
	learned, err := f.source.Learn(ctx, f.fields)
	if err != nil {
		return nil, err
	}
	form, err := f.learnWatch(ctx, learned)
	if err != nil {
		return nil, err
	}
	l, err := f.load(ctx, learned)
	if err != nil {
		return nil, err
	}
	current, err := f.checkRevision(ctx, l.revision, lowest)
	if err == nil && current != l.revision { // it was too low, and a second read gave one that is not
		err = fmt.Errorf("a state was loaded at revision %d, where %d was seen before: the API server lags", l.revision, lowest)
	}
	if err == nil {
		err = f.compareLoaded(ctx, learned.Envelope, l)
	}
	if err != nil {
		l.discard()
		return nil, err
	}
	watchesUpToDate := false
	v := f.collection.view.Load()
	hasWatches := v.broadcaster != nil && v.broadcaster.Watchers() > 0
	if hasWatches && form != nil && v.envelope.AgreesWith(learned.Envelope) {
		err := f.bridge(ctx, l)
		watchesUpToDate = err == nil
		f.log.Debug("clients' watches, and a state that was loaded anew", "go on", watchesUpToDate, "error", err)
	}
	f.collection.install(loadedState{
		state: l.state, size: l.size, revision: l.revision, askedBy: l.askedBy,
		envelope: learned.Envelope, form: form, watchesUpToDate: watchesUpToDate,
	})
	f.envelope = learned.Envelope
	f.log.Info("collection loaded", "revision", l.revision, "objects", l.state.Len(), "bytes", l.size)
	return l.stream, nil
}

// handleFailure decides what becomes of the state after an error. What is known stays, and is given until it is too
// old, unless the error puts it in doubt. handleFailure returns the usual and the least pause before the next session,
// for [Collection.pause]. One of the two is 0.
func (f *feed) handleFailure(err error, now time.Time) (usual, least time.Duration) {
	var contradiction wire.InconsistencyError
	var other otherTimelineError
	besideKnown := f.mustLoad && f.collection.known() // the error is of a load, and says nothing of the known state
	if !source.Answered(err, http.StatusForbidden) {
		f.forbiddenSince = time.Time{}
	} else if f.forbiddenSince.IsZero() {
		f.forbiddenSince = now
	}
	switch { // errors that put the timeline in doubt come first
	case errors.As(err, &other):
		f.drop(reason.Warming, err)
		least = Skew
	case errors.As(err, &contradiction) && !besideKnown, source.Answered(err, http.StatusNotFound):
		f.drop(reason.Warming, err)
	case errors.Is(err, wire.ErrForm) && !besideKnown, source.Answered(err, http.StatusNotAcceptable):
		f.drop(reason.Form, err)
		least = wait.Jitter(unlikelyRetry, 1)
	case errors.Is(err, errFull) && besideKnown: // without the known state there may be room; lists wait for the load
		f.drop(reason.Warming, err)
	case errors.Is(err, errFull):
		f.drop(reason.Memory, err)
		least = f.overflows.Step()
	case source.Answered(err, http.StatusForbidden):
		if now.Sub(f.forbiddenSince) >= refusalGrace || !f.collection.known() {
			f.drop(reason.NotPermitted, err)
			least = f.refusals.Step()
		}
	case errors.Is(err, errSlow), errors.Is(err, wire.ErrForm):
		least = wait.Jitter(unlikelyRetry, 1)
	case source.Answered(err, http.StatusGone), errors.Is(err, errObject), errors.Is(err, errReloadRequested):
		f.loadAnew(err)
	case errors.Is(err, errUnproven):
		f.loadAnew(err)
		least = f.doubts.Step()
	}
	if least == 0 {
		usual = f.retries.Step()
	}
	return usual, source.RetryPause(least, err)
}

// drop forgets the state, if there is one, so that the next session loads another. why is the reason that requests get
// meanwhile.
func (f *feed) drop(why reason.Reason, cause error) {
	f.loadAnew(cause)
	f.collection.drop(why)
}

// loadAnew requires that the next session loads a state. The state that is known, if any, counts as lost from now on.
func (f *feed) loadAnew(cause error) {
	if !f.mustLoad {
		f.collection.counts.addLoss(lossCause(cause))
	}
	f.mustLoad = true
}

// logLevel returns the level at which a session's error is logged.
func (f *feed) logLevel(err error, attempt int) slog.Level {
	switch {
	case err == nil, errors.Is(err, errUnproven):
		return slog.LevelDebug
	case source.IsUpstreamFailure(err) && (attempt != loggedAttempt || !source.IsBusy(err)):
		return slog.LevelDebug // upstream.Health logs failures of the upstream, once for all feeds
	case f.collection.known():
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// stateChange converts an event, which must be no bookmark, into a change of a state with that envelope. It returns
// errObject if the form of items is unknown. The change may keep the event's memory.
func (f *feed) stateChange(envelope *wire.Envelope, ev wire.Event) (stateChange, error) {
	form := envelope.Item
	if !form.Known {
		return stateChange{}, errObject
	}
	m := ev.Meta
	if m.APIVersion != form.APIVersion || m.Kind != form.Kind {
		return stateChange{}, wire.Inconsistent("an event with a %s %s", m.APIVersion, m.Kind)
	}
	key, err := f.source.Key(m)
	if err != nil {
		return stateChange{}, err
	}
	ch := stateChange{kind: ev.Type, key: key, revision: m.Revision}
	if ev.Type == wire.Deleted && !f.watches {
		return ch, nil
	}
	bytes, err := f.source.Encoding().Cut(form, ev.Object)
	if err != nil {
		return stateChange{}, err
	}
	if ev.Type == wire.Deleted {
		ch.deleted = index.NewObject(0, key, m.Revision, bytes)
		return ch, nil
	}
	ch.object, err = f.object(envelope, key, m, bytes)
	return ch, err
}

// object returns an object made of an item of a list. The object keeps the item's memory.
func (f *feed) object(envelope *wire.Envelope, key string, m wire.ObjectMeta, item []byte) (*index.Object, error) {
	values, err := f.source.Encoding().Values(envelope.Paths, item)
	if err != nil {
		// A value may be left from an earlier schema. How the upstream reads it is not known.
		return nil, fmt.Errorf("%w: the fields of an object cannot be read: %w", wire.ErrForm, err)
	}
	f.collection.lastObjectNumber++
	o := index.NewObject(f.collection.lastObjectNumber, key, m.Revision, item)
	o.Labels, o.Fields = m.Labels, values
	return o, nil
}
