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

// follower lists and then watches through listproxy, and so comes to know what it follows.
type follower struct {
	name    string
	follows string // as the target of a list
	// state is what it knows, as [ask.Versions] has it.
	state func() map[string]string
	// lacks is the revision of a write that it has not been told of yet; 0: none, or nobody knows.
	lacks func() uint64
}

// follow starts followers of every sort and waits until they know something.
func (s *scene) follow() {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	s.Cleanup(cancel)
	s.followers, s.stop = nil, cancel
	s.watchHits.Store(0)
	for _, i := range []struct {
		client   string
		of       kind
		begins   string
		selector string // of labels
	}{
		{client: "typed", of: pods, begins: "streaming"},
		{client: "typed", of: pods, begins: "paginated", selector: load.SideLabel + "!=1"},
		{client: "dynamic", of: widgets, begins: "streaming", selector: load.SideLabel + "!=1"},
		{client: "dynamic", of: widgets, begins: "paginated"},
		{client: "metadata", of: configMaps, begins: "streaming", selector: load.SideLabel + "!=1"},
		{client: "metadata", of: configMaps, begins: "paginated"},
	} {
		resource := schema.GroupVersionResource{Group: i.of.Group(), Version: "v1", Resource: i.of.Plural}
		informer := informers.New(s.viaConfig, i.client, resource, i.begins == "paginated", i.selector)
		s.must(informers.Start(ctx, informer))
		s.followers = append(s.followers, follower{
			fmt.Sprintf("a %s informer, %s, of %s %s", i.client, i.begins, i.of.Plural, i.selector),
			i.of.Path("") + "?labelSelector=" + url.QueryEscape(i.selector),
			func() map[string]string { return ask.Versions(informers.Stored(informer)) },
			func() uint64 { return 0 },
		})
	}
	for _, k := range []kind{configMaps, widgets, fleeting} {
		w := &watcher{scene: s, kind: k}
		go w.run(ctx)
		s.followers = append(s.followers, follower{"a strict watcher of " + k.Plural, k.Path(""), w.state, w.lacks})
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

// watchesFor is after how many seconds a watcher's watch ends, so that it begins many.
const watchesFor = 15

// watcher comes to know a state by the initial events of a watch, which goes on, and whose successors
// resume where it ended, as kube-rs does it. It believes nothing: an event has to fit, and each write that the API
// server had confirmed must have been told.
type watcher struct {
	*scene
	kind kind

	mu      sync.Mutex
	objects map[string]string

	last uint64        // the revision to resume at; 0: none
	told atomic.Uint64 // the revision up to which it was told
}

// lacks returns the revision of the newest write if the watcher was not told up to there.
func (w *watcher) lacks() uint64 {
	if newest := w.Ledger.Newest(w.kind); newest > w.told.Load() {
		return newest
	}
	return 0
}

func (w *watcher) state() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.objects)
}

func (w *watcher) run(ctx context.Context) {
	for {
		err := w.once(ctx)
		if errors.As(err, new(poll.Wrong)) {
			w.Tally.Wrong("a strict watcher of %s: %v", w.kind.Plural, err)
		}
		if errors.As(err, new(brokenOff)) && ctx.Err() == nil {
			w.Tally.BrokeOff(err)
		}
		if !clock.Sleep(ctx, 10*pollEvery) {
			return
		}
	}
}

// once resumes, or begins with a streaming list, and reads a watch to its end.
func (w *watcher) once(ctx context.Context) (err error) {
	if w.last > 0 {
		w.last, err = w.watch(ctx, w.last, "", w.take)
	} else {
		initial := map[string]string{} // nil, once it is complete
		w.last, err = w.watch(ctx, 0, "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", func(e events.Event, last uint64) (uint64, error) {
			if initial == nil || e.Type == watch.Error {
				return w.take(e, last)
			}
			if e.EndsInitial {
				w.mu.Lock()
				w.objects, initial = initial, nil
				w.mu.Unlock()
				return w.take(e, 0)
			}
			if e.Type != watch.Added {
				return 0, poll.Wrong(string(e.Type) + " among the initial events")
			}
			maps.Copy(initial, ask.Versions([]ask.Identity{ask.IdentityOf(&e.Meta)}))
			return 0, nil
		})
	}
	if errors.As(err, new(refusal)) {
		w.last = 0
	}
	return err
}

// watch reads a watch from a revision to its end, and returns the last revision that take returned.
func (w *watcher) watch(ctx context.Context, revision uint64, more string, take func(events.Event, uint64) (uint64, error)) (uint64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	target := fmt.Sprintf("%s?allowWatchBookmarks=true&resourceVersion=%d&watch=true&timeoutSeconds=%d%s", w.kind.Path(""), revision, watchesFor, more)
	resp, err := w.via.Open(ctx, http.MethodGet, target, nil)
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
	after, upTo, told := revision, revision, map[uint64]bool{}
	for in := events.NewReader(resp.Body, ask.JSON); ; {
		e, err := in.Next()
		if missed := w.Ledger.Untold(w.kind, after, upTo, told); missed > 0 {
			return revision, poll.Wrong(fmt.Sprintf("a watch from %d was told up to %d, and not of the write at %d", after, upTo, missed))
		}
		if errors.Is(err, io.EOF) {
			return revision, nil
		} else if err != nil {
			return revision, brokenOff{err}
		}
		if told[e.Revision] = true; e.EndsInitial {
			after = e.Revision
		}
		if revision, err = take(e, revision); err != nil {
			return revision, err
		}
		upTo = max(upTo, revision)
		w.told.Store(upTo)
	}
}

// brokenOff is how a watch ended that did not end in order: behind an event, with the end of the
// body.
type brokenOff struct{ error }

// refusal is an ERROR in place of an event.
type refusal struct{ error }

// take changes the state by an event, which must fit to it, and returns the event's revision.
func (w *watcher) take(e events.Event, last uint64) (uint64, error) {
	if e.Type == watch.Error {
		return last, refusal{fmt.Errorf("%s", e.Object)}
	}
	if e.Type == watch.Bookmark {
		return max(e.Revision, last), nil
	}
	o, key := ask.IdentityOf(&e.Meta), e.Meta.Namespace+"/"+e.Meta.Name
	w.mu.Lock()
	defer w.mu.Unlock()
	before, known := w.objects[key]
	switch {
	case e.Revision <= last:
		return last, poll.Wrong(fmt.Sprintf("%s of %s at revision %d comes after %d", e.Type, key, e.Revision, last))
	case known != (e.Type != watch.Added):
		return last, poll.Wrong(fmt.Sprintf("%s of %s at revision %d, of which was known: %q", e.Type, key, e.Revision, before))
	case e.Type == watch.Deleted:
		delete(w.objects, key)
	default:
		maps.Copy(w.objects, ask.Versions([]ask.Identity{o}))
	}
	return e.Revision, nil
}
