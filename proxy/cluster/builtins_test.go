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
	"github.com/listproxy/listproxy/test/proxytest"
)

const appsPath = "get /apis/apps/v1"

// serveApps says what is served of apps from now on.
func serveApps(t *testing.T, f *proxytest.FakeAPI, resources ...metav1.APIResource) {
	t.Helper()
	f.SetDocument("/apis/apps/v1", discoveryOf(t, "apps/v1", resources...))
}

// TestDiscoveryIsReadAgain: when API servers or routes have changed, and once more when the slowest API
// server has learnt of that; else every five minutes. Nobody waits for it.
func TestDiscoveryIsReadAgain(t *testing.T) {
	scoped := apiResource("deployments", "Deployment", false, "list", "watch")
	for name, change := range map[string]func(f *proxytest.FakeAPI){
		"a server": func(f *proxytest.FakeAPI) { f.Event(leasesPath, "MODIFIED", serverLease("one", "one_2", 2)) },
		"a route": func(f *proxytest.FakeAPI) {
			f.Event(apiServicesPath, "ADDED", proxytest.APIService("v1", "new", "", 2))
		},
		"a server, while nobody answers": func(f *proxytest.FakeAPI) {
			f.SetStatus(http.StatusServiceUnavailable, appsPath)
			f.Event(leasesPath, "MODIFIED", serverLease("one", "one_2", 2))
			time.Sleep(discoveryRetryInterval / 2)
			f.SetStatus(0, appsPath)
			time.Sleep(discoveryRetryInterval)
		},
		"nothing, yet": func(*proxytest.FakeAPI) { time.Sleep(discoveryInterval * 6 / 5) },
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			f := newFakeCluster(t)
			f.Collections[leasesPath] = newFakeServers().Collections[leasesPath]
			c := runLookups(t, f)
			time.Sleep(snapshot.Skew)
			before := f.CountRequests(appsPath)
			time.Sleep(time.Minute)
			if got := f.CountRequests(appsPath) - before; got > 0 {
				t.Fatalf("it was read %d times for nothing", got)
			}
			serveApps(t, f, scoped)
			change(f)
			expectLookup(t, c, "apps v1 deployments", found{Entry: Entry{}})
			if name == "nothing, yet" {
				return
			}
			serveApps(t, f) // by another API server
			time.Sleep(snapshot.Skew)
			expectLookup(t, c, "apps v1 deployments", forwardedAs(reason.UnknownResource))
			if got := f.CountRequests(appsPath) - before; got < 2 || got > 3 {
				t.Errorf("it was read %d times", got)
			}
		})
	}
}

// TestDiscoveryIsNotReadForCustomResources: operators install a hundred definitions at a time.
func TestDiscoveryIsNotReadForCustomResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(t)
		c := runLookups(t, f)
		time.Sleep(snapshot.Skew)
		before := f.CountRequests(appsPath)
		f.Event(apiServicesPath, "ADDED", proxytest.APIService("v2", "example.com", "", 2))
		f.Event(definitionsPath, "ADDED", proxytest.Definition("gadgets", "Cluster", 1, 1))
		time.Sleep(time.Minute)
		expectLookup(t, c, "example.com v1 gadgets", found{Entry: Entry{Custom: true}})
		expect.Same(t, 0, f.CountRequests(appsPath)-before)
	})
}

// TestDiscoveryFails: what was read before counts while the upstream is in trouble, and not when it has
// another answer.
func TestDiscoveryFails(t *testing.T) {
	for _, tt := range []struct {
		status int
		then   found         // if it was read before
		never  reason.Reason // if it was not
	}{
		{http.StatusInternalServerError, foundDeployments, reason.Warming},
		{http.StatusForbidden, foundDeployments, reason.NotPermitted}, // until it has read its roles
		{http.StatusNotFound, forwardedAs(reason.UnknownResource), reason.UnknownResource},
	} {
		proxytest.Bubble(t, http.StatusText(tt.status), func(t *testing.T) {
			f := newFakeCluster(t)
			f.SetStatus(tt.status, appsPath)
			c := runLookups(t, f)
			expectLookup(t, c, "apps v1 deployments", forwardedAs(tt.never))
			before := f.CountRequests(appsPath)
			time.Sleep(10 * time.Minute)
			if got, most := f.CountRequests(appsPath)-before, int(10*time.Minute/discoveryRetryInterval); got > most {
				t.Errorf("%d reads in ten minutes, want %d at most", got, most)
			}
			f.SetStatus(0, appsPath)
			time.Sleep(2 * discoveryInterval)
			expectLookup(t, c, "apps v1 deployments", foundDeployments)
			f.SetStatus(tt.status, appsPath)
			time.Sleep(2 * discoveryInterval)
			expectLookup(t, c, "apps v1 deployments", tt.then)
		})
	}
}

// TestDiscoveryStalls: a read that stalls ends by itself, and nobody waits for it.
func TestDiscoveryStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(t)
		c := runLookups(t, f)
		f.Stall("/apis/apps/v1")
		time.Sleep(2 * discoveryInterval)
		began := time.Now()
		expectLookup(t, c, "apps v1 deployments", foundDeployments)
		if waited := time.Since(began); waited != 0 {
			t.Errorf("waited %v", waited)
		}
		serveApps(t, f)
		f.Unstall("/apis/apps/v1")
		time.Sleep(2 * pageTimeout)
		expectLookup(t, c, "apps v1 deployments", forwardedAs(reason.UnknownResource))
	})
}
