package snapshot

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// otherMaps is a resource of another group.
var otherMaps = CollectionKey{GroupVersionResource: schema.GroupVersionResource{Group: "other", Version: "v1", Resource: "configmaps"}, Namespaced: true, Representation: media.JSON}

// expectUse asks for a collection after the feeds did what they can without waiting.
func expectUse(t *testing.T, when string, c *Collections, r CollectionKey, want reason.Reason) *Collection {
	t.Helper()
	collection, unavailable := c.Use(r)
	if unavailable == reason.None {
		synctest.Wait()
		_, unavailable = collection.NotOlderThan(t.Context(), 0)
	}
	if unavailable != want {
		t.Errorf("%s: %q, want %q", when, unavailable, want)
	}
	return collection
}

// TestInvalidate: an invalidation drops the collections of its scope, and no others. After a change of a definition or
// route they can be started again when Skew has passed since the last one; after a mismatch at once.
func TestInvalidate(t *testing.T) {
	otherVersion := configMaps
	otherVersion.Version = "v2"
	otherVersion.Representation = media.MetadataJSON
	keys := []CollectionKey{configMaps, otherVersion, otherMaps}
	for name, tt := range map[string]struct {
		invalidation Invalidation
		want         []CollectionKey // that are dropped
		wantLoss     reason.Reason
		startsAtOnce bool
	}{
		"a definition": {
			invalidation: Invalidation{Cause: CauseDefinition, Scope: OfResource(configMaps.GroupResource())},
			want:         []CollectionKey{configMaps, otherVersion}, wantLoss: reason.Schema,
		},
		"a route": {
			invalidation: Invalidation{Cause: CauseCatalog, Scope: OfVersion(configMaps.GroupVersion())},
			want:         []CollectionKey{configMaps}, wantLoss: reason.Moved,
		},
		"all routes": {invalidation: Invalidation{Cause: CauseCatalog}, want: keys, wantLoss: reason.Moved},
		"a mismatch": {
			invalidation: Invalidation{Cause: CauseMismatch, Scope: OfCollection(configMaps)},
			want:         []CollectionKey{configMaps}, wantLoss: reason.Mismatch, startsAtOnce: true,
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			all := newCollections(t, &upstream{revision: 9})
			before := map[CollectionKey]*Collection{}
			for _, key := range keys {
				before[key] = expectUse(t, "at first", all, key, reason.None)
			}
			all.Invalidate(tt.invalidation)
			for _, key := range keys {
				dropped := whyRetired(before[key]) != reason.None
				if dropped != slices.Contains(tt.want, key) {
					t.Errorf("%v is dropped: %t", key, dropped)
				}
				if losses := before[key].counts.lossesByCause(); dropped && losses[tt.wantLoss] != 1 {
					t.Errorf("losses of %v: %v, want one because of %q", key, losses, tt.wantLoss)
				}
			}
			expectAll := func(when string, want reason.Reason) {
				t.Helper()
				for _, key := range tt.want {
					expectUse(t, fmt.Sprintf("%s: %v", when, key), all, key, want)
				}
			}
			if tt.startsAtOnce {
				expectAll("at once", reason.None)
				return
			}
			expectAll("at once", reason.Upstream)
			if _, refusal := all.Keep(configMaps); refusal != reason.Upstream {
				t.Errorf("an eager collection is refused because of %q, want %q", refusal, reason.Upstream)
			}
			time.Sleep(Skew / 2)
			all.Invalidate(tt.invalidation)
			time.Sleep(Skew - 1)
			expectAll("just before Skew has passed since the second change", reason.Upstream)
			time.Sleep(time.Nanosecond)
			expectAll("when Skew has passed", reason.None)
		})
	}
}

// TestChanges: changes has each change once, the latest first, and at most maxChanges.
func TestChanges(t *testing.T) {
	begun := time.Now()
	var c changes
	for at, change := range []Change{
		{Of: "widgets.example.com", Cause: CauseDefinition, What: "one"},
		{Of: "all", Cause: CauseServers},
		{Of: "example.com/v1", Cause: CauseCatalog},
		{Of: "widgets.example.com", Cause: CauseServers},
		{Of: "widgets.example.com", Cause: CauseDefinition, What: "another"},
	} {
		change.At = begun.Add(time.Duration(at))
		c = c.with(change)
	}
	expect.Same(t, changes{
		{At: begun.Add(4), Of: "widgets.example.com", Cause: CauseDefinition, What: "another"},
		{At: begun.Add(3), Of: "widgets.example.com", Cause: CauseServers},
		{At: begun.Add(2), Of: "example.com/v1", Cause: CauseCatalog},
		{At: begun.Add(1), Of: "all", Cause: CauseServers},
	}, c)
	for i := range 2 * maxChanges {
		c = c.with(Change{Of: fmt.Sprint(i)})
	}
	if last := fmt.Sprint(2*maxChanges - 1); len(c) != maxChanges || c[0].Of != last {
		t.Errorf("%d changes, the latest of %s; want %d, of %s", len(c), c[0].Of, maxChanges, last)
	}
}

// TestScopeNames: String names a scope as users know its resources.
func TestScopeNames(t *testing.T) {
	for want, scope := range map[string]Scope{
		"all":                 {},
		"example.com/v1":      OfVersion(widgets.GroupVersion()),
		"widgets.example.com": OfResource(widgets.GroupResource()),
		"configmaps/json":     OfCollection(configMaps),
	} {
		if got := scope.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
