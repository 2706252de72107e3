package cluster

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/logbuffer"
	"github.com/listproxy/listproxy/test/proxytest"
)

const leasesPath = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"

// serverLease is the Lease of an API server, renewed at a revision.
func serverLease(name, holder string, revision int) string {
	return fmt.Sprintf(`{"kind":"Lease","apiVersion":"coordination.k8s.io/v1",`+
		`"metadata":{"name":%q,"namespace":"kube-system","resourceVersion":"%d"},"spec":{"holderIdentity":%q}}`, name, revision, holder)
}

// newFakeServers is an upstream of two API servers.
func newFakeServers() *proxytest.FakeAPI {
	f := proxytest.NewFakeAPI()
	f.Collections[leasesPath] = &proxytest.FakeCollection{Kind: "LeaseList", APIVersion: "coordination.k8s.io/v1", Objects: []string{
		serverLease("one", "one_1", 1), serverLease("two", "two_1", 1),
	}}
	f.Document("/version", proxytest.VersionOf("v1.36.3"))
	return f
}

// runServers runs servers of f in the bubble. changes wants so many changes to be told since it was called last.
func runServers(t *testing.T, f *proxytest.FakeAPI, log *slog.Logger) (s *servers, changes func(when string, want int32)) {
	t.Helper()
	var changed atomic.Int32
	s, err := newServers(f.Config(), log, func(string) { changed.Add(1) })
	expect.NoError(t, err)
	proxytest.RunInBubble(t, s.run)
	return s, func(when string, want int32) {
		t.Helper()
		if got := changed.Swap(0); got != want {
			t.Errorf("%s: %d changes, want %d", when, got, want)
		}
	}
}

func TestServersTellOfLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServers()
		s, changes := runServers(t, f, proxytest.DiscardLog())
		if !s.leases.ready() {
			t.Error("not ready after the first list")
		}
		changes("the first list", 0)
		f.Event(leasesPath, "MODIFIED", serverLease("one", "one_1", 2))
		time.Sleep(time.Hour)
		changes("a renewal", 0)
		f.Event(leasesPath, "MODIFIED", serverLease("one", "one_2", 3))
		changes("a new holder", 1)
		f.Event(leasesPath, "ADDED", serverLease("three", "three_1", 4))
		changes("one more", 1)
		f.Event(leasesPath, "DELETED", serverLease("two", "two_1", 5))
		changes("one less", 1)
	})
}

// TestServersTellOfVersions: also where Leases may not be read.
func TestServersTellOfVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServers()
		f.Answer(http.StatusForbidden, "list "+leasesPath, "watch "+leasesPath)
		var logged logbuffer.Buffer
		s, changes := runServers(t, f, slog.New(slog.NewTextHandler(&logged, nil)))
		if !s.leases.ready() {
			t.Error("not ready")
		}
		time.Sleep(time.Hour)
		changes("no change", 0)
		if got := strings.Count(logged.String(), "\n"); got != 1 || !strings.Contains(logged.String(), "list and watch on leases.coordination.k8s.io in kube-system") {
			t.Errorf("want one line that says what to grant, got:\n%s", logged.String())
		}
		if got := f.Asked("get /version"); got < 300 || got > 400 {
			t.Errorf("/version was asked for %d times in an hour", got)
		}

		f.Document("/version", proxytest.VersionOf("v1.37.0"))
		time.Sleep(2 * versionEvery)
		changes("an upgrade", 1)
		f.Answer(http.StatusServiceUnavailable, "get /version")
		time.Sleep(time.Hour)
		f.Answer(0, "get /version")
		f.Document("/version", `<html>`)
		time.Sleep(time.Hour)
		f.Document("/version", proxytest.VersionOf("v1.37.0"))
		time.Sleep(time.Hour)
		changes("no answer, no version, and the same again", 0)
	})
}

func TestVersionsThatAreHeard(t *testing.T) {
	old, fresh := version.Info{GitVersion: "v1.36.3"}, version.Info{GitVersion: "v1.37.0"}
	var v versions
	now := time.Unix(1e9, 0)
	for _, step := range []struct {
		name  string
		after time.Duration
		said  version.Info
		want  bool
	}{
		{"the first", 0, old, false},
		{"the same", versionEvery, old, false},
		{"another", versionEvery, fresh, true},
		{"in turn", versionEvery, old, false},
		{"and again", versionEvery, fresh, false},
		{"only one, for long", time.Hour, fresh, true},
		{"the same, for long", time.Hour, fresh, false},
		{"back again", versionEvery, old, true},
		{"in turn", versionEvery, fresh, false},
		{"in turn, for so long", versionRest - versionEvery, fresh, true},
		{"for good", time.Hour, fresh, false},
	} {
		now = now.Add(step.after)
		if got := v.hear(step.said, now); got != step.want {
			t.Errorf("%s: %v, want %v", step.name, got, step.want)
		}
	}
}

const storageVersionsPath = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions"

// storageVersion is what API servers say together about a resource.
func storageVersion(name, common string) string {
	status := `{"conditions":[{"type":"AllEncodingVersionsEqual","status":"False"}]}`
	if common != "" {
		status = fmt.Sprintf(`{"commonEncodingVersion":%q,"conditions":[{"type":"AllEncodingVersionsEqual","status":"True"}]}`, common)
	}
	return storageVersionStatus(name, status)
}

func storageVersionStatus(name, status string) string {
	return fmt.Sprintf(`{"kind":"StorageVersion","apiVersion":"internal.apiserver.k8s.io/v1alpha1","metadata":{"name":%q,"resourceVersion":"1"},"spec":{},"status":%s}`, name, status)
}

// TestStorageVersions: what API servers do not agree about is not kept, from the first list on, until they
// agree or say nothing of it any more.
func TestStorageVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := proxytest.NewFakeAPI()
		f.Collections[storageVersionsPath] = &proxytest.FakeCollection{Kind: "StorageVersionList", APIVersion: "internal.apiserver.k8s.io/v1alpha1", Objects: []string{
			storageVersion("core.configmaps", "v1"),
			storageVersion("apps.deployments", ""),
			storageVersionStatus("networking.k8s.io.ingresses", `{}`),
			storageVersionStatus("batch.jobs", `{"commonEncodingVersion":"batch/v1","conditions":[{"type":"Other","status":"False"},{"type":"AllEncodingVersionsEqual","status":"False"}]}`),
			storageVersionStatus("batch.cronjobs", `{"commonEncodingVersion":"batch/v1","conditions":[{"type":"Other","status":"False"}]}`),
		}}
		told := &told{}
		runCluster(t, f, told.invalidate, proxytest.DiscardLog())
		said := func(group, resource string, disagree bool) string {
			until := snapshot.Lift()
			if disagree {
				until = snapshot.UntilLifted()
			}
			return invalidated(snapshot.Invalidation{
				Cause: snapshot.Servers, Scope: snapshot.OfResource(schema.GroupResource{Group: group, Resource: resource}), Until: until,
			})
		}
		expectTold := func(when string, want ...string) {
			t.Helper()
			slices.Sort(want)
			if diff := cmp.Diff(want, told.take()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}
		expectTold("at the start", said("apps", "deployments", true), said("networking.k8s.io", "ingresses", true), said("batch", "jobs", true))
		event := func(kind, object string) { f.Event(storageVersionsPath, kind, object) }
		event("MODIFIED", storageVersion("apps.deployments", "apps/v1"))
		event("MODIFIED", storageVersion("core.configmaps", "v2"))
		expectTold("some agree", said("apps", "deployments", false))
		event("DELETED", storageVersion("batch.jobs", ""))
		event("DELETED", storageVersion("batch.cronjobs", "batch/v1"))
		expectTold("some are gone", said("batch", "jobs", false))
		event("MODIFIED", storageVersion("core.configmaps", ""))
		expectTold("a disagreement", said("", "configmaps", true))
		f.Answer(http.StatusServiceUnavailable, "list "+storageVersionsPath, "watch "+storageVersionsPath)
		f.Cut(storageVersionsPath)
		time.Sleep(time.Hour)
		expectTold("nobody answers")
	})
}
