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
	"github.com/listproxy/listproxy/test/inmemory"
	"github.com/listproxy/listproxy/test/proxytest"
)

// Holders of the Lease "apiserver-0": since the only API server started, and after it has started again.
const firstHolder, secondHolder = "apiserver-0_1", "apiserver-0_2"

// serverLease returns the Lease of an API server.
func serverLease(name, holder string) inmemory.Object {
	return inmemory.Object{Namespace: "kube-system", Name: name, More: fmt.Sprintf(`,"spec":{"holderIdentity":%q}`, holder)}
}

// versionOf returns the answer to /version of an API server.
func versionOf(gitVersion string) string { return fmt.Sprintf(`{"gitVersion":%q}`, gitVersion) }

// everything is the scope that is verified when the API servers have changed.
var everything = fmt.Sprint(snapshot.Scope{})

// runServers runs a Cluster of upstream in the bubble, and requires that ServersReady is true. It returns the Cluster, and a
// recorder of the scopes with which the Cluster calls Verify.
func runServers(t *testing.T, upstream *inmemory.Hop) (*recorder, *Cluster) {
	t.Helper()
	recorded := &recorder{}
	c := runCluster(t, upstream, Config{Verify: func(scope snapshot.Scope) { recorded.record(fmt.Sprint(scope)) }})
	if !c.ServersReady() {
		t.Error("the Cluster is not ready once its first list of Leases is answered or forbidden")
	}
	return recorded, c
}

// TestSameTimeline: a restored etcd begins another timeline, and API servers are restarted for a restore. A watch broke off,
// and there is an API server that already ran when the watch last sent something. SameTimeline returns same for a revision if
// this server has written its Lease at that revision or later. It returns proofMayCome if there is such a server at all, since
// it may still do so.
func TestSameTimeline(t *testing.T) {
	const uptime = 10 * time.Minute
	for name, tt := range map[string]struct {
		version                    string        // of the server; "": one with which a server has a new holder at each start
		holder                     string        // of the Lease that the server writes after the break; "": none is written
		isBefore                   bool          // the Lease is written just before the revision in question, not at it
		knownFor                   time.Duration // from when the holder was first seen until the watch last sent something
		isForbidden                bool          // the Leases may not be read any more
		wantSame, wantProofMayCome bool
	}{
		"no server has written its Lease":                    {knownFor: uptime, wantProofMayCome: true},
		"a server has renewed its Lease":                     {holder: firstHolder, knownFor: uptime, wantSame: true, wantProofMayCome: true},
		"a server has renewed its Lease before the revision": {holder: firstHolder, isBefore: true, knownFor: uptime, wantProofMayCome: true},
		"the server has started again":                       {holder: secondHolder, knownFor: uptime},
		"the server was known for too short a time":          {holder: firstHolder, knownFor: minHolderAge - time.Second},
		"a version whose servers keep their holder":          {version: "v1.34.9", holder: firstHolder, knownFor: uptime},
		"the Leases may not be read any more":                {holder: firstHolder, knownFor: uptime, isForbidden: true},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			// The server runs for ten minutes.
			upstream := newUpstream(t)
			upstream.SetDocument("/version", versionOf(cmp.Or(tt.version, "v1.36.3-gke.1")))
			firstSeen := time.Now()
			_, c := runServers(t, upstream)
			time.Sleep(uptime)
			// Then it writes its Lease, at the revision in question or just before it.
			revision := upstream.Revision() + 1
			if tt.holder != "" {
				upstream.Put(inmemory.Leases, serverLease("apiserver-0", tt.holder))
			}
			if tt.isBefore {
				revision++
			}
			if tt.isForbidden {
				upstream.SetStatus(http.StatusForbidden, "list "+inmemory.Leases.Path)
			}
			same, proofMayCome := c.SameTimeline(t.Context(), uint64(revision), firstSeen.Add(tt.knownFor)) // #nosec G115 -- positive
			if same != tt.wantSame || proofMayCome != tt.wantProofMayCome {
				t.Errorf("got same %t and proofMayCome %t, want %t and %t", same, proofMayCome, tt.wantSame, tt.wantProofMayCome)
			}
		})
	}
}

// TestLeaseChangesAreReported: the Cluster reports a new holder of a Lease, a new Lease, and a Lease that is deleted. It does
// not report a renewal.
func TestLeaseChangesAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := newUpstream(t)
		recorded, _ := runServers(t, upstream)
		recorded.expectNothing(t, "the first list")
		upstream.Put(inmemory.Leases, serverLease("apiserver-0", firstHolder))
		time.Sleep(time.Hour)
		recorded.expectNothing(t, "a renewal")
		upstream.Put(inmemory.Leases, serverLease("apiserver-0", secondHolder))
		recorded.expect(t, "a new holder", everything)
		upstream.Put(inmemory.Leases, serverLease("two", "two_1"))
		recorded.expect(t, "a new Lease", everything)
		upstream.Delete(inmemory.Leases, serverLease("two", ""))
		recorded.expect(t, "a Lease is deleted", everything)
	})
}

// TestVersionChangesAreReported: the Cluster reports a change of the version that /version answers. It reports the change once,
// even if it may not read Leases. No answer, or one without a version, is no change.
func TestVersionChangesAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := newUpstream(t)
		upstream.SetStatus(http.StatusForbidden, "list "+inmemory.Leases.Path, "watch "+inmemory.Leases.Path)
		recorded, _ := runServers(t, upstream)
		time.Sleep(time.Hour)
		recorded.expectNothing(t, "no change")
		most := int(time.Hour/versionInterval) + 1
		least := most * 4 / 5 // pauses are up to a fifth longer
		if got := upstream.Requests("get /version"); got < least || got > most {
			t.Errorf("/version was read %d times in an hour, want %d to %d", got, least, most)
		}

		// A new version is reported.
		upstream.SetDocument("/version", versionOf("v1.37.0"))
		time.Sleep(2 * versionInterval)
		recorded.expect(t, "an upgrade", everything)
		// No answer is no change, nor is an answer without a version.
		upstream.SetStatus(http.StatusServiceUnavailable, "get /version")
		time.Sleep(time.Hour)
		upstream.SetStatus(usualAnswers, "get /version")
		upstream.SetDocument("/version", `<html>`)
		time.Sleep(time.Hour)
		upstream.SetDocument("/version", versionOf("v1.37.0"))
		time.Sleep(time.Hour)
		recorded.expectNothing(t, "no answer, no version, and the same again")
	})
}

// TestVersionTracker: a change of the version that is answered is reported at once, but not within two minutes
// (minReportInterval) of the last report. A change within this time is reported with the first answer after it.
func TestVersionTracker(t *testing.T) {
	v136, v137 := version.Info{GitVersion: "v1.36.3"}, version.Info{GitVersion: "v1.37.0"}
	var v versionTracker
	now := time.Unix(1e9, 0)
	for _, step := range []struct {
		name       string
		after      time.Duration // since the step before
		answered   version.Info
		wantReport bool
	}{
		{name: "the first answer", answered: v136},
		{name: "the same version", after: versionInterval, answered: v136},
		{name: "another version", after: versionInterval, answered: v137, wantReport: true},
		{name: "1.36 in turn, soon after a report", after: versionInterval, answered: v136},
		{name: "1.37 in turn, soon after a report", after: versionInterval, answered: v137},
		{name: "the report of the turns is due", after: time.Hour, answered: v137, wantReport: true},
		{name: "1.37 again, with nothing to report", after: time.Hour, answered: v137},
		{name: "1.36 again, long after a report", after: versionInterval, answered: v136, wantReport: true},
		{name: "1.37 in turn, soon after this report", after: versionInterval, answered: v137},
		{
			name:  "1.37, minReportInterval after this report",
			after: minReportInterval - versionInterval, answered: v137, wantReport: true,
		},
		{name: "1.37 from now on", after: time.Hour, answered: v137},
	} {
		now = now.Add(step.after)
		if got := v.record(step.answered, now); got != step.wantReport {
			t.Errorf("%s: got a report %t, want %t", step.name, got, step.wantReport)
		}
	}
}

var storageVersions = inmemory.Kind{Path: storageVersionsPath, APIVersion: "internal.apiserver.k8s.io/v1alpha1", Kind: "StorageVersion"}

// Arguments of storageVersion.
const noCommonVersion, noCondition = "", ""

// storageVersion returns the StorageVersion of a resource. common is the version in which all API servers write the resource,
// or noCommonVersion. agree is the status ("True" or "False") of the condition that they agree, or noCondition.
func storageVersion(name, common, agree string) inmemory.Object {
	conditions := `{"type":"Other","status":"False"}`
	if agree != noCondition {
		conditions += fmt.Sprintf(`,{"type":"AllEncodingVersionsEqual","status":%q}`, agree)
	}
	return inmemory.Object{
		Name: name, More: fmt.Sprintf(`,"spec":{},"status":{"commonEncodingVersion":%q,"conditions":[%s]}`, common, conditions),
	}
}

// TestStorageVersions: lists of a resource are forwarded while the API servers disagree on its version, from the first
// list on. When they agree again, or its StorageVersion is gone, the resource is verified.
func TestStorageVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := newFakeCluster(t)
		upstream.Serve(storageVersions)
		upstream.Put(storageVersions, storageVersion("core.pods", "v1", "True"))
		upstream.Put(storageVersions, storageVersion("apps.deployments", noCommonVersion, "False"))
		upstream.Put(storageVersions, storageVersion("example.com.widgets", noCommonVersion, noCondition))
		upstream.Put(storageVersions, storageVersion("batch.cronjobs", "batch/v1", noCondition)) // the API servers agree
		verified, c := runServers(t, upstream)
		type lookups struct{ pods, deployments, widgets found }
		expectLookups := func(want lookups) {
			t.Helper()
			expectLookup(t, c, "core v1 pods", want.pods)
			expectLookup(t, c, "apps v1 deployments", want.deployments)
			expectLookup(t, c, "example.com v1 widgets", want.widgets)
		}
		differ := notFound(reason.Upstream) // the API servers disagree
		verified.expectNothing(t, "at the start")
		expectLookups(lookups{pods: foundNamespaced, deployments: differ, widgets: differ})

		upstream.Put(storageVersions, storageVersion("apps.deployments", "apps/v1", "True"))
		upstream.Put(storageVersions, storageVersion("core.pods", "v2", "True")) // from one agreed version to another, which is no news
		verified.expect(t, "deployments agree", fmt.Sprint(resourceScope("apps", "deployments")))
		expectLookups(lookups{pods: foundNamespaced, deployments: foundNamespaced, widgets: differ})

		upstream.Delete(storageVersions, storageVersion("example.com.widgets", noCommonVersion, noCondition))
		upstream.Delete(storageVersions, storageVersion("batch.cronjobs", noCommonVersion, noCondition))
		verified.expect(t, "two StorageVersions are gone", fmt.Sprint(resourceScope("example.com", "widgets")))
		expectLookups(lookups{pods: foundNamespaced, deployments: foundNamespaced, widgets: foundCustom})

		upstream.Put(storageVersions, storageVersion("core.pods", noCommonVersion, "False"))
		verified.expectNothing(t, "pods differ")
		expectLookups(lookups{pods: differ, deployments: foundNamespaced, widgets: foundCustom})

		upstream.SetStatus(http.StatusServiceUnavailable, "list "+storageVersionsPath, "watch "+storageVersionsPath)
		upstream.Cut(storageVersionsPath)
		time.Sleep(time.Hour)
		verified.expectNothing(t, "the API server does not answer")
		expectLookups(lookups{pods: differ, deployments: foundNamespaced, widgets: foundCustom})
	})
}
