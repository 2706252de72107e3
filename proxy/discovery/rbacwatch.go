package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// authorizerLag is how long after a change of an RBAC object the API servers may still decide by
// the old state: their authorizers read through informers of their own.
const authorizerLag = time.Second

// rbacResources are the objects that kube-apiserver's RBAC authorizer reads.
var rbacResources = [...]string{"roles", "rolebindings", "clusterroles", "clusterrolebindings"}

// WatchRBAC calls flush whenever an RBAC object changed, at once and again when
// the API server's own authorizer must have seen it too. It holds no objects,
// asks for their metadata only, and runs until ctx ends; the error is about cfg.
//
// It only makes revocations take effect sooner. If it misses one (while it is cut off, if it is not
// permitted, or if other authorizers than RBAC decide), the TTL of the decisions bounds the delay.
// So if listproxy may not watch these objects, it logs that once, and tries again every few
// minutes.
//
// flush is called from several goroutines.
func WatchRBAC(ctx context.Context, cfg *rest.Config, flush func(), log *slog.Logger) error {
	client, err := clientOf(cfg, 0, metadata.NewForConfigAndClient)
	if err != nil {
		return fmt.Errorf("cannot watch RBAC objects: %w", err)
	}
	changes, stop := changeStore(flush)
	defer stop()

	var refused sync.Once
	var streams sync.WaitGroup
	for _, resource := range rbacResources {
		gvr := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: resource}
		f := follower{
			name:         resource,
			listWatch:    listWatchOf(client.Resource(gvr)),
			expectedType: &metav1.PartialObjectMetadata{},
			store:        changes, // which vouches for nothing, so it need not be heard again and again
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

// changeStore returns a store that keeps no objects: every change, a whole list being one since it
// comes after a gap, calls changed at once and again authorizerLag after the last of them. (While
// changes keep coming, the call for each one also serves as the second call for those before it.)
func changeStore(changed func()) (_ store[struct{}, *byte], stop func() bool) {
	again := time.AfterFunc(authorizerLag, changed)
	again.Stop() // nothing has changed yet
	return store[struct{}, *byte]{
		// Whatever comes is another value than before.
		read:  func(any) (of struct{}, is *byte, _ error) { return of, new(byte), nil },
		known: new(map[struct{}]*byte),
		mu:    &sync.Mutex{},
		changed: func(change[struct{}, *byte]) {
			changed()
			again.Reset(authorizerLag)
		},
	}, again.Stop
}
