package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/listproxy/listproxy/test/faults/load"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// follower lists and then watches through listproxy, and so comes to know a kind.
type follower interface {
	name() string
	kind() kind
	// state is what it knows, as versions has it.
	state() map[string]string
}

// startFollowers starts followers of every sort, until ctx ends, and waits until each has its first
// state.
func startFollowers(ctx context.Context, s *scene) ([]follower, error) {
	followers, err := startInformers(ctx, s.viaConfig)
	if err != nil {
		return nil, err
	}
	for _, k := range []kind{configMaps, widgets} {
		w := &watcher{of: k, client: s.via, tally: s.Tally}
		go w.run(ctx)
		followers = append(followers, w)
	}
	for _, f := range followers {
		if err := poll.Retry(ctx, f.name(), func() error {
			if len(f.state()) == 0 {
				return errors.New("it knows nothing yet")
			}
			return nil
		}); err != nil {
			return followers, err
		}
	}
	return followers, nil
}

// informer is one of client-go's.
type informer struct {
	what   string
	of     kind
	shared cache.SharedIndexInformer
}

func (i *informer) name() string { return i.what }
func (i *informer) kind() kind   { return i.of }

func (i *informer) state() map[string]string {
	var objects []ask.Identity
	for _, o := range i.shared.GetStore().List() {
		if m, err := meta.Accessor(o); err == nil {
			objects = append(objects, ask.IdentityOf(m))
		}
	}
	return versions(objects)
}

// paginated is a source that says it knows no streaming lists, as those of old do.
type paginated struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is asked by client-go.
func (paginated) IsWatchListSemanticsUnSupported() bool { return true }

func startInformers(ctx context.Context, cfg *rest.Config) ([]follower, error) {
	binary := rest.CopyConfig(cfg)
	binary.ContentType, binary.AcceptContentTypes = load.AsProtobuf.Accept, load.AsProtobuf.Accept+",application/json"
	typed, err1 := kubernetes.NewForConfig(binary)
	untyped, err2 := dynamic.NewForConfig(cfg)
	partial, err3 := metadata.NewForConfig(cfg)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	resource := func(k kind) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: k.Group(), Version: "v1", Resource: k.Plural}
	}
	core := typed.CoreV1().Pods("")
	all := []struct {
		what    string
		of      kind
		pages   bool
		example runtime.Object
		source  *cache.ListWatch
	}{
		{"a typed informer, streaming", pods, false, &corev1.Pod{}, source(core.List, core.Watch)},
		{"a typed informer, paginated", pods, true, &corev1.Pod{}, source(core.List, core.Watch)},
		{"a dynamic informer, paginated", widgets, true, &unstructured.Unstructured{}, source(untyped.Resource(resource(widgets)).List, untyped.Resource(resource(widgets)).Watch)},
		{"a metadata informer, streaming", configMaps, false, &metav1.PartialObjectMetadata{}, source(partial.Resource(resource(configMaps)).List, partial.Resource(resource(configMaps)).Watch)},
	}
	var followers []follower
	for _, i := range all {
		var from cache.ListerWatcher = i.source
		if i.pages {
			from = paginated{i.source}
		}
		shared := cache.NewSharedIndexInformer(from, i.example, 0, cache.Indexers{})
		// Faults are no news here.
		if err := shared.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err != nil {
			return nil, err
		}
		go shared.RunWithContext(logr.NewContext(ctx, logr.Discard()))
		followers = append(followers, &informer{i.what + ", of " + i.of.Plural, i.of, shared})
	}
	return followers, nil
}

// source hides the type of a list.
func source[L runtime.Object](
	lists func(context.Context, metav1.ListOptions) (L, error), watches func(context.Context, metav1.ListOptions) (watch.Interface, error),
) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return lists(ctx, o) },
		WatchFuncWithContext: watches,
	}
}

// watcher reads pages and then watches from their revision. It believes nothing: an event has to
// fit.
type watcher struct {
	of     kind
	client *ask.Client
	tally  *load.Tally

	mu      sync.Mutex
	objects map[string]string
}

func (w *watcher) name() string { return "a pager and watcher, of " + w.of.Plural }
func (w *watcher) kind() kind   { return w.of }

func (w *watcher) state() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.objects)
}

func (w *watcher) run(ctx context.Context) {
	for {
		// However a watch ends, there is a new list.
		err := w.once(ctx)
		if errors.As(err, new(poll.Wrong)) {
			w.tally.Wrong("%s: %v", w.name(), err)
		}
		if errors.As(err, new(brokenOff)) && ctx.Err() == nil {
			w.tally.BrokeOff(err)
		}
		if !poll.Pause(ctx, 10*pollEvery) {
			return
		}
	}
}

func (w *watcher) once(ctx context.Context) error {
	objects, revision, err := w.list(ctx)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.objects = versions(objects)
	w.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	target := w.of.Path("") + "?allowWatchBookmarks=true&resourceVersion=" + strconv.FormatUint(revision, 10) + "&watch=true"
	resp, err := w.client.Open(ctx, http.MethodGet, target, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	for events := json.NewDecoder(resp.Body); ; {
		var e watched
		if err := events.Decode(&e); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return brokenOff{err}
		}
		if revision, err = w.take(e, revision); err != nil {
			return err
		}
	}
}

// brokenOff is how a watch ended that did not end in order: behind an event, with the end of the
// body.
type brokenOff struct{ error }

// watched is an event.
type watched struct {
	Type   string
	Object struct {
		Metadata ask.Identity
		Message  string
	}
}

// list reads all pages. Their first is the newest state, for the others listproxy may know it.
func (w *watcher) list(ctx context.Context) (objects []ask.Identity, revision uint64, err error) {
	target := w.of.Path("") + "?limit=" + strconv.Itoa(pageSize)
	for {
		a, err := w.client.Do(ctx, http.MethodGet, target, nil)
		if err != nil {
			return nil, 0, err
		}
		l, err := ask.ReadList(ask.JSON, a.Body)
		if err != nil {
			return nil, 0, poll.Wrong(fmt.Sprintf("%v: %s", err, a))
		}
		if revision != 0 && l.Revision != revision {
			return nil, 0, poll.Wrong(fmt.Sprintf("a page of revision %d after one of %d", l.Revision, revision))
		}
		objects, revision = append(objects, l.Objects...), l.Revision
		if l.Next == "" {
			return objects, revision, nil
		}
		target = w.of.Path("") + "?" + ask.NextPage(pageSize, l.Next)
	}
}

// take changes the state by an event, which must fit to it, and returns the event's revision.
func (w *watcher) take(e watched, last uint64) (uint64, error) {
	if e.Type == string(watch.Error) {
		return last, errors.New(e.Object.Message)
	}
	o := e.Object.Metadata
	revision, err := strconv.ParseUint(o.ResourceVersion, 10, 64)
	if err != nil {
		return last, err
	}
	if e.Type == string(watch.Bookmark) {
		return max(revision, last), nil
	}
	key := o.Namespace + "/" + o.Name
	w.mu.Lock()
	defer w.mu.Unlock()
	before, known := w.objects[key]
	switch {
	case revision <= last:
		return last, poll.Wrong(fmt.Sprintf("%s of %s at revision %d comes after %d", e.Type, key, revision, last))
	case known != (e.Type != string(watch.Added)):
		return last, poll.Wrong(fmt.Sprintf("%s of %s at revision %d, of which was known: %q", e.Type, key, revision, before))
	case e.Type == string(watch.Deleted):
		delete(w.objects, key)
	default:
		maps.Copy(w.objects, versions([]ask.Identity{o}))
	}
	return revision, nil
}
