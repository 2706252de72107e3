package discovery

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// A resource that is not known is looked for again, but not as often as
// somebody asks for it.
func TestCatalogRetriesWhatItDoesNotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(t)
		c := runCatalog(t, f, proxytest.DiscardLog())
		for range 20 * 10 { // twenty seconds, ten times a second
			expectLookup(t, c, "apps", "v1", "none", forwardedAs(reason.UnknownResource))
			expectLookup(t, c, "apps", "v1", "deployments", foundDeployments)
			time.Sleep(100 * time.Millisecond)
		}
		if got := f.Asked("get /apis/apps/v1"); got != 4 {
			t.Errorf("apps/v1 was read %d times in 20 s, want 4", got)
		}
		f.Document("/apis/apps/v1", discoveryOf(t, "apps/v1", apiResource("none", "None", false, "list", "watch")))
		time.Sleep(discoveryRetry)
		expectLookup(t, c, "apps", "v1", "none", found{Entry: Entry{}})
	})
}

// Only the caller who has a known group/version read again waits for it.
func TestCatalogAnswersWhileItReadsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(t)
		c := runCatalog(t, f, proxytest.DiscardLog())
		expectLookup(t, c, "apps", "v1", "deployments", foundDeployments)
		time.Sleep(discoveryRetry)
		f.Takes = 3 * time.Second
		var all sync.WaitGroup
		all.Go(func() { expectLookup(t, c, "apps", "v1", "none", forwardedAs(reason.UnknownResource)) })
		time.Sleep(time.Second)
		began := time.Now()
		expectLookup(t, c, "apps", "v1", "none", forwardedAs(reason.UnknownResource))
		expectLookup(t, c, "apps", "v1", "deployments", foundDeployments)
		if waited := time.Since(began); waited != 0 {
			t.Errorf("waited %v", waited)
		}
		all.Wait()
	})
}

func TestCatalogIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const groups = maxGroupVersions + 50
		f := newFakeCluster(t)
		for n := range groups {
			group := fmt.Sprintf("g%d.example.com", n)
			f.Collections[apiServicesPath].Objects = append(f.Collections[apiServicesPath].Objects, apiService("v1", group, "", 1))
			f.Document("/apis/"+group+"/v1", discoveryOf(t, group+"/v1", apiResource("widgets", "Widget", true, "list", "watch")))
		}
		c := runCatalog(t, f, proxytest.DiscardLog())
		for n := range groups {
			expectLookup(t, c, fmt.Sprintf("g%d.example.com", n), "v1", "widgets", foundWidgets)
		}
		if got := len(c.known); got != maxGroupVersions {
			t.Errorf("%d group/versions remembered, want %d", got, maxGroupVersions)
		}
	})
}

// While what is known is read again, however slowly, nobody else has it read: whoever did would be
// held until that is over.
func TestCatalogReadsAgainOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(t)
		c := runCatalog(t, f, proxytest.DiscardLog())
		expectLookup(t, c, "apps", "v1", "deployments", foundDeployments)
		time.Sleep(discoveryRefresh)
		f.Takes = discoveryTimeout - time.Second
		expectLookup(t, c, "apps", "v1", "deployments", foundDeployments) // has it read again
		for range 5 {
			time.Sleep(f.Takes / 6)
			if entry, why, need := c.look(schema.GroupVersion{Group: "apps", Version: "v1"}, "deployments"); why != "" || need != readNothing {
				t.Errorf("%+v (%q), and another read is wanted: %v", entry, why, need)
			}
		}
		time.Sleep(f.Takes)
		if got := f.Asked("get /apis/apps/v1"); got != 2 {
			t.Errorf("read %d times, want 2", got)
		}
	})
}

// Nothing is believed for ever, and what is read again is answered meanwhile.
func TestCatalogReadsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(t)
		c := runCatalog(t, f, proxytest.DiscardLog())
		expectLookup(t, c, "apps", "v1", "deployments", foundDeployments)
		f.Document("/apis/apps/v1", discoveryOf(t, "apps/v1", apiResource("deployments", "Deployment", false, "list", "watch")))
		time.Sleep(discoveryRefresh - time.Nanosecond)
		expectLookup(t, c, "apps", "v1", "deployments", foundDeployments)
		if got := f.Asked("get /apis/apps/v1"); got != 1 {
			t.Errorf("read %d times before it was old", got)
		}
		f.Takes = time.Second
		time.Sleep(time.Nanosecond)
		asked := time.Now()
		for range 10 {
			expectLookup(t, c, "apps", "v1", "deployments", foundDeployments)
		}
		if waited := time.Since(asked); waited != 0 {
			t.Errorf("callers waited %v for a refresh", waited)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		expectLookup(t, c, "apps", "v1", "deployments", found{Entry: Entry{}})
		if got := f.Asked("get /apis/apps/v1"); got != 2 {
			t.Errorf("read %d times, want 2", got)
		}
	})
}

func TestCatalogWithoutDiscovery(t *testing.T) {
	for _, test := range []struct {
		status int
		want   reason.Reason
		// reads in the first ten minutes, with lookups all the time
		want10Minutes int
	}{
		{http.StatusInternalServerError, reason.Warming, 10 * 60 / 5},
		{http.StatusForbidden, reason.NotPermitted, 10 * 60 / 30},
		{http.StatusNotFound, reason.UnknownResource, 10 * 60 / 5},
	} {
		t.Run(http.StatusText(test.status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeCluster(t)
				f.Answer(test.status, "get /apis/apps/v1")
				c := runCatalog(t, f, proxytest.DiscardLog())
				for range 10 * 60 {
					expectLookup(t, c, "apps", "v1", "deployments", forwardedAs(test.want))
					time.Sleep(time.Second)
				}
				if got := f.Asked("get /apis/apps/v1"); got != test.want10Minutes {
					t.Errorf("%d reads in ten minutes, want %d", got, test.want10Minutes)
				}
				f.Answer(0, "get /apis/apps/v1")
				time.Sleep(refusedRetry)
				expectLookup(t, c, "apps", "v1", "deployments", foundDeployments)
			})
		})
	}
}

// What is known outlives a discovery that fails, but not for ever.
func TestCatalogWhenDiscoveryFailsLater(t *testing.T) {
	for _, test := range []struct {
		status      int
		then, after reason.Reason
	}{
		{http.StatusInternalServerError, "", reason.Warming},
		{http.StatusForbidden, "", reason.NotPermitted},
		{http.StatusNotFound, reason.UnknownResource, reason.UnknownResource},
	} {
		t.Run(http.StatusText(test.status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeCluster(t)
				c := runCatalog(t, f, proxytest.DiscardLog())
				expectLookup(t, c, "apps", "v1", "deployments", foundDeployments)
				f.Answer(test.status, "get /apis/apps/v1")
				time.Sleep(discoveryRefresh)
				_, _ = c.Lookup(t.Context(), "apps", "v1", "deployments") // has it read again
				synctest.Wait()
				want := foundDeployments
				if test.then != "" {
					want = forwardedAs(test.then)
				}
				expectLookup(t, c, "apps", "v1", "deployments", want)
				time.Sleep(discoveryForget - discoveryRefresh)
				expectLookup(t, c, "apps", "v1", "deployments", forwardedAs(test.after))
			})
		})
	}
}

// TestCatalogStands: it is said at once whether a resource is as it was; what is too old, or not known
// any more, is read again meanwhile.
func TestCatalogStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(t)
		c := runCatalog(t, f, proxytest.DiscardLog())
		expectLookup(t, c, "apps", "v1", "deployments", foundDeployments)
		f.Takes = time.Second
		stands := func(want bool) {
			t.Helper()
			begun := time.Now()
			if got := c.Stands("apps", "v1", "deployments", foundDeployments.Entry); got != want || time.Since(begun) > 0 {
				t.Errorf("%t after %v", got, time.Since(begun))
			}
		}
		stands(true)
		if c.Stands("apps", "v1", "deployments", Entry{Custom: true}) {
			t.Error("another entry stands")
		}
		time.Sleep(discoveryForget - time.Second)
		stands(true)
		time.Sleep(2 * time.Second)
		stands(true) // it was read again
		c.forget("apps")
		stands(false)
		time.Sleep(2 * time.Second)
		stands(true)
	})
}

func TestCatalogSingleFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(t)
		f.Takes = 3 * time.Second
		c := runCatalog(t, f, proxytest.DiscardLog())
		began := time.Now()
		first, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if _, why := c.Lookup(first, "apps", "v1", "deployments"); why != reason.Warming {
				t.Errorf("the caller who left: %q", why)
			}
			if waited := time.Since(began); waited != time.Second {
				t.Errorf("the caller who left waited %v", waited)
			}
		})
		synctest.Wait()
		for range 50 {
			all.Go(func() { expectLookup(t, c, "apps", "v1", "deployments", foundDeployments) })
		}
		time.Sleep(time.Second)
		leave()
		all.Wait()
		if got := f.Asked("get /apis/apps/v1"); got != 1 {
			t.Errorf("read %d times", got)
		}
	})
}

// A discovery that stalls ends by itself, and nobody waits for all of that. One that is only slow
// is waited for by those who come later.
func TestCatalogWhenDiscoveryStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(t)
		f.Takes = time.Hour
		c := runCatalog(t, f, proxytest.DiscardLog())
		began := time.Now()
		expectLookup(t, c, "apps", "v1", "deployments", forwardedAs(reason.Warming))
		if waited := time.Since(began); waited != lookupWait {
			t.Errorf("waited %v", waited)
		}
		time.Sleep(discoveryTimeout)
		if got := f.Asked("get /apis/apps/v1"); got != 1 {
			t.Errorf("read %d times", got)
		}
	})
}

func TestCatalogWhenDiscoveryIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(t)
		f.Takes = discoveryTimeout / 2
		c := runCatalog(t, f, proxytest.DiscardLog())
		expectLookup(t, c, "apps", "v1", "deployments", forwardedAs(reason.Warming))
		expectLookup(t, c, "apps", "v1", "deployments", foundDeployments)
	})
}

// An answer that was under way when its group/version changed is from before.
func TestCatalogDropsDuringARead(t *testing.T) {
	for _, test := range []struct {
		name string
		drop func(*proxytest.FakeAPI, *Catalog)
	}{
		{"an APIService changed", func(f *proxytest.FakeAPI, _ *Catalog) {
			f.Event(apiServicesPath, "DELETED", apiService("v1", "apps", "", 2))
			f.Event(apiServicesPath, "ADDED", apiService("v1", "apps", "", 3))
		}},
		{"told to forget", func(_ *proxytest.FakeAPI, c *Catalog) { c.forget("apps") }},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeCluster(t)
				f.Takes = 3 * time.Second
				c := runCatalog(t, f, proxytest.DiscardLog())
				var all sync.WaitGroup
				all.Go(func() {
					expectLookup(t, c, "apps", "v1", "deployments", forwardedAs(reason.Warming))
				})
				time.Sleep(time.Second)
				test.drop(f, c)
				f.Document("/apis/apps/v1", discoveryOf(t, "apps/v1", apiResource("deployments", "Deployment", false, "list", "watch")))
				all.Wait()
				expectLookup(t, c, "apps", "v1", "deployments", found{Entry: Entry{}})
			})
		})
	}
}

func TestCatalogForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(t)
		c := runCatalog(t, f, proxytest.DiscardLog())
		for range 2 {
			expectLookup(t, c, "apps", "v1", "deployments", foundDeployments)
			expectLookup(t, c, "example.com", "v1", "widgets", foundWidgets)
			c.forget("example.com")
		}
		if apps, widgets := f.Asked("get /apis/apps/v1"), f.Asked("get /apis/example.com/v1"); apps != 1 || widgets != 2 {
			t.Errorf("apps was read %d times, example.com %d times; want 1 and 2", apps, widgets)
		}
	})
}

// TestCatalogEndsWhatItBegan: when run has ended, no read goes on, and nothing waits to be forgotten.
func TestCatalogEndsWhatItBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeCluster(t)
		var reading atomic.Int32
		config := &rest.Config{Host: "https://upstream.example", Transport: proxytest.Transport(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/apis/apps/v1" {
				reading.Add(1)
				defer reading.Add(-1)
			}
			return f.RoundTrip(r)
		})}
		c, err := newCatalog(config, Config{Log: proxytest.DiscardLog()}, func() bool { return true }, func(schema.GroupVersion, string) {})
		expect.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { c.run(ctx) })
		synctest.Wait()
		expectLookup(t, c, "apps", "v1", "deployments", foundDeployments)

		time.Sleep(discoveryRefresh)
		f.Takes = discoveryTimeout / 2
		expectLookup(t, c, "apps", "v1", "deployments", foundDeployments) // it is read again meanwhile
		c.forgetAfter(time.Hour, "apps")
		synctest.Wait()
		stopped := time.Now()
		stop()
		running.Wait()
		if reading.Load() != 0 || time.Since(stopped) != 0 {
			t.Errorf("%d reads go on; run ended after %v", reading.Load(), time.Since(stopped))
		}
		c.forgetAfter(0, "apps")
		time.Sleep(discoveryTimeout)
		if len(c.known) == 0 {
			t.Error("something was forgotten after the end")
		}
	})
}
