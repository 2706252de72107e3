package cluster

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

const rbacPath = "/apis/rbac.authorization.k8s.io/v1/"

// rbacObject is the metadata of an RBAC object.
func rbacObject(revision int) string {
	return fmt.Sprintf(`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"0","resourceVersion":"%d"}}`, revision)
}

var rbacResources = []string{"clusterroles", "clusterrolebindings", "roles", "rolebindings"}

// watchRBAC runs WatchRBAC in the bubble, before an API server with an object of each RBAC resource. It counts
// the flushes.
func watchRBAC(t *testing.T) (*proxytest.FakeAPI, *atomic.Int32) {
	t.Helper()
	f := proxytest.NewFakeAPI()
	for _, resource := range rbacResources {
		f.Collections[rbacPath+resource] = &proxytest.FakeCollection{Kind: "PartialObjectMetadataList", Objects: []string{rbacObject(1)}}
	}
	var flushes atomic.Int32
	proxytest.RunInBubble(t, func(ctx context.Context) {
		if err := WatchRBAC(ctx, f.Config(), func() { flushes.Add(1) }, proxytest.DiscardLog()); err != nil {
			t.Errorf("WatchRBAC: %v", err)
		}
	})
	return f, &flushes
}

// TestRBACChangesFlush at once, and once more when an authorizer that lags has heard of them. A bookmark is
// no change.
func TestRBACChangesFlush(t *testing.T) {
	for _, resource := range rbacResources {
		for kind, want := range map[string][]int32{"MODIFIED": {1, 1, 2, 2}, "DELETED": {1, 1, 2, 2}, "BOOKMARK": {0, 0, 0, 0}} {
			proxytest.Bubble(t, resource+" "+kind, func(t *testing.T) {
				f, flushes := watchRBAC(t)
				time.Sleep(time.Minute)
				flushes.Store(0)
				f.Event(rbacPath+resource, kind, rbacObject(2))
				var got []int32
				for _, after := range []time.Duration{0, authorizerLag - time.Nanosecond, time.Nanosecond, time.Hour} {
					time.Sleep(after)
					synctest.Wait()
					got = append(got, flushes.Load())
				}
				expect.Same(t, want, got)
			})
		}
	}
}

// TestRBACLateFlushesAreCoalesced: after many changes there is one more flush.
func TestRBACLateFlushesAreCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, flushes := watchRBAC(t)
		time.Sleep(time.Minute)
		flushes.Store(0)
		for n := range 100 {
			f.Event(rbacPath+rbacResources[n%len(rbacResources)], "MODIFIED", rbacObject(n+2))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Hour)
		expect.Same(t, int32(100+1), flushes.Load())
	})
}
