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

// feed keeps one collection up to date. It is a loop of its own instead of client-go's Reflector,
// which lists again after every failed watch, and continues after events that its store refused;
// with either, the history would have gaps.
//
//	load ──► read the stream ──► it ends or breaks: open it again where it had come to
//	 ▲             │                                    │
//	 └─────────────┴── 410, or what cannot be ──────────┘
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
	// makeRoom drops idle collections when this one exceeds the byte bound. It reports whether there is room then.
	makeRoom func() bool
	log      *slog.Logger

	// fresh decides when to ask the upstream for its current revision.
	fresh source.Freshness
	// envelope is the one of the newest state.
	envelope *wire.Envelope
	// mustLoad reports whether a state must be loaded, even if there is one.
	mustLoad bool
	// timedOutAt is the time at which the last stream ended at its timeout. It is zero if the stream ended otherwise:
	// then the upstream may have another timeline.
	timedOutAt time.Time
	// noStreamingBefore is the time before which states are loaded in pages, since the upstream did not end the last
	// streaming list with its bookmark.
	noStreamingBefore time.Time
	// refusedSince is the time of the first of the upstream's 403s in a row; zero if its last answer was another.
	refusedSince time.Time
	// retries gives the pauses between tries, refusals those after a 403, overflows those after a state that does not
	// fit, and doubts those before a load because the timeline was not shown to be the same.
	retries, refusals, overflows, doubts wait.Backoff
}

const (
	// watchTimeout is the shortest life of a watch; feeds add up to as much again, so that they
	// do not come back all at once.
	watchTimeout = 5 * time.Minute
	// unlikelyRetry is the time for which a feed waits after a failure that a retry is unlikely to cure.
	unlikelyRetry = 2 * time.Minute
	// longestOverflow is the longest pause after a state that did not fit.
	longestOverflow = 40 * time.Minute
	// longestDoubt is the longest pause before a load that is due because streams break.
	longestDoubt = 2 * time.Minute
	// noStreamingFor is the time for which states are loaded in pages after a streaming list without its bookmark.
	noStreamingFor = time.Hour
	// refusalGrace is the time that a state is kept after a 403: an API server that has just started
	// refuses everybody until it has read its roles.
	refusalGrace = 15 * time.Second
	// After a stream that ends within minStreamLife, the next one is opened only after a pause. If each stream began
	// with a load, pauses grow until one has lasted for steadyStreamLife: loads are expensive.
	minStreamLife    = time.Second
	steadyStreamLife = time.Minute
)

// Why a state must be loaded anew.
var (
	// errObject means that a collection that was empty has got its first object, and the form of items could not be
	// learned from it.
	errObject = errors.New("the first object of an empty collection: its form could not be learned")
	// errOutOfDate means that the API servers may have another state than the one that is known.
	errOutOfDate = errors.New("the API servers write it differently now")
	// errUnproven means that a stream could go on, but nothing shows that the upstream has the same timeline.
	errUnproven = errors.New("the upstream may have another timeline")
)

// refusalBackoff grows: an account that lacks a right seldom gets it soon.
func refusalBackoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 10, Cap: unlikelyRetry}
}

// overflowBackoff grows, because finding out that a state does not fit may cost the upstream most of
// a whole list.
func overflowBackoff() wait.Backoff {
	return wait.Backoff{Duration: unlikelyRetry, Factor: 2, Jitter: 0.5, Steps: 10, Cap: longestOverflow}
}

// doubtBackoff grows: where streams break again and again, loading anew must not be the rule.
func doubtBackoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 4, Jitter: 0.5, Steps: 10, Cap: longestDoubt}
}

// retryBackoff is for failures that a retry is likely to cure.
func retryBackoff() wait.Backoff {
	return wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 20 * time.Second}
}

// lastingAttempt is the attempt at which a failure that may be about this resource only is logged, once: by then it is
// not momentary any more.
const lastingAttempt = 4

// run feeds the collection until ctx ends.
func (f *feed) run(ctx context.Context) {
	defer f.collection.retire(reason.Warming)
	f.retries, f.refusals, f.overflows, f.doubts = retryBackoff(), refusalBackoff(), overflowBackoff(), doubtBackoff()
	f.fresh = source.NewFreshness(f.collection.limits.Staleness, rand.Float64()) // #nosec G404 -- no secret
	f.mustLoad = true
	for attempt := 0; ctx.Err() == nil; attempt++ {
		loading := f.mustLoad
		before := f.collection.view.Load().To
		readFor, err := f.session(ctx)
		if ctx.Err() != nil {
			return
		}
		v := f.collection.view.Load()
		// A kube-apiserver that has just started ends a watch that is more than ten events behind: what it
		// has told before is progress, and a pause would put us further behind.
		if readFor >= steadyStreamLife || (!loading && (readFor >= minStreamLife || v.To > before)) {
			f.retries = retryBackoff()
			attempt = 0
		}
		if v.unavailable == reason.None && time.Since(v.loaded) >= longestOverflow { // the state has fitted for long
			f.overflows, f.doubts = overflowBackoff(), doubtBackoff()
		}
		if err == nil && readFor >= minStreamLife {
			continue
		}
		if !loading && source.Answered(err, http.StatusGone) { // the upstream answers again: load at once
			f.retries = retryBackoff()
		}
		pause, atLeast := f.handleFailure(err, time.Now())
		message := "watch not resumed yet"
		if f.mustLoad {
			message = "collection cannot be followed"
		}
		f.log.Log(ctx, f.level(err, attempt+1), message,
			"error", err, "attempt", attempt+1, "retry", max(pause, atLeast).Round(time.Millisecond))
		f.pause(ctx, pause, atLeast)
	}
}

// session loads a state if that is needed, opens a stream that goes on from it, and reads the stream until it ends. It
// returns for how long it has read; the error is nil if the stream ended at its timeout.
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
	f.refusedSince = time.Time{}
	begun := time.Now()
	err = f.read(ctx, s)
	s.Stop()
	f.timedOutAt = time.Time{}
	if err == nil {
		f.timedOutAt, _ = s.Ended(time.Now())
	}
	return time.Since(begun), err
}

// openLoaded loads a state, and returns a stream that goes on from it.
func (f *feed) openLoaded(ctx context.Context) (*source.Stream, error) {
	select {
	case <-f.collection.outOfDate:
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

// loadState loads a state, compares it with the upstream and installs it. The stream is nil if the state came in pages.
func (f *feed) loadState(ctx context.Context) (*source.Stream, error) {
	minRevision := f.collection.minRevision()
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
	current, err := f.observe(ctx, l.revision, minRevision)
	if err == nil && current != l.revision {
		err = fmt.Errorf("a state was loaded at revision %d, where %d was seen before: the API server lags", l.revision, minRevision)
	}
	if err == nil {
		err = f.compareLoaded(ctx, learned.Envelope, l)
	}
	if err != nil {
		l.discard(f.collection.budget)
		return nil, err
	}
	watchesGoOn := false
	v := f.collection.view.Load()
	if v.broadcaster != nil && v.broadcaster.Watchers() > 0 && form != nil && v.envelope.AgreesWith(learned.Envelope) {
		err := f.bridge(ctx, l)
		watchesGoOn = err == nil
		f.log.Debug("clients' watches, and a state that was loaded anew", "go on", watchesGoOn, "error", err)
	}
	f.collection.install(loadedState{
		state: l.state, size: l.size, revision: l.revision, Probe: l.Probe,
		envelope: learned.Envelope, form: form, watchesGoOn: watchesGoOn,
	})
	f.envelope = learned.Envelope
	f.log.Info("collection loaded", "revision", l.revision, "objects", l.state.Len(), "bytes", l.size)
	return l.stream, nil
}

// handleFailure decides what becomes of the state after an error. What is known stays, and is given until it is too
// old, unless the error puts it in doubt. It returns the pause before the next try. A request that needs a newer
// state shortens the pause, but not below atLeast.
func (f *feed) handleFailure(err error, now time.Time) (pause, atLeast time.Duration) {
	var contradiction wire.InconsistencyError
	var other otherTimelineError
	besideKnown := f.mustLoad && f.collection.known() // a load beside a known state has failed, so that state stays
	if !source.Answered(err, http.StatusForbidden) {
		f.refusedSince = time.Time{}
	} else if f.refusedSince.IsZero() {
		f.refusedSince = now
	}
	switch { // errors that put the timeline in doubt come first
	case errors.As(err, &other):
		f.drop(reason.Warming, err)
		atLeast = Skew
	case errors.As(err, &contradiction) && !besideKnown, source.Answered(err, http.StatusNotFound):
		f.drop(reason.Warming, err)
	case errors.Is(err, wire.ErrForm) && !besideKnown, source.Answered(err, http.StatusNotAcceptable):
		f.drop(reason.Form, err)
		atLeast = wait.Jitter(unlikelyRetry, 1)
	case errors.Is(err, errFull) && besideKnown: // without the known state there may be room; lists wait for the load
		f.drop(reason.Warming, err)
	case errors.Is(err, errFull):
		f.drop(reason.Memory, err)
		atLeast = f.overflows.Step()
	case source.Answered(err, http.StatusForbidden):
		if now.Sub(f.refusedSince) >= refusalGrace || !f.collection.known() {
			f.drop(reason.NotPermitted, err)
			atLeast = f.refusals.Step()
		}
	case errors.Is(err, errSlow), errors.Is(err, wire.ErrForm):
		atLeast = wait.Jitter(unlikelyRetry, 1)
	case source.Answered(err, http.StatusGone), errors.Is(err, errObject), errors.Is(err, errOutOfDate):
		f.loadAnew(err)
	case errors.Is(err, errUnproven):
		f.loadAnew(err)
		atLeast = f.doubts.Step()
	}
	if atLeast == 0 {
		pause = f.retries.Step()
	}
	return pause, source.RetryPause(atLeast, err)
}

// drop forgets the state, if there is one, and lets the next session load another. Requests are told why.
func (f *feed) drop(why reason.Reason, cause error) {
	f.loadAnew(cause)
	f.collection.drop(why)
}

// loadAnew lets the next session load a state. The state that is known, if any, counts as lost from now on.
func (f *feed) loadAnew(cause error) {
	if !f.mustLoad {
		f.collection.counts.addLoss(lossCause(cause))
	}
	f.mustLoad = true
}

// level returns the level at which a session's error is logged.
func (f *feed) level(err error, attempt int) slog.Level {
	switch {
	case err == nil, errors.Is(err, errUnproven):
		return slog.LevelDebug
	case source.IsUpstreamFailure(err) && (attempt != lastingAttempt || !source.IsBusy(err)):
		return slog.LevelDebug // upstream.Health logs failures of the upstream, once for all feeds
	case f.collection.known():
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// stateChange converts an event into a change of the state.
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

// object returns an object made of an item of a list. It keeps the item's memory.
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
