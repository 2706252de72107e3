package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// authorizerLag is how long after a change of an RBAC object the API servers may still decide by
// the old state: their authorizers read through informers of their own.
const authorizerLag = time.Second

// WatchRBAC calls flush whenever an object that kube-apiserver's RBAC authorizer reads has changed, at
// once and again when that authorizer must have seen it, too. It asks for metadata only, and runs
// until ctx ends; the error is about cfg.
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
	// While changes keep coming, the call for each one also serves as the second call for those before
	// it.
	again := time.AfterFunc(authorizerLag, flush)
	again.Stop() // nothing has changed yet
	defer again.Stop()
	var streams sync.WaitGroup
	for _, resource := range []string{"clusterroles", "clusterrolebindings", "roles", "rolebindings"} {
		r := &reflector[string]{
			resource: resource,
			source: listWatchOf(client.Resource(schema.GroupVersionResource{
				Group: "rbac.authorization.k8s.io", Version: "v1", Resource: resource,
			})),
			read: readRevision,
			changed: func(c change[string]) {
				if c.first {
					return
				}
				flush()
				again.Reset(authorizerLag)
			},
			log: log,
		}
		if resource == "clusterroles" { // whoever may not watch these may not watch the others
			r.refusal = "RBAC objects may not be watched: decisions live for their whole TTL, also after a revocation"
			r.grant = "list and watch on all resources of rbac.authorization.k8s.io"
		}
		streams.Go(func() { r.run(ctx) })
	}
	streams.Wait()
	return nil
}

func readRevision(o runtime.Object) (string, error) {
	m, err := meta.Accessor(o)
	if err != nil {
		return "", err
	}
	return string(m.GetUID()) + " " + m.GetResourceVersion(), nil
}
