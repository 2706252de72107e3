package proxy

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const (
	// authorizerLag is how long after a change of an RBAC object the API
	// server may still decide by what was before: its authorizer reads through
	// informers of its own, and other API servers have theirs.
	authorizerLag = time.Second

	// followHealthy is how long a stream lasts that was not a failure.
	followHealthy = time.Minute
	// refusedRetry is how long a refused stream waits for someone to grant it.
	refusedRetry = 5 * time.Minute
)

// rbacResources are the objects that kube-apiserver's RBAC authorizer reads.
var rbacResources = [...]string{"roles", "rolebindings", "clusterroles", "clusterrolebindings"}

// WatchRBAC calls flush whenever an RBAC object changed, at once and again when
// the API server's own authorizer must have seen it too. It holds no objects,
// asks for their metadata only, and runs until ctx ends; the error is about cfg.
//
// It makes revocations count sooner, nothing more: what it misses (while it is
// cut off, where it is not permitted, where authorizers other than RBAC decide)
// is bounded by the TTL of the decisions. So where the proxy may not watch
// these objects, it says so once and goes on trying, seldom.
//
// flush is called from several goroutines.
func WatchRBAC(ctx context.Context, cfg *rest.Config, flush func(), log *slog.Logger) error {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = 0 // it would end the watches
	client, err := metadata.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("cannot watch RBAC objects: %w", err)
	}
	changes := newChangeStore(flush)
	defer changes.stop()

	var refused sync.Once
	var streams sync.WaitGroup
	for _, resource := range rbacResources {
		gvr := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: resource}
		f := follower{
			name:         resource,
			listWatch:    metadataListWatch(client.Resource(gvr)),
			expectedType: &metav1.PartialObjectMetadata{},
			store:        changes,
			log:          log,
			ended: func(err error) {
				if isRefused(err) {
					refused.Do(func() {
						log.InfoContext(ctx, "RBAC objects may not be watched: decisions live for their whole TTL, also after a revocation",
							"resource", gvr.GroupResource().String(), "grant", "list and watch", "error", err)
					})
				}
			},
		}
		streams.Go(func() { f.follow(ctx) })
	}
	streams.Wait()
	return nil
}

// metadataListWatch lists and watches the metadata of a resource's objects.
func metadataListWatch(objects metadata.Getter) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return objects.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return objects.Watch(ctx, options)
		},
	}
}

// changeStore is a reflector's store that keeps nothing: every mutation, a
// whole list being one, calls changed at once and again authorizerLag after
// the last of them. (While changes keep coming, each one's call does for those
// before it what the second call would have done.)
type changeStore struct {
	changed func()
	again   *time.Timer
}

func newChangeStore(changed func()) *changeStore {
	s := &changeStore{changed: changed, again: time.AfterFunc(authorizerLag, changed)}
	s.stop() // nothing has changed yet
	return s
}

func (s *changeStore) mutated() error {
	s.changed()
	s.again.Reset(authorizerLag)
	return nil
}

func (s *changeStore) stop() { s.again.Stop() }

// Add implements cache.ReflectorStore.
func (s *changeStore) Add(any) error { return s.mutated() }

// Update implements cache.ReflectorStore.
func (s *changeStore) Update(any) error { return s.mutated() }

// Delete implements cache.ReflectorStore.
func (s *changeStore) Delete(any) error { return s.mutated() }

// Replace implements cache.ReflectorStore. A list comes after a gap, in which
// anything may have changed.
func (s *changeStore) Replace([]any, string) error { return s.mutated() }

// Resync implements cache.ReflectorStore; there is nothing to do.
func (*changeStore) Resync() error { return nil }

var _ cache.ReflectorStore = (*changeStore)(nil)

// follower keeps a store up to date with a resource.
type follower struct {
	name         string
	listWatch    cache.ListerWatcher
	expectedType runtime.Object
	store        cache.ReflectorStore
	// ended is told why the stream ended, nil if it was merely too old.
	ended func(error)
	log   *slog.Logger
}

// follow runs a client-go Reflector until ctx ends. The loop around it is ours
// because the Reflector's own retries at least every minute, also what it will
// not be allowed for as long as nobody grants it.
func (f follower) follow(ctx context.Context) {
	logger := logr.FromSlogHandler(f.log.Handler())
	ctx = logr.NewContext(ctx, logger)
	reflector := cache.NewReflectorWithOptions(f.listWatch, f.expectedType, f.store,
		cache.ReflectorOptions{Logger: &logger, Name: f.name})

	backoff := newFollowBackoff()
	for ctx.Err() == nil {
		began := time.Now()
		err := reflector.ListAndWatchWithContext(ctx)
		if ctx.Err() != nil {
			return
		}
		f.ended(err)
		if time.Since(began) >= followHealthy {
			backoff = newFollowBackoff()
		}
		delay := backoff.Step()
		if isRefused(err) {
			delay = wait.Jitter(refusedRetry, 0.2)
		} else if err != nil {
			f.log.WarnContext(ctx, "The stream of "+f.name+" ended and will be opened again", "in", delay, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
	}
}

// newFollowBackoff returns delays of one second, doubled up to half a minute.
func newFollowBackoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 6, Cap: 30 * time.Second}
}

// isRefused says whether the upstream answered that this is not ours to read,
// or not there to be read: trying again soon will not change it.
func isRefused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
}
