// Package informers has informers by each client that client-go has, for tests that put them side by side.
package informers

import (
	"context"

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

// lister is one of client-go's clients of a resource.
type lister[L runtime.Object] interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// paginated is a source that says it knows no streaming lists, as those of old do.
type paginated struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is asked by client-go.
func (paginated) IsWatchListSemanticsUnSupported() bool { return true }

// New returns an informer of what a selector chooses of a resource, which begins with a streaming list,
// or with pages. The client is "dynamic", "metadata" or, for pods only, "typed", which asks for protobuf.
func New(cfg *rest.Config, client string, r schema.GroupVersionResource, pages bool, labels string) cache.SharedIndexInformer {
	switch client {
	case "dynamic":
		return informer(dynamic.NewForConfigOrDie(cfg).Resource(r), &unstructured.Unstructured{}, pages, labels)
	case "metadata":
		return informer(metadata.NewForConfigOrDie(cfg).Resource(r), &metav1.PartialObjectMetadata{}, pages, labels)
	case "typed":
		cfg = rest.CopyConfig(cfg)
		cfg.ContentType, cfg.AcceptContentTypes = ask.Protobuf, ask.Protobuf+","+ask.JSON
		return informer(kubernetes.NewForConfigOrDie(cfg).CoreV1().Pods(""), &corev1.Pod{}, pages, labels)
	}
	panic("there is no client " + client)
}

func informer[L runtime.Object](of lister[L], example runtime.Object, pages bool, labels string) cache.SharedIndexInformer {
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = labels
			return of.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = labels
			return of.Watch(ctx, o)
		},
	}
	if pages {
		return cache.NewSharedIndexInformer(paginated{source}, example, 0, cache.Indexers{})
	}
	return cache.NewSharedIndexInformer(source, example, 0, cache.Indexers{})
}

// Start runs an informer until ctx ends. That connections break is no news.
func Start(ctx context.Context, informer cache.SharedIndexInformer) error {
	if err := informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err != nil {
		return err
	}
	go informer.RunWithContext(logr.NewContext(ctx, logr.Discard()))
	return nil
}

// Stored returns what an informer knows.
func Stored(informer cache.SharedIndexInformer) (objects []ask.Identity) {
	for _, item := range informer.GetStore().List() {
		if m, err := meta.Accessor(item); err == nil {
			objects = append(objects, ask.IdentityOf(m))
		}
	}
	return objects
}
