package snapshot

import (
	"log/slog"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
)

// collectionsOf returns Collections of u.
func collectionsOf(t *testing.T, u http.RoundTripper, config Config) *Collections {
	t.Helper()
	config.Client = &http.Client{Transport: u}
	config.Base = &url.URL{Scheme: "https", Host: "upstream"}
	config.Limits = Limits{History: time.Hour, Staleness: 90 * time.Second, Wait: 100 * time.Millisecond}
	config.Log = slog.New(slog.DiscardHandler)
	c := NewCollections(config)
	t.Cleanup(c.Close)
	return c
}

// quiet is an upstream whose watches tell nothing new.
func quiet() *upstream {
	return &upstream{revision: 9, watch: func(uint64) []string { return []string{bookmark(9, "")} }}
}

var (
	configMaps = Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Namespaced: true, Representation: media.JSON}
	otherMaps  = Resource{GroupVersionResource: schema.GroupVersionResource{Group: "other", Version: "v1", Resource: "configmaps"}, Namespaced: true, Representation: media.JSON}
)

// expectUse asks for a collection after the feeds did what they can without waiting.
func expectUse(t *testing.T, when string, c *Collections, r Resource, want reason.Reason) *Collection {
	t.Helper()
	collection, absence := c.Use(r)
	if absence == reason.None {
		synctest.Wait()
		_, absence = collection.Latest(t.Context(), 0)
	}
	if absence != want {
		t.Errorf("%s: %q, want %q", when, absence, want)
	}
	return collection
}

// apiServers is that other API servers stand behind the upstream.
func apiServers(settle time.Duration) Invalidation {
	return Invalidation{Cause: Servers, Until: For(settle)}
}

// stored is that API servers do not agree in which version they write config maps, or do again.
func stored(until Until) Invalidation {
	return Invalidation{Cause: Servers, Scope: OfResource(configMaps.GroupResource()), Until: until}
}

// TestAPIServersChanged: everything is dropped at once, and nothing starts before a time without
// another change.
func TestAPIServersChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := quiet()
		c := collectionsOf(t, u, Config{})
		before := expectUse(t, "at first", c, configMaps, reason.None)
		c.Invalidate(apiServers(15 * time.Second))
		if _, absence := before.Exact(t.Context(), 9); absence != reason.Upstream {
			t.Errorf("what somebody had looked up before: %q", absence)
		}
		expectUse(t, "after a change", c, configMaps, reason.Upstream)
		time.Sleep(10 * time.Second)
		c.Invalidate(apiServers(15 * time.Second))
		time.Sleep(15*time.Second - 1)
		expectUse(t, "after another", c, configMaps, reason.Upstream)
		expectUse(t, "another resource", c, otherMaps, reason.Upstream)
		if _, absence := c.Keep(configMaps); absence != reason.Upstream {
			t.Errorf("an eager one: %q", absence)
		}
		if u.loads != 1 {
			t.Errorf("%d loads before it settled", u.loads)
		}
		time.Sleep(1 * time.Nanosecond)
		expectUse(t, "settled", c, configMaps, reason.None)
		if u.loads != 2 {
			t.Errorf("%d loads, want another one", u.loads)
		}
	})
}

// TestDisagreement holds back one resource, in all versions and representations.
func TestDisagreement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := quiet()
		c := collectionsOf(t, u, Config{})
		before := expectUse(t, "at first", c, configMaps, reason.None)
		c.Invalidate(stored(UntilLifted()))
		if _, absence := before.Exact(t.Context(), 9); absence != reason.Upstream {
			t.Errorf("what somebody had looked up before: %q", absence)
		}
		time.Sleep(time.Hour)
		expectUse(t, "disagreement", c, configMaps, reason.Upstream)
		elsewhere := configMaps
		elsewhere.Version, elsewhere.Representation = "v2", media.MetadataJSON
		expectUse(t, "another version and representation", c, elsewhere, reason.Upstream)
		if _, absence := c.Use(otherMaps); absence != reason.None {
			t.Errorf("another resource: %q", absence)
		}

		// Both have to be over.
		c.Invalidate(apiServers(time.Second))
		c.Invalidate(stored(Lift()))
		expectUse(t, "agreement, but not settled", c, configMaps, reason.Upstream)
		time.Sleep(time.Second)
		expectUse(t, "agreement", c, configMaps, reason.None)
	})
}

// TestRebuild drops one resource, which may be loaded again at once.
func TestRebuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := quiet()
		c := collectionsOf(t, u, Config{})
		before := expectUse(t, "at first", c, configMaps, reason.None)
		c.Invalidate(Invalidation{Cause: Servers, Scope: OfResource(otherMaps.GroupResource())})
		if _, absence := before.Exact(t.Context(), 9); absence != reason.None {
			t.Errorf("after another resource was rebuilt: %q", absence)
		}
		c.Invalidate(stored(Until{}))
		if _, absence := before.Exact(t.Context(), 9); absence != reason.Upstream {
			t.Errorf("what somebody had looked up before: %q", absence)
		}
		expectUse(t, "again", c, configMaps, reason.None)
		if u.loads != 2 {
			t.Errorf("%d loads, want another one", u.loads)
		}
	})
}

// TestMovedIsHeldForAWhile: API servers that have not heard of it yet would still ask the server of
// before.
func TestMovedIsHeldForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCollections(t, func(*Config) {})
		before, absence := c.Use(configMaps)
		if absence != reason.None {
			t.Fatal(absence)
		}
		c.Invalidate(Invalidation{Cause: Catalog, Scope: OfVersion(configMaps.GroupVersion()), Until: For(15 * time.Second)})
		if why := before.whyRetired(); why == reason.None {
			t.Error("what was the other server's is still there")
		}
		if _, absence := c.Use(configMaps); absence != reason.Upstream {
			t.Errorf("at once: %q, want %q", absence, reason.Upstream)
		}
		if _, absence := c.Use(otherMaps); absence != reason.None {
			t.Errorf("another group: %q", absence)
		}
		time.Sleep(15 * time.Second)
		if _, absence := c.Use(configMaps); absence != reason.None {
			t.Errorf("after a while: %q", absence)
		}
	})
}
