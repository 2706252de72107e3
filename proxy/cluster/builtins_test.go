package cluster

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/inmemory"
	"github.com/listproxy/listproxy/test/proxytest"
)

// appsPath names the reads of discovery for apps/v1, as a Hop does.
const appsPath = "get /apis/apps/v1"

// serveApps sets the resources that discovery has for apps/v1.
func serveApps(t *testing.T, upstream *inmemory.Hop, resources ...metav1.APIResource) {
	t.Helper()
	upstream.SetDocument("/apis/apps/v1", discoveryOf(t, "apps/v1", resources...))
}

// TestDiscoveryIsReadAgain: discovery is read when API servers or routes have changed. It is read once more ten seconds later
// (snapshot.Skew), when the slowest API server has learnt of the change. Without a change, it is read every five minutes
// (discoveryInterval).
func TestDiscoveryIsReadAgain(t *testing.T) {
	restart := func(upstream *inmemory.Hop) {
		upstream.Put(inmemory.Leases, serverLease("apiserver-0", secondHolder))
	}
	for name, tt := range map[string]struct {
		change        func(upstream *inmemory.Hop)
		wantReadAgain bool // after snapshot.Skew
	}{
		"a server starts": {change: restart, wantReadAgain: true},
		"a new route": {change: func(upstream *inmemory.Hop) {
			upstream.Put(inmemory.APIServices, inmemory.APIService("v1", "new", ""))
		}, wantReadAgain: true},
		"a server starts, while discovery does not answer": {change: func(upstream *inmemory.Hop) {
			upstream.SetStatus(http.StatusServiceUnavailable, appsPath)
			restart(upstream)
			time.Sleep(discoveryRetryInterval / 2)
			upstream.SetStatus(usualAnswers, appsPath)
			time.Sleep(discoveryRetryInterval)
		}, wantReadAgain: true},
		"time passes": {change: func(*inmemory.Hop) { time.Sleep(discoveryInterval * 6 / 5) }}, // the longest interval, with its jitter
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			upstream := newFakeCluster(t)
			c := runCluster(t, upstream, Config{})
			// After the two reads at the start, a minute passes without a read.
			time.Sleep(snapshot.Skew)
			before := upstream.Requests(appsPath)
			time.Sleep(time.Minute)
			if got := upstream.Requests(appsPath) - before; got > 0 {
				t.Fatalf("discovery was read %d times though nothing has changed", got)
			}
			// The change makes the Cluster read that deployments are no longer namespaced.
			serveApps(t, upstream, apiResource("deployments", "Deployment", clusterScoped, "list", "watch"))
			tt.change(upstream)
			expectLookup(t, c, "apps v1 deployments", foundClusterScoped)
			if !tt.wantReadAgain {
				return
			}
			// The second read, after snapshot.Skew, finds no resources.
			serveApps(t, upstream)
			time.Sleep(snapshot.Skew)
			expectLookup(t, c, "apps v1 deployments", notFound(reason.UnknownResource))
			if got := upstream.Requests(appsPath) - before; got < 2 || got > 3 { // the third is the one that failed, if one did
				t.Errorf("discovery was read %d times, want 2 or 3", got)
			}
		})
	}
}

// TestDiscoveryIsNotReadForCustomResources: discovery is not read after changes of custom resources, whose definitions come by
// the hundred.
func TestDiscoveryIsNotReadForCustomResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := newFakeCluster(t)
		c := runCluster(t, upstream, Config{})
		time.Sleep(snapshot.Skew)
		before := upstream.Requests(appsPath)
		upstream.Put(inmemory.APIServices, inmemory.APIService("v2", "example.com", ""))
		upstream.Put(inmemory.Definitions, inmemory.Object{
			Name: "gadgets.example.com", More: `,"spec":{"scope":"Cluster","versions":[{"name":"v1","served":true}]},"status":{` + established + `}`,
		})
		time.Sleep(time.Minute)
		expectLookup(t, c, "example.com v1 gadgets", found{Entry: Entry{Custom: true}})
		expect.Same(t, 0, upstream.Requests(appsPath)-before)
	})
}

// TestDiscoveryFails: while discovery is refused, or fails, the resources that were read before are found. After a 404,
// none are found.
func TestDiscoveryFails(t *testing.T) {
	for _, tt := range []struct {
		status      int
		wantAtFirst reason.Reason // if discovery was never read
		wantLater   found         // if it was read before
	}{
		{status: http.StatusInternalServerError, wantAtFirst: reason.Warming, wantLater: foundNamespaced},
		// As an API server answers until it has read its roles.
		{status: http.StatusForbidden, wantAtFirst: reason.NotPermitted, wantLater: foundNamespaced},
		{
			status: http.StatusNotFound, wantAtFirst: reason.UnknownResource,
			wantLater: notFound(reason.UnknownResource),
		},
	} {
		proxytest.Bubble(t, http.StatusText(tt.status), func(t *testing.T) {
			// Discovery was never read. It is tried at most every five seconds (discoveryRetryInterval).
			upstream := newFakeCluster(t)
			upstream.SetStatus(tt.status, appsPath)
			c := runCluster(t, upstream, Config{})
			expectLookup(t, c, "apps v1 deployments", notFound(tt.wantAtFirst))
			before := upstream.Requests(appsPath)
			time.Sleep(10 * time.Minute)
			if got, most := upstream.Requests(appsPath)-before, int(10*time.Minute/discoveryRetryInterval); got > most {
				t.Errorf("discovery was read %d times in ten minutes, want at most %d", got, most)
			}
			// It is read once, and then fails again.
			upstream.SetStatus(usualAnswers, appsPath)
			time.Sleep(2 * discoveryInterval)
			expectLookup(t, c, "apps v1 deployments", foundNamespaced)
			upstream.SetStatus(tt.status, appsPath)
			time.Sleep(2 * discoveryInterval)
			expectLookup(t, c, "apps v1 deployments", tt.wantLater)
		})
	}
}

// TestDiscoveryStalls: a read of discovery that gets no answer is given up after a minute (pageTimeout). No lookup waits for
// it.
func TestDiscoveryStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := newFakeCluster(t)
		c := runCluster(t, upstream, Config{})
		upstream.Stall("/apis/apps/v1")
		time.Sleep(2 * discoveryInterval)
		began := time.Now()
		expectLookup(t, c, "apps v1 deployments", foundNamespaced)
		expect.Same(t, time.Duration(0), time.Since(began))
		serveApps(t, upstream)
		upstream.Unstall("/apis/apps/v1")
		time.Sleep(2 * pageTimeout)
		expectLookup(t, c, "apps v1 deployments", notFound(reason.UnknownResource))
	})
}
