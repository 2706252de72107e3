// Package informers has informers by each kind of client in client-go.
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

// paginated is a source without streaming lists, as older clients have it.
type paginated struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported tells client-go's reflector not to use a streaming list.
func (paginated) IsWatchListSemanticsUnSupported() bool { return true }

// Options choose what an informer reads, and how.
type Options struct {
	// Selector is a label selector; "" selects everything.
	Selector string
	// Pages makes the informer begin with a paginated list, and not with a streaming list.
	Pages bool
}

// Client is one of client-go's kinds of clients.
type Client string

// The kinds of clients.
const (
	Dynamic   Client = "dynamic"
	Metadata  Client = "metadata"
	TypedPods Client = "typed" // of pods alone
)

// New returns an informer of a resource by a kind of client.
func New(cfg *rest.Config, client Client, resource schema.GroupVersionResource, o Options) cache.SharedIndexInformer {
	switch client {
	case Dynamic:
		return informer(dynamic.NewForConfigOrDie(cfg).Resource(resource), &unstructured.Unstructured{}, o)
	case Metadata:
		return informer(metadata.NewForConfigOrDie(cfg).Resource(resource), &metav1.PartialObjectMetadata{}, o)
	}
	return NewOfPods(cfg, o)
}

// NewOfPods returns an informer of pods by the typed client, which asks for protobuf.
func NewOfPods(cfg *rest.Config, o Options) cache.SharedIndexInformer {
	cfg = rest.CopyConfig(cfg)
	cfg.ContentType, cfg.AcceptContentTypes = ask.Protobuf, ask.Protobuf+","+ask.JSON
	return informer(kubernetes.NewForConfigOrDie(cfg).CoreV1().Pods(""), &corev1.Pod{}, o)
}

// informer returns an informer by a client, with example as the type of its objects.
func informer[L runtime.Object](client lister[L], example runtime.Object, options Options) cache.SharedIndexInformer {
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = options.Selector
			return client.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = options.Selector
			return client.Watch(ctx, o)
		},
	}
	if options.Pages {
		return cache.NewSharedIndexInformer(paginated{source}, example, 0, cache.Indexers{})
	}
	return cache.NewSharedIndexInformer(source, example, 0, cache.Indexers{})
}

// Start runs an informer until ctx ends. Errors of its connections are not logged.
func Start(ctx context.Context, informer cache.SharedIndexInformer) error {
	if err := informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err != nil {
		return err
	}
	go informer.RunWithContext(logr.NewContext(ctx, logr.Discard()))
	return nil
}

// Stored returns the objects in an informer's store.
func Stored(informer cache.SharedIndexInformer) (objects []ask.Identity) {
	for _, item := range informer.GetStore().List() {
		m, err := meta.Accessor(item)
		if err != nil {
			panic(err) // an informer has objects only
		}
		objects = append(objects, ask.IdentityOf(m))
	}
	return objects
}
