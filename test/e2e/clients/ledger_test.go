package clients

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	retry "k8s.io/client-go/tools/watch"
)

// ledger is all that happened to one resource, as a watch from the API server told it. Safe for
// concurrent use.
type ledger struct {
	mu     sync.Mutex
	begin  map[string]*unstructured.Unstructured
	events []event
	newest uint64
	err    error
}

type event struct {
	revision uint64
	key      string
	object   *unstructured.Unstructured // nil: deleted
}

// filter chooses objects as selectors do.
type filter struct {
	labels string
	// field is the path of a string and the value that it must have.
	field []string
	value string
}

func (f filter) fieldSelector() string {
	if f.field == nil {
		return ""
	}
	return f.field[0] + "." + f.field[1] + "=" + f.value
}

func (f filter) matches(o *unstructured.Unstructured) bool {
	selector, err := labels.Parse(f.labels)
	if err != nil || !selector.Matches(labels.Set(o.GetLabels())) {
		return false
	}
	if f.field == nil {
		return true
	}
	value, _, err := unstructured.NestedString(o.Object, f.field...)
	return err == nil && value == f.value
}

// state of objects: their revisions by key.
type state map[string]string

// startLedger begins a ledger; it goes on until ctx ends.
func startLedger(ctx context.Context, r schema.GroupVersionResource) (*ledger, error) {
	client := direct.Dynamic.Resource(r)
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	l := &ledger{begin: map[string]*unstructured.Unstructured{}}
	if l.newest, err = strconv.ParseUint(list.GetResourceVersion(), 10, 64); err != nil {
		return nil, err
	}
	for i := range list.Items {
		l.begin[keyOf(&list.Items[i])] = &list.Items[i]
	}
	// kube-apiserver may end any watch: what is behind, first of all. Such a one goes on where it was.
	w, err := retry.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return client.Watch(ctx, o) },
	})
	if err != nil {
		return nil, err
	}
	go func() {
		defer w.Stop()
		for e := range w.ResultChan() {
			l.add(e)
		}
		if ctx.Err() == nil {
			l.fail(fmt.Errorf("the ledger's watch of %s ended", r.Resource))
		}
	}()
	return l, nil
}

// fail notes the first error, which is why there is another.
func (l *ledger) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
}

func (l *ledger) add(e watch.Event) {
	o, ok := e.Object.(*unstructured.Unstructured)
	if !ok || e.Type == watch.Error {
		l.fail(fmt.Errorf("the ledger's watch: %v", e.Object))
		return
	}
	revision, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		l.fail(err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.newest = revision
	switch e.Type {
	case watch.Deleted:
		l.events = append(l.events, event{revision, keyOf(o), nil})
	case watch.Added, watch.Modified:
		l.events = append(l.events, event{revision, keyOf(o), o})
	}
}

// now is the newest revision that the ledger has.
func (l *ledger) now() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newest
}

// at returns the state at a revision that the ledger has passed.
func (l *ledger) at(revision uint64, f filter) (state, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, l.err
	}
	objects := maps.Clone(l.begin)
	for _, e := range l.events {
		switch {
		case e.revision > revision:
		case e.object == nil:
			delete(objects, e.key)
		default:
			objects[e.key] = e.object
		}
	}
	s := state{}
	for key, o := range objects {
		if f.matches(o) {
			s[key] = o.GetResourceVersion()
		}
	}
	return s, nil
}

func keyOf(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }
