package snapshot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/freshness"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// feed keeps one collection up to date. It is a loop of its own instead of client-go's Reflector,
// which lists again after every failed watch, and continues after events that its store refused;
// with either, the history would have gaps.
//
//	run ──► session: learn the frame ► load a state ► prove it ► follow the watch
//	  ▲                                                            │    ▲
//	  └── the span is closed or dropped ◄── 410, contradiction ────┘    └─ resume in place
type feed struct {
	source     source.Source
	collection *Collection
	// fields are those that a selector may name, if the upstream accepts them.
	fields func(context.Context) ([]wire.Field, error)
	// loads is how many feeds may load at the same time, and comparisons how many may compare all
	// they have.
	loads, comparisons chan struct{}
	// sameServers is Config.SameServers.
	sameServers func(context.Context) (bool, error)
	// watches is Settings.Watches.
	watches bool
	// makeRoom has others go for what came to the collection, and reports whether there is room then.
	makeRoom func() bool
	log      *slog.Logger
	// refusals gives the pause after the next 403, misfits the pause after the next state that does
	// not fit.
	refusals, misfits wait.Backoff
	// measured is how many bytes an object had on average in the last state that did not fit; 0 if
	// none was read.
	measured int64
	// frame is that of the live span.
	frame *wire.Frame
	// fresh says when to ask the upstream for its current revision.
	fresh freshness.Machine
}

const (
	// watchTimeout is the shortest life of a watch; feeds add up to as much again, so that they
	// do not come back all at once.
	watchTimeout = 5 * time.Minute
	// unlikelyRetry is how long a feed waits after a failure that a retry is unlikely to cure.
	unlikelyRetry = 2 * time.Minute
	// longestMisfit is the longest pause after a state that did not fit.
	longestMisfit = 20 * time.Minute
	// refusalGrace is how long a watch that was permitted is tried again after a 403: an API
	// server that has just started refuses everybody until it has read its roles.
	refusalGrace = 15 * time.Second
)

// errObject is the first object of a collection that was empty, if the item form could not be
// learned from it.
var errObject = errors.New("the first object of an empty collection: its form could not be learned")

func refusalBackoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 10, Cap: unlikelyRetry}
}

// misfitBackoff grows, because finding out that a state does not fit may cost the upstream most of
// a whole list.
func misfitBackoff() wait.Backoff {
	return wait.Backoff{Duration: unlikelyRetry, Factor: 2, Jitter: 0.5, Steps: 10, Cap: longestMisfit}
}

func sessionBackoff() wait.Backoff {
	return wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 8, Cap: 30 * time.Second}
}

// lastingAttempt is the attempt at which an answer that may be about all resources or only about
// this one is told of, once: by then it was no momentary one.
const lastingAttempt = 4

// run feeds the collection until ctx ends.
func (f *feed) run(ctx context.Context) {
	defer f.collection.retire(reason.Warming)
	backoff := sessionBackoff()
	f.refusals, f.misfits = refusalBackoff(), misfitBackoff()
	f.fresh = freshness.New(f.collection.limits.Staleness, rand.Float64()) // #nosec G404 -- no secret
	for attempt := 1; ctx.Err() == nil; attempt++ {
		begun := time.Now()
		err := f.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(begun) > time.Minute {
			backoff, attempt = sessionBackoff(), 1
		}
		if time.Since(begun) > longestMisfit { // it did fit
			f.misfits = misfitBackoff()
		}
		f.collection.life.ended(lossOf(err), time.Now())
		f.collection.trouble.Store(&err)
		pause, least := f.settle(err, &backoff)
		level := slog.LevelWarn
		if source.IsTrouble(err) && (attempt != lastingAttempt || !source.Troubled(err)) {
			level = slog.LevelDebug // upstream.Health tells of it, once for all
		}
		f.log.Log(ctx, level, "collection cannot be followed",
			"error", err, "attempt", attempt, "retry", max(pause, least).Round(time.Millisecond))
		f.collection.pause(ctx, pause, least)
	}
}

// settle sets why the collection has no state after the end of a session, and returns how long to
// wait before the next session, and for how long at least, even if a request needs a newer state.
func (f *feed) settle(err error, backoff *wait.Backoff) (pause, least time.Duration) {
	c := f.collection
	var contradiction wire.InconsistencyError
	var back wentBackError
	switch {
	case errors.As(err, &contradiction), errors.As(err, &back), errors.Is(err, errUnproven),
		source.Answered(err, http.StatusNotFound):
		c.drop(reason.Warming)
	case errors.Is(err, wire.ErrForm), source.Answered(err, http.StatusNotAcceptable):
		c.drop(reason.Form)
		least = wait.Jitter(unlikelyRetry, 1)
	case errors.Is(err, errFull):
		c.drop(reason.Memory)
		least = f.misfits.Step()
	case source.Answered(err, http.StatusForbidden):
		// Dropped, not only closed: the right may have been lost when etcd was restored, and be given
		// again in another past.
		c.drop(reason.NotPermitted)
		least = f.refusals.Step()
	case errors.Is(err, errSlow):
		c.close()
		least = unlikelyRetry
	default:
		c.close()
	}
	if least == 0 {
		pause = backoff.Step()
	}
	return pause, source.Wanted(least, err)
}

// session loads a state, opens a span with it and follows the watch until the span is lost.
func (f *feed) session(ctx context.Context) error {
	is, err := f.learn(ctx)
	if err != nil {
		return err
	}
	form, err := f.learnWatch(ctx, is)
	if err != nil {
		return err
	}
	loaded, err := f.load(ctx, is)
	if err != nil {
		return err
	}
	if err := f.prove(ctx, is.frame, loaded); err != nil {
		loaded.discard(f.collection.budget)
		return err
	}
	f.doubtPast(ctx, loaded.Sent)
	f.collection.open(loaded.state, loaded.size, loaded.revision, is.frame, form, loaded.Probe)
	f.collection.trouble.Store(nil)
	f.frame = is.frame
	f.collection.life.opened()
	f.refusals = refusalBackoff()
	f.log.Info("collection loaded", "revision", loaded.revision, "objects", loaded.state.Len(), "bytes", loaded.size)
	if form != nil {
		// Its bookmark tells how bookmarks are written; the stream's own may take a minute.
		ctx, stop := context.WithCancel(ctx)
		var asking sync.WaitGroup
		asking.Go(func() { _, _ = f.attest(ctx, loaded.revision) })
		defer func() { stop(); asking.Wait() }()
	}
	return f.follow(ctx, loaded.stream)
}

// change converts an event into a change of the collection.
func (f *feed) change(frame *wire.Frame, ev wire.Event) (change, error) {
	form := frame.Item
	if !form.Known {
		return change{}, errObject
	}
	m := ev.Meta
	if m.APIVersion != form.APIVersion || m.Kind != form.Kind {
		return change{}, wire.Inconsistent("an event with a %s %s", m.APIVersion, m.Kind)
	}
	key, err := f.key(m)
	if err != nil {
		return change{}, err
	}
	ch := change{kind: ev.Kind, key: key, revision: m.Revision}
	if ev.Kind == wire.Deleted && !f.watches {
		return ch, nil
	}
	bytes, err := f.source.Encoding().Cut(form, ev.Object)
	if err != nil {
		return change{}, err
	}
	if ev.Kind == wire.Deleted {
		ch.gone = index.NewObject(0, key, m.Revision, bytes)
		return ch, nil
	}
	ch.object, err = f.object(frame, key, m, bytes)
	return ch, err
}

// object makes an object from an item of a list. The object owns the item's memory afterwards.
func (f *feed) object(frame *wire.Frame, key string, m wire.ObjectMeta, item []byte) (*index.Object, error) {
	values, err := f.source.Encoding().Values(frame.Paths, item)
	if err != nil {
		// The value is left from another schema: it is not known how the upstream reads it.
		return nil, fmt.Errorf("%w: the fields of an object cannot be read: %w", wire.ErrForm, err)
	}
	f.collection.objects++
	o := index.NewObject(f.collection.objects, key, m.Revision, item)
	o.Labels, o.Fields = m.Labels, values
	return o, nil
}

// key is an object's place in the order of the API server.
func (f *feed) key(m wire.ObjectMeta) (string, error) {
	if m.Name == "" || (m.Namespace != "") != f.source.Resource.Namespaced {
		return "", wire.Inconsistent("an object without a usable name")
	}
	// Names of RBAC objects may hold any bytes, and JSON has U+FFFD for those that are not
	// UTF-8: neither the order of such keys nor their tokens could be right.
	if strings.ContainsRune(m.Name, utf8.RuneError) || strings.ContainsRune(m.Namespace, utf8.RuneError) {
		return "", fmt.Errorf("%w: an object's name is not UTF-8", wire.ErrForm)
	}
	return index.JoinKey(m.Namespace, m.Name), nil
}
