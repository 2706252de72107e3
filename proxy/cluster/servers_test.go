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

// serverLease returns the Lease of an API server, written at a revision.
func serverLease(name, holder string, revision int) string {
	return fmt.Sprintf(`{"kind":"Lease","apiVersion":"coordination.k8s.io/v1",`+
		`"metadata":{"name":%q,"namespace":"kube-system","resourceVersion":"%d"},"spec":{"holderIdentity":%q}}`, name, revision, holder)
}

// newFakeServers returns an upstream of two API servers.
func newFakeServers() *proxytest.FakeAPI {
	f := proxytest.NewFakeAPI()
	f.Collections[leasesPath] = &proxytest.FakeCollection{Kind: "LeaseList", APIVersion: "coordination.k8s.io/v1", Objects: []string{
		serverLease("one", "one_1", 1), serverLease("two", "two_1", 1),
	}}
	f.SetDocument("/version", proxytest.VersionOf("v1.36.3"))
	return f
}

// runServers runs the monitor of f's servers in the bubble until it is ready. It returns what the monitor reports, and the
// monitor.
func runServers(t *testing.T, f *proxytest.FakeAPI) (*recorder, *serverMonitor) {
	t.Helper()
	recorded := &recorder{}
	from, err := newAPI(f.Config())
	expect.NoError(t, err)
	s, err := newServerMonitor(f.Config(), from, proxytest.DiscardLog(), recorded.record)
	expect.NoError(t, err)
	proxytest.RunInBubble(t, s.run)
	if !s.leases.ready() {
		t.Error("the monitor is not ready once its first list of Leases is answered or forbidden")
	}
	return recorded, s
}

// TestServersShowThePast: after a watch broke off, the history up to a revision is known to be unchanged ("same") once an API
// server that already ran when the watch was last current has written its Lease at that revision or later. "retry" says that
// asking again can help.
func TestServersShowThePast(t *testing.T) {
	const revision = 100 // up to which the timeline is in question
	const uptime = 10 * time.Minute
	for name, tt := range map[string]struct {
		version             string        // of the servers; "": one whose servers name a new holder at each start
		lease               string        // the Lease that server "one" writes after the break; "": none
		current             time.Duration // from the start until the watch was last current
		refused             bool          // the Leases may not be read any more
		wantSame, wantRetry bool
	}{
		"no server has written its Lease": {current: uptime, wantRetry: true},
		"a server has renewed its Lease": {
			lease: serverLease("one", "one_1", revision), current: uptime, wantSame: true, wantRetry: true,
		},
		"a server has renewed its Lease before the revision": {
			lease: serverLease("one", "one_1", revision-1), current: uptime, wantRetry: true,
		},
		"the server has started again": {lease: serverLease("one", "one_2", revision), current: uptime},
		"the server was known for too short a time": {
			lease: serverLease("one", "one_1", revision), current: minHolderAge - time.Second,
		},
		"a version whose servers keep their holder": {
			version: "v1.34.9", lease: serverLease("one", "one_1", revision), current: uptime,
		},
		"the Leases may not be read any more": {lease: serverLease("one", "one_1", revision), current: uptime, refused: true},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			f := newFakeServers()
			f.Collections[leasesPath].Objects = []string{serverLease("one", "one_1", 1)}
			f.SetDocument("/version", proxytest.VersionOf(cmp.Or(tt.version, "v1.36.3-gke.1")))
			begun := time.Now()
			_, s := runServers(t, f)
			time.Sleep(uptime)
			if tt.lease != "" {
				f.SetObjects(leasesPath, tt.lease)
			}
			if tt.refused {
				f.SetStatus(http.StatusForbidden, "list "+leasesPath)
			}
			same, retry := s.sameTimeline(t.Context(), revision, begun.Add(tt.current))
			if same != tt.wantSame || retry != tt.wantRetry {
				t.Errorf("got same %t and retry %t, want %t and %t", same, retry, tt.wantSame, tt.wantRetry)
			}
		})
	}
}

// TestServersTellOfLeases: the monitor reports a new holder of a Lease, a new Lease, and a Lease that is deleted; not a renewal.
func TestServersTellOfLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServers()
		recorded, _ := runServers(t, f)
		recorded.expectNothing(t, "the first list")
		f.Event(leasesPath, "MODIFIED", serverLease("one", "one_1", 2))
		time.Sleep(time.Hour)
		recorded.expectNothing(t, "a renewal")
		f.Event(leasesPath, "MODIFIED", serverLease("one", "one_2", 3))
		recorded.expect(t, "a new holder", "an API server has started: kube-system/one")
		f.Event(leasesPath, "ADDED", serverLease("three", "three_1", 4))
		recorded.expect(t, "a new Lease", "an API server has started: kube-system/three")
		f.Event(leasesPath, "DELETED", serverLease("two", "two_1", 5))
		recorded.expect(t, "a Lease is deleted", "an API server has gone: kube-system/two")
	})
}

// TestServersTellOfVersions: the monitor reports a change of the version that /version answers, once, also where Leases may not be
// read. No answer, or one without a version, is no change.
func TestServersTellOfVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServers()
		f.SetStatus(http.StatusForbidden, "list "+leasesPath, "watch "+leasesPath)
		recorded, _ := runServers(t, f)
		time.Sleep(time.Hour)
		recorded.expectNothing(t, "no change")
		most := int(time.Hour/versionInterval) + 1
		least := most * 4 / 5 // pauses are up to a fifth longer
		if got := f.CountRequests("get /version"); got < least || got > most {
			t.Errorf("/version was read %d times in an hour, want %d to %d", got, least, most)
		}

		f.SetDocument("/version", proxytest.VersionOf("v1.37.0"))
		time.Sleep(2 * versionInterval)
		recorded.expect(t, "an upgrade", "version v1.37.0 answers")
		f.SetStatus(http.StatusServiceUnavailable, "get /version")
		time.Sleep(time.Hour)
		f.SetStatus(usualAnswers, "get /version")
		f.SetDocument("/version", `<html>`)
		time.Sleep(time.Hour)
		f.SetDocument("/version", proxytest.VersionOf("v1.37.0"))
		time.Sleep(time.Hour)
		recorded.expectNothing(t, "no answer, no version, and the same again")
	})
}

// TestVersionTracker: add reports another version once while servers of both versions answer in turn, and again when only one
// has answered for minChangeInterval.
func TestVersionTracker(t *testing.T) {
	old, fresh := version.Info{GitVersion: "v1.36.3"}, version.Info{GitVersion: "v1.37.0"}
	var v versionTracker
	now := time.Unix(1e9, 0)
	for _, step := range []struct {
		name     string
		after    time.Duration
		answered version.Info
		want     bool
	}{
		{name: "the first", answered: old},
		{name: "the same version", after: versionInterval, answered: old},
		{name: "another version", after: versionInterval, answered: fresh, want: true},
		{name: "old, in turn", after: versionInterval, answered: old},
		{name: "fresh, in turn", after: versionInterval, answered: fresh},
		{name: "fresh only, for long", after: time.Hour, answered: fresh, want: true},
		{name: "fresh only, for longer", after: time.Hour, answered: fresh},
		{name: "old again", after: versionInterval, answered: old, want: true},
		{name: "fresh again, in turn", after: versionInterval, answered: fresh},
		{name: "fresh, after minChangeInterval of turns", after: minChangeInterval - versionInterval, answered: fresh, want: true},
		{name: "fresh only, for good", after: time.Hour, answered: fresh},
	} {
		now = now.Add(step.after)
		if got := v.add(step.answered, now); got != step.want {
			t.Errorf("%s: got %t, want %t", step.name, got, step.want)
		}
	}
}

// storageVersion returns the StorageVersion of a resource. common is the version in which all API servers write the resource,
// and agree the status of the condition that they agree. Each is "" if there is none.
func storageVersion(name, common, agree string) string {
	conditions := `{"type":"Other","status":"False"}`
	if agree != "" {
		conditions += fmt.Sprintf(`,{"type":"AllEncodingVersionsEqual","status":%q}`, agree)
	}
	return fmt.Sprintf(`{"kind":"StorageVersion","apiVersion":"internal.apiserver.k8s.io/v1alpha1","metadata":{"name":%q,"resourceVersion":"1"},`+
		`"spec":{},"status":{"commonEncodingVersion":%q,"conditions":[%s]}}`, name, common, conditions)
}

// TestStorageVersions: lists of a resource are forwarded while the API servers disagree on its version, from the first
// list on. When they agree again, or its StorageVersion is gone, the resource is verified.
func TestStorageVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(t)
		f.Collections[storageVersionsPath] = &proxytest.FakeCollection{Kind: "StorageVersionList", APIVersion: "internal.apiserver.k8s.io/v1alpha1", Objects: []string{
			storageVersion("core.pods", "v1", "True"),
			storageVersion("apps.deployments", "", "False"),
			storageVersion("example.com.widgets", "", ""),
			storageVersion("batch.cronjobs", "batch/v1", ""), // agreed: a common version, and no condition
		}}
		verified := &recorder{}
		c := runCluster(t, f, Config{
			Invalidate: func(snapshot.Invalidation) {},
			Verify:     func(scope snapshot.Scope, _ string) { verified.record(scope.String()) },
		})
		differ := notFound(reason.Upstream) // the API servers disagree
		expectStep := func(step string, pods, deployments, widgets found, wantVerified ...string) {
			t.Helper()
			verified.expect(t, step, wantVerified...)
			expectLookup(t, c, "core v1 pods", pods)
			expectLookup(t, c, "apps v1 deployments", deployments)
			expectLookup(t, c, "example.com v1 widgets", widgets)
		}
		event := func(kind, object string) { f.Event(storageVersionsPath, kind, object) }
		expectStep("at the start", foundNamespaced, differ, differ)
		event("MODIFIED", storageVersion("apps.deployments", "apps/v1", "True"))
		event("MODIFIED", storageVersion("core.pods", "v2", "True")) // from one agreed version to another, which is no news
		expectStep("deployments agree", foundNamespaced, foundNamespaced, differ, "deployments.apps")
		event("DELETED", storageVersion("example.com.widgets", "", ""))
		event("DELETED", storageVersion("batch.cronjobs", "batch/v1", ""))
		expectStep("two are gone", foundNamespaced, foundNamespaced, foundCustom, "widgets.example.com")
		event("MODIFIED", storageVersion("core.pods", "", "False"))
		expectStep("pods differ", differ, foundNamespaced, foundCustom)
		f.SetStatus(http.StatusServiceUnavailable, "list "+storageVersionsPath, "watch "+storageVersionsPath)
		f.Cut(storageVersionsPath)
		time.Sleep(time.Hour)
		expectStep("the API server does not answer", differ, foundNamespaced, foundCustom)
	})
}
