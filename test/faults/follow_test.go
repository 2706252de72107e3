package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/faults/load"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/events"
	"github.com/listproxy/listproxy/test/harness/informers"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// follower is a client that lists and then watches through listproxy.
type follower struct {
	name   string
	target string // path and query of the list
	// state returns the objects that the follower knows, as [ask.Versions] does.
	state func() map[string]string
	// missingWrite returns the revision of a write whose event has not come. It returns 0 if all events have come. For an
	// informer it always returns 0: an informer does not say which events it has got.
	missingWrite func() uint64
}

// follow starts informers of client-go and strict watchers, and waits until each of them knows an object.
func (s *scene) follow() {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	s.Cleanup(cancel)
	s.followers, s.stopFollowers = nil, cancel
	s.watchHits.Store(0)
	const notSide1 = load.SideLabel + "!=1"
	for _, i := range []struct {
		client   informers.Client
		kind     kind
		pages    bool   // true: begins with a paginated list; false: with a streaming list
		selector string // of labels; "" selects all
	}{
		{client: informers.TypedPods, kind: pods},
		{client: informers.TypedPods, kind: pods, pages: true, selector: notSide1},
		{client: informers.Dynamic, kind: widgets, selector: notSide1},
		{client: informers.Dynamic, kind: widgets, pages: true},
		{client: informers.Metadata, kind: configMaps, selector: notSide1},
		{client: informers.Metadata, kind: configMaps, pages: true},
	} {
		resource := schema.GroupVersionResource{Group: i.kind.Group(), Version: "v1", Resource: i.kind.Plural}
		informer := informers.New(s.proxiedConfig, i.client, resource, informers.Options{Pages: i.pages, Selector: i.selector})
		s.must(informers.Start(ctx, informer))
		s.followers = append(s.followers, follower{
			name:         fmt.Sprintf("a %s informer (by pages: %t) of %s %s", i.client, i.pages, i.kind.Plural, i.selector),
			target:       i.kind.Path("") + "?labelSelector=" + url.QueryEscape(i.selector),
			state:        func() map[string]string { return ask.Versions(informers.Stored(informer)) },
			missingWrite: func() uint64 { return 0 },
		})
	}
	for _, k := range []kind{configMaps, widgets, fleeting} {
		w := &watcher{scene: s, kind: k}
		go w.run(ctx)
		s.followers = append(s.followers, follower{
			name: "a strict watcher of " + k.Plural, target: k.Path(""), state: w.state, missingWrite: w.missingWrite,
		})
	}
	for _, f := range s.followers {
		s.must(poll.Retry(ctx, f.name, func() error {
			if len(f.state()) == 0 {
				return errors.New("it knows nothing yet")
			}
			return nil
		}))
	}
}

// watchSeconds is the timeout of a watcher's watches: short, so that it resumes often.
const watchSeconds = 15

// watcher is a strict client. It learns a state from the initial events of a watch. When a watch ends, it begins another one at
// the last revision, as kube-rs does. It counts two mistakes: an event that does not fit the state before it (for example a
// deletion of an object that does not exist), and a missing event of a write that the API server confirmed.
type watcher struct {
	*scene
	kind kind

	mu      sync.Mutex
	objects map[string]string // as [ask.Versions] returns them

	resumeAt     uint64        // the revision after which the next watch begins; 0: it begins with initial events
	completeUpTo atomic.Uint64 // the revision up to which all events have come
}

// missingWrite returns the revision of the newest write if its event has not come, or 0.
func (w *watcher) missingWrite() uint64 {
	if newest := w.Ledger.Newest(w.kind); newest > w.completeUpTo.Load() {
		return newest
	}
	return 0
}

func (w *watcher) state() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.objects)
}

// run watches until ctx ends.
func (w *watcher) run(ctx context.Context) {
	for {
		err := w.watchOnce(ctx)
		if errors.As(err, new(poll.Wrong)) {
			w.Tally.AddMistake("a strict watcher of %s: %v", w.kind.Plural, err)
		}
		if errors.As(err, new(brokenError)) && ctx.Err() == nil {
			w.Tally.Add(func(c *load.Counts) { c.BrokenWatches = append(c.BrokenWatches, err) })
		}
		if !clock.Sleep(ctx, 10*pollEvery) {
			return
		}
	}
}

// watchOnce resumes, or begins with initial events, and reads one watch to its end.
func (w *watcher) watchOnce(ctx context.Context) (err error) {
	if w.resumeAt > 0 {
		w.resumeAt, err = w.watch(ctx, w.resumeAt, "", w.apply)
	} else {
		w.resumeAt, err = w.watch(ctx, 0, "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", w.applyInitial())
	}
	if errors.As(err, new(errorEvent)) {
		w.resumeAt = 0 // resuming there would get the same error again
	}
	return err
}

// handler applies an event, and returns resumeAt: if no event comes after this one, the next watch can begin at that revision.
// previous is the resumeAt of the event before.
type handler func(e events.Event, previous uint64) (resumeAt uint64, err error)

// applyInitial returns a handler that collects the initial events as a new state, and then applies the events that follow.
func (w *watcher) applyInitial() handler {
	initial := map[string]string{}
	isComplete := false
	return func(e events.Event, previous uint64) (uint64, error) {
		switch {
		case isComplete || e.Type == watch.Error:
			return w.apply(e, previous)
		case e.EndsInitial:
			isComplete = true
			w.mu.Lock()
			w.objects = initial
			w.mu.Unlock()
			return w.apply(e, 0)
		case e.Type != watch.Added:
			return 0, poll.Wrong(string(e.Type) + " among the initial events")
		}
		maps.Copy(initial, ask.Versions([]ask.Identity{ask.IdentityOf(&e.Meta)}))
		return 0, nil // if the watch ends before the last initial event, the next one begins with initial events, too
	}
}

// watch sends a watch from a revision, has handle apply each event until the watch ends, and returns the revision at which to
// resume. extraQuery follows the usual parameters.
//
// It also looks for missing events. Say a watch begins at revision 100, and the last event or bookmark was at 140. Then each
// write that the API server confirmed at 101 to 140 must have had an event.
func (w *watcher) watch(ctx context.Context, revision uint64, extraQuery string, handle handler) (resumeAt uint64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	target := fmt.Sprintf("%s?allowWatchBookmarks=true&resourceVersion=%d&watch=true&timeoutSeconds=%d%s",
		w.kind.Path(""), revision, watchSeconds, extraQuery)
	resp, err := w.proxied.Open(ctx, http.MethodGet, target, nil)
	if err != nil {
		return revision, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return revision, errors.New(resp.Status)
	}
	if ask.FromMemory(resp.Header) {
		w.watchHits.Add(1)
		if w.kind.Plural == fleeting.Plural {
			w.fleetingHits.Add(1)
		}
	}
	got := map[uint64]bool{} // the revisions of the events so far
	begin := revision        // in the example 100
	completeUpTo := revision // in the example 140
	for stream := events.NewReader(resp.Body, ask.JSON); ; {
		e, err := stream.Next()
		if missed := w.Ledger.Missing(w.kind, begin, completeUpTo, got); missed > 0 {
			return revision, poll.Wrong(fmt.Sprintf("a watch from %d sent events up to %d, but none of the write at %d", begin, completeUpTo, missed))
		}
		if errors.Is(err, io.EOF) {
			return revision, nil
		}
		if err != nil {
			return revision, brokenError{err}
		}
		got[e.Revision] = true
		if e.EndsInitial {
			begin = e.Revision // the initial events have the writes up to here, as objects and not as events
		}
		revision, err = handle(e, revision)
		if err != nil {
			return revision, err
		}
		completeUpTo = max(completeUpTo, revision)
		w.completeUpTo.Store(completeUpTo)
	}
}

// brokenError is the error of a watch that broke off: its body did not end in order after a whole event.
type brokenError struct{ error }

// errorEvent is an ERROR event.
type errorEvent struct{ error }

// apply is the [handler] that changes the state by an event. The event must fit the state: only ADDED creates an object.
// Its revision must be higher than the previous one.
func (w *watcher) apply(e events.Event, previous uint64) (uint64, error) {
	switch e.Type {
	case watch.Error:
		return previous, errorEvent{fmt.Errorf("%s", e.Object)}
	case watch.Bookmark:
		return max(e.Revision, previous), nil
	}
	key := e.Meta.Namespace + "/" + e.Meta.Name
	w.mu.Lock()
	defer w.mu.Unlock()
	before, existed := w.objects[key]
	mustExist := e.Type != watch.Added
	switch {
	case e.Revision <= previous:
		return previous, poll.Wrong(fmt.Sprintf("%s of %s at revision %d comes after %d", e.Type, key, e.Revision, previous))
	case existed != mustExist:
		return previous, poll.Wrong(fmt.Sprintf("%s of %s at revision %d, which was %q before", e.Type, key, e.Revision, before))
	case e.Type == watch.Deleted:
		delete(w.objects, key)
	default:
		maps.Copy(w.objects, ask.Versions([]ask.Identity{ask.IdentityOf(&e.Meta)}))
	}
	return e.Revision, nil
}
