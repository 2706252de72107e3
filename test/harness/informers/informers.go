// Package informers has clients and informers of each kind that client-go knows, for tests that put
// them side by side.
package informers

import (
	"context"
	"errors"

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

	"github.com/listproxy/listproxy/test/harness/ask"
)

// Clients are those of one configuration. The typed one asks for protobuf.
type Clients struct {
	Typed    kubernetes.Interface
	Dynamic  dynamic.Interface
	Metadata metadata.Interface
}

// NewClients makes them.
func NewClients(cfg *rest.Config) (Clients, error) {
	binary := rest.CopyConfig(cfg)
	binary.ContentType, binary.AcceptContentTypes = ask.Protobuf, ask.Protobuf+","+ask.JSON
	typed, err1 := kubernetes.NewForConfig(binary)
	untyped, err2 := dynamic.NewForConfig(cfg)
	partial, err3 := metadata.NewForConfig(cfg)
	return Clients{typed, untyped, partial}, errors.Join(err1, err2, err3)
}

// Lister lists and watches a resource as one of the clients does.
type Lister struct {
	list    func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch   func(context.Context, metav1.ListOptions) (watch.Interface, error)
	example runtime.Object
}

// Listers returns those of a resource by client: "dynamic", "metadata" and, of pods, "typed".
func (c Clients) Listers(r schema.GroupVersionResource) map[string]Lister {
	untyped, partial := c.Dynamic.Resource(r), c.Metadata.Resource(r)
	all := map[string]Lister{
		"dynamic":  {lists(untyped.List), untyped.Watch, &unstructured.Unstructured{}},
		"metadata": {lists(partial.List), partial.Watch, &metav1.PartialObjectMetadata{}},
	}
	if r == corev1.SchemeGroupVersion.WithResource("pods") {
		pods := c.Typed.CoreV1().Pods("")
		all["typed"] = Lister{lists(pods.List), pods.Watch, &corev1.Pod{}}
	}
	return all
}

// lists hides the type of a list.
func lists[L runtime.Object](f func(context.Context, metav1.ListOptions) (L, error)) func(context.Context, metav1.ListOptions) (runtime.Object, error) {
	return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return f(ctx, o) }
}

// paginated is a source that says it knows no streaming lists, as those of old do.
type paginated struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is asked by client-go.
func (paginated) IsWatchListSemanticsUnSupported() bool { return true }

// Informer returns an informer of what a selector chooses, which begins with a streaming list, or with
// pages.
func (l Lister) Informer(pages bool, labels string) cache.SharedIndexInformer {
	var from cache.ListerWatcher
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = labels
			return l.list(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = labels
			return l.watch(ctx, o)
		},
	}
	if from = source; pages {
		from = paginated{source}
	}
	return cache.NewSharedIndexInformer(from, l.example, 0, cache.Indexers{})
}

// Start runs an informer until ctx ends. That connections break is no news.
func Start(ctx context.Context, informer cache.SharedIndexInformer) error {
	if err := informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err != nil {
		return err
	}
	go informer.RunWithContext(logr.NewContext(ctx, logr.Discard()))
	return nil
}

// Stored returns what an informer knows, by namespace/name.
func Stored(informer cache.SharedIndexInformer) map[string]runtime.Object {
	objects := map[string]runtime.Object{}
	for _, item := range informer.GetStore().List() {
		o, ok := item.(runtime.Object)
		if m, err := meta.Accessor(item); ok && err == nil {
			objects[m.GetNamespace()+"/"+m.GetName()] = o
		}
	}
	return objects
}
