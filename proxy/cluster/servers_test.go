package cluster

import (
	"cmp"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/version"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/test/expect"
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
	f.SetDocument("/version", proxytest.VersionOf("v1.36.3"))
	return f
}

// runServers runs servers of f in the bubble.
func runServers(t *testing.T, f *proxytest.FakeAPI) *told {
	t.Helper()
	told, _ := runServersOf(t, f)
	return told
}

func runServersOf(t *testing.T, f *proxytest.FakeAPI) (*told, *serverMonitor) {
	t.Helper()
	told := &told{}
	from, err := newAPI(f.Config())
	expect.NoError(t, err)
	s, err := newServerMonitor(f.Config(), from, proxytest.DiscardLog(), told.say)
	expect.NoError(t, err)
	proxytest.RunInBubble(t, s.run)
	if !s.leases.ready() {
		t.Error("not ready after the first list, or where Leases may not be read")
	}
	return told, s
}

// TestServersShowThePast: the timeline up to a revision is the same if an API server that was there before the break has
// written its Lease at that revision or later. One that came late, or whose version does not tell of its start, shows
// nothing.
func TestServersShowThePast(t *testing.T) {
	const known = 10 * time.Minute
	for name, tt := range map[string]struct {
		version     string
		changes     string // "one", before the Leases are asked for
		heard       time.Duration
		refused     bool
		same, retry bool
	}{
		"nothing was written since":       {heard: known, retry: true},
		"it has renewed its Lease":        {changes: serverLease("one", "one_1", 100), heard: known, same: true, retry: true},
		"it has renewed it before":        {changes: serverLease("one", "one_1", 99), heard: known, retry: true},
		"all have started again":          {changes: serverLease("one", "one_2", 100), heard: known},
		"the stream was heard too early":  {changes: serverLease("one", "one_1", 100), heard: minHolderAge - time.Second},
		"a version that keeps the holder": {version: "v1.34.9", changes: serverLease("one", "one_1", 100), heard: known},
		"Leases may not be read any more": {changes: serverLease("one", "one_1", 100), heard: known, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServers()
				f.Collections[leasesPath].Objects = []string{serverLease("one", "one_1", 1)}
				f.SetDocument("/version", proxytest.VersionOf(cmp.Or(tt.version, "v1.36.3-gke.1")))
				begun := time.Now()
				_, s := runServersOf(t, f)
				time.Sleep(known)
				if tt.changes != "" {
					f.Collections[leasesPath].Objects = []string{tt.changes}
				}
				if tt.refused {
					f.SetStatus(http.StatusForbidden, "list "+leasesPath)
				}
				same, retry := s.sameTimeline(t.Context(), 100, begun.Add(tt.heard))
				if same != tt.same || retry != tt.retry {
					t.Errorf("the same: %v, retry: %v; want %v, %v", same, retry, tt.same, tt.retry)
				}
			})
		})
	}
}

// TestServersTellOfLeases: a new holder, a new Lease and one less are told of; a renewal is not.
func TestServersTellOfLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServers()
		told := runServers(t, f)
		told.expect(t, "the first list")
		f.Event(leasesPath, "MODIFIED", serverLease("one", "one_1", 2))
		time.Sleep(time.Hour)
		told.expect(t, "a renewal")
		f.Event(leasesPath, "MODIFIED", serverLease("one", "one_2", 3))
		told.expect(t, "a new holder", "an API server has started: kube-system/one")
		f.Event(leasesPath, "ADDED", serverLease("three", "three_1", 4))
		told.expect(t, "one more", "an API server has started: kube-system/three")
		f.Event(leasesPath, "DELETED", serverLease("two", "two_1", 5))
		told.expect(t, "one less", "an API server has gone: kube-system/two")
	})
}

// TestServersTellOfVersions: also where Leases may not be read.
func TestServersTellOfVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServers()
		f.SetStatus(http.StatusForbidden, "list "+leasesPath, "watch "+leasesPath)
		told := runServers(t, f)
		time.Sleep(time.Hour)
		told.expect(t, "no change")
		if got := f.CountRequests("get /version"); got < 300 || got > 400 {
			t.Errorf("/version was asked for %d times in an hour", got)
		}

		f.SetDocument("/version", proxytest.VersionOf("v1.37.0"))
		time.Sleep(2 * versionInterval)
		told.expect(t, "an upgrade", "version v1.37.0 answers")
		f.SetStatus(http.StatusServiceUnavailable, "get /version")
		time.Sleep(time.Hour)
		f.SetStatus(0, "get /version")
		f.SetDocument("/version", `<html>`)
		time.Sleep(time.Hour)
		f.SetDocument("/version", proxytest.VersionOf("v1.37.0"))
		time.Sleep(time.Hour)
		told.expect(t, "no answer, no version, and the same again")
	})
}

// TestVersionsThatAreHeard: another version is told of once while servers of both answer in turn, and again when only
// one does for long.
func TestVersionsThatAreHeard(t *testing.T) {
	old, fresh := version.Info{GitVersion: "v1.36.3"}, version.Info{GitVersion: "v1.37.0"}
	var v versionTracker
	now := time.Unix(1e9, 0)
	for _, step := range []struct {
		name  string
		after time.Duration
		said  version.Info
		want  bool
	}{
		{name: "the first", said: old},
		{name: "the same", after: versionInterval, said: old},
		{name: "another", after: versionInterval, said: fresh, want: true},
		{name: "in turn", after: versionInterval, said: old},
		{name: "and again", after: versionInterval, said: fresh},
		{name: "only one, for long", after: time.Hour, said: fresh, want: true},
		{name: "the same, for long", after: time.Hour, said: fresh},
		{name: "back again", after: versionInterval, said: old, want: true},
		{name: "in turn", after: versionInterval, said: fresh},
		{name: "in turn, for so long", after: minChangeInterval - versionInterval, said: fresh, want: true},
		{name: "for good", after: time.Hour, said: fresh},
	} {
		now = now.Add(step.after)
		if got := v.add(step.said, now); got != step.want {
			t.Errorf("%s: %v, want %v", step.name, got, step.want)
		}
	}
}

// storageVersion is what API servers say together about a resource: in which version they write it, and what is
// the status of the condition that they agree; "" for none.
func storageVersion(name, common, agree string) string {
	conditions := `{"type":"Other","status":"False"}`
	if agree != "" {
		conditions += fmt.Sprintf(`,{"type":"AllEncodingVersionsEqual","status":%q}`, agree)
	}
	return fmt.Sprintf(`{"kind":"StorageVersion","apiVersion":"internal.apiserver.k8s.io/v1alpha1","metadata":{"name":%q,"resourceVersion":"1"},`+
		`"spec":{},"status":{"commonEncodingVersion":%q,"conditions":[%s]}}`, name, common, conditions)
}

// TestStorageVersions: lists of a resource are forwarded while the API servers disagree on its version, from the first
// list on. When they agree again, or say nothing of it any more, the resource is verified.
func TestStorageVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(t)
		f.Collections[storageVersionsPath] = &proxytest.FakeCollection{Kind: "StorageVersionList", APIVersion: "internal.apiserver.k8s.io/v1alpha1", Objects: []string{
			storageVersion("core.pods", "v1", "True"),
			storageVersion("apps.deployments", "", "False"),
			storageVersion("example.com.widgets", "", ""),
			storageVersion("batch.cronjobs", "batch/v1", ""),
		}}
		verified := &told{}
		c := runClusterWith(t, f, Config{
			Invalidate: func(snapshot.Invalidation) {},
			Verify:     func(scope snapshot.Scope, _ string) { verified.say(scope.String()) },
		})
		differ := forwardedAs(reason.Upstream)
		expectStep := func(step string, pods, deployments, widgets found, want ...string) {
			t.Helper()
			verified.expect(t, step, want...)
			expectLookup(t, c, " v1 pods", pods)
			expectLookup(t, c, "apps v1 deployments", deployments)
			expectLookup(t, c, "example.com v1 widgets", widgets)
		}
		event := func(kind, object string) { f.Event(storageVersionsPath, kind, object) }
		expectStep("at the start", foundPods, differ, differ)
		event("MODIFIED", storageVersion("apps.deployments", "apps/v1", "True"))
		event("MODIFIED", storageVersion("core.pods", "v2", "True"))
		expectStep("deployments agree", foundPods, foundDeployments, differ, "deployments.apps")
		event("DELETED", storageVersion("example.com.widgets", "", ""))
		event("DELETED", storageVersion("batch.cronjobs", "batch/v1", ""))
		expectStep("two are gone", foundPods, foundDeployments, foundWidgets, "widgets.example.com")
		event("MODIFIED", storageVersion("core.pods", "", "False"))
		expectStep("pods differ", differ, foundDeployments, foundWidgets)
		f.SetStatus(http.StatusServiceUnavailable, "list "+storageVersionsPath, "watch "+storageVersionsPath)
		f.Cut(storageVersionsPath)
		time.Sleep(time.Hour)
		expectStep("the API server does not answer", differ, foundDeployments, foundWidgets)
	})
}
