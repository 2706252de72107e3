package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/logbuffer"
	"github.com/listproxy/listproxy/test/proxytest"
)

const rbacPath = "/apis/rbac.authorization.k8s.io/v1/"

// rbacObject is the metadata of an RBAC object.
func rbacObject(revision int) string {
	return fmt.Sprintf(`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"0","resourceVersion":"%d"}}`, revision)
}

var rbacResources = []string{"clusterroles", "clusterrolebindings", "roles", "rolebindings"}

// newFakeRBAC is an API server with an object of each RBAC resource.
func newFakeRBAC() *proxytest.FakeAPI {
	f := proxytest.NewFakeAPI()
	for _, resource := range rbacResources {
		f.Collections[rbacPath+resource] = &proxytest.FakeCollection{
			Kind: "PartialObjectMetadataList", Objects: []string{rbacObject(1)},
		}
	}
	return f
}

// watchRBAC runs WatchRBAC in the bubble and counts its flushes.
func watchRBAC(t *testing.T, f *proxytest.FakeAPI, log *slog.Logger) *atomic.Int32 {
	t.Helper()
	var flushes atomic.Int32
	proxytest.RunInBubble(t, func(ctx context.Context) {
		if err := WatchRBAC(ctx, f.Config(), func() { flushes.Add(1) }, log); err != nil {
			t.Errorf("WatchRBAC: %v", err)
		}
	})
	return &flushes
}

// TestRBACChangesFlush at once, and once more when an authorizer that lags has heard of them. A bookmark is
// no change.
func TestRBACChangesFlush(t *testing.T) {
	for _, resource := range rbacResources {
		for kind, want := range map[string][]int32{"MODIFIED": {1, 1, 2, 2}, "DELETED": {1, 1, 2, 2}, "BOOKMARK": {0, 0, 0, 0}} {
			proxytest.Bubble(t, resource+" "+kind, func(t *testing.T) {
				f := newFakeRBAC()
				flushes := watchRBAC(t, f, proxytest.DiscardLog())
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

func TestRBACLateFlushesAreCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRBAC()
		flushes := watchRBAC(t, f, proxytest.DiscardLog())
		time.Sleep(time.Minute)
		flushes.Store(0)
		for n := range 100 {
			f.Event(rbacPath+rbacResources[n%len(rbacResources)], "MODIFIED", rbacObject(n+2))
			time.Sleep(time.Millisecond)
		}
		expect.Same(t, int32(100), flushes.Load())
		time.Sleep(time.Hour)
		expect.Same(t, int32(101), flushes.Load())
	})
}

func TestRBACNotPermitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRBAC()
		for _, resource := range rbacResources {
			f.Answer(http.StatusForbidden, "watch "+rbacPath+resource, "list "+rbacPath+resource)
		}
		var logged logbuffer.Buffer
		flushes := watchRBAC(t, f, slog.New(slog.NewTextHandler(&logged, nil)))
		time.Sleep(time.Hour)
		if got := strings.Count(logged.String(), "\n"); got != 1 || !strings.Contains(logged.String(), "level=WARN") {
			t.Errorf("want one line, got:\n%s", logged.String())
		}
		// Eight or nine times in the first five minutes, at doubling distances, then once in five.
		if got := f.Asked("list " + rbacPath + "roles"); got < 17 || got > 21 {
			t.Errorf("asked %d times in an hour, want less and less often, down to once in five minutes", got)
		}
		expect.Same(t, int32(0), flushes.Load())

		for _, resource := range rbacResources {
			f.Answer(0, "watch "+rbacPath+resource, "list "+rbacPath+resource)
		}
		time.Sleep(2 * refusedRetry)
		flushes.Store(0)
		f.Event(rbacPath+"roles", "MODIFIED", rbacObject(2))
		expect.Same(t, int32(1), flushes.Load())
	})
}

func TestRBACOfABadConfiguration(t *testing.T) {
	cfg := &rest.Config{Host: "https://upstream.example", TLSClientConfig: rest.TLSClientConfig{CAFile: t.TempDir() + "/none"}}
	if err := WatchRBAC(t.Context(), cfg, func() {}, proxytest.DiscardLog()); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want an error about the configuration", err)
	}
}
