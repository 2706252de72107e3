package clients

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// lister lists and watches as one of client-go's clients does.
type lister struct {
	client  string // typed, dynamic or metadata
	example runtime.Object
	list    func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch   func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// listers returns the clients of a side that can list a resource.
func (s *side) listers(r schema.GroupVersionResource) []lister {
	untyped, partial := s.dynamic.Resource(r), s.metadata.Resource(r)
	all := []lister{
		{"dynamic", &unstructured.Unstructured{}, lists(untyped.List), untyped.Watch},
		{"metadata", &metav1.PartialObjectMetadata{}, lists(partial.List), partial.Watch},
	}
	switch r {
	case pods:
		client := s.typed.CoreV1().Pods("")
		all = append(all, lister{"typed", &corev1.Pod{}, lists(client.List), client.Watch})
	case configMaps:
		client := s.typed.CoreV1().ConfigMaps("")
		all = append(all, lister{"typed", &corev1.ConfigMap{}, lists(client.List), client.Watch})
	}
	return all
}

// lists hides the type of a list.
func lists[L runtime.Object](f func(context.Context, metav1.ListOptions) (L, error)) func(context.Context, metav1.ListOptions) (runtime.Object, error) {
	return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return f(ctx, o) }
}

// pages is a source that says it knows no streaming lists, as those of old do.
type pages struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is asked by client-go.
func (pages) IsWatchListSemanticsUnSupported() bool { return true }

// followed is an informer, and what it is of.
type followed struct {
	name     string
	resource schema.GroupVersionResource
	filter   filter
	lister   lister
	informer cache.SharedIndexInformer
}

// filters of a resource; the first takes all.
func filters(r schema.GroupVersionResource) map[string]filter {
	all := map[string]filter{"all": {}, "labels": {labels: "tier in (web,db),tier!=db"}}
	switch r {
	case pods:
		all["fields"] = filter{field: []string{"spec", "nodeName"}, value: "node-1"}
		all["both"] = filter{labels: "tier", field: []string{"status", "phase"}, value: "Running"}
	case gadgets:
		all["fields"] = filter{field: []string{"spec", "color"}, value: "red"}
	}
	return all
}

// follow returns informers of every kind; streaming ones and such as read pages.
func (s *side) follow() map[string]followed {
	all := map[string]followed{}
	for _, r := range changing {
		for filtered, f := range filters(r) {
			for _, l := range s.listers(r) {
				for _, streams := range []bool{true, false} {
					source := &cache.ListWatch{
						ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
							o.LabelSelector, o.FieldSelector = f.labels, f.fieldSelector()
							return l.list(ctx, o)
						},
						WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
							o.LabelSelector, o.FieldSelector = f.labels, f.fieldSelector()
							return l.watch(ctx, o)
						},
					}
					name, from := r.Resource+" "+l.client+" "+filtered, cache.ListerWatcher(source)
					if !streams {
						name, from = name+" with pages", pages{source}
					}
					all[name] = followed{name, r, f, l, cache.NewSharedIndexInformer(from, l.example, 0, cache.Indexers{})}
				}
			}
		}
	}
	return all
}

// breakable returns a side whose connections a test can break, and what does so.
func breakable(t *testing.T, s *side) (*side, *breaker) {
	t.Helper()
	h, err := hop.Start(s.config.Host, s.config.CAData)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	b := &breaker{hop: h}
	h.OnRequest(b.intercept)
	config := *s.config
	config.Host, config.CAData, config.CAFile = h.URL(), h.CA(), ""
	through, err := newSide(s.name, &config)
	if err != nil {
		t.Fatal(err)
	}
	return through, b
}

// breaker breaks connections, and says of some watches that their revision is gone: then informers
// list again.
type breaker struct {
	hop    *hop.Hop
	expire atomic.Int64 // so many watches
	cuts   int
	gone   atomic.Int64
	lists  atomic.Int64 // lists that have passed
	stream atomic.Int64 // streaming ones
}

func (b *breaker) intercept(w http.ResponseWriter, r *http.Request) bool {
	query := r.URL.Query()
	switch {
	case query.Get("watch") == "":
		b.lists.Add(1)
		return false
	case query.Get("sendInitialEvents") == "true":
		b.stream.Add(1)
		return false
	case b.expire.Add(-1) < 0:
		return false
	}
	b.gone.Add(1)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusGone)
	_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"gone","reason":"Expired","code":410}`))
	return true
}

// run breaks until ctx ends.
func (b *breaker) run(ctx context.Context, every time.Duration) {
	for poll.Pause(ctx, every) {
		b.expire.Store(int64(10 + 10*(b.cuts%3)))
		b.hop.CutAll()
		b.cuts++
	}
}

// start starts informers and waits until they know something.
func start(ctx context.Context, t *testing.T, all map[string]followed) {
	t.Helper()
	var synced []cache.InformerSynced
	for _, f := range all {
		// Broken connections are no news here.
		if err := f.informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err != nil {
			t.Fatal(err)
		}
		go f.informer.RunWithContext(logr.NewContext(ctx, logr.Discard()))
		synced = append(synced, f.informer.HasSynced)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		t.Fatal("the informers did not start")
	}
}

// check demands that an informer comes to know what the API server has, and knows it the same way
// as a fresh list tells it.
func (f followed) check(t *testing.T, side string, fresh *side) map[string]runtime.Object {
	t.Helper()
	var list runtime.Object
	for _, l := range fresh.listers(f.resource) {
		if l.client == f.lister.client {
			var err error
			list, err = l.list(t.Context(), metav1.ListOptions{LabelSelector: f.filter.labels, FieldSelector: f.filter.fieldSelector()})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	want := map[string]runtime.Object{}
	if err := meta.EachListItem(list, func(o runtime.Object) error {
		accessor, err := meta.Accessor(o)
		if err == nil {
			want[keyOf(accessor)] = o
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var got map[string]runtime.Object
	if !poll.Came(t, patience, func() bool {
		got = stored(f.informer)
		return cmp.Equal(revisions(got), revisions(want))
	}) {
		t.Errorf("%s, %s: (-API server +informer)\n%s", f.name, side, cmp.Diff(revisions(want), revisions(got)))
		return got
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s, %s: (-API server +informer)\n%s", f.name, side, d)
	}
	return got
}

func stored(informer cache.SharedIndexInformer) map[string]runtime.Object {
	objects := map[string]runtime.Object{}
	for _, item := range informer.GetStore().List() {
		o, ok := item.(runtime.Object)
		if accessor, err := meta.Accessor(item); ok && err == nil {
			objects[keyOf(accessor)] = o
		}
	}
	return objects
}

func revisions(objects map[string]runtime.Object) state {
	s := state{}
	for key, o := range objects {
		accessor, err := meta.Accessor(o)
		if err != nil {
			s[key] = err.Error()
			continue
		}
		s[key] = accessor.GetResourceVersion()
	}
	return s
}
