package snapshot

import (
	"fmt"
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

// apiServers is that other API servers stand behind the upstream.
func apiServers(handleFailure time.Duration) Invalidation {
	return Invalidation{Cause: Servers, Until: For(handleFailure)}
}

// stored is that API servers do not agree in which version they write config maps, or do again.
func stored(until Until) Invalidation {
	return Invalidation{Cause: Servers, Scope: OfResource(configMaps.GroupResource()), Until: until}
}

// TestInvalidate: what a change makes untrue is dropped at once, for whoever had looked it up before, too,
// and nothing of it starts before its time is over; what it does not concern stays.
func TestInvalidate(t *testing.T) {
	elsewhere := configMaps
	elsewhere.Version, elsewhere.Representation = "v2", media.MetadataJSON
	rebuild := func(r CollectionKey) Invalidation {
		return Invalidation{Cause: Servers, Scope: OfResource(r.GroupResource())}
	}
	moved := Invalidation{Cause: Catalog, Scope: OfVersion(configMaps.GroupVersion()), Until: For(15 * time.Second)}
	defined := Invalidation{Cause: Definition, Scope: OfResource(configMaps.GroupResource()), Until: For(15 * time.Second)}
	type step struct {
		after   time.Duration
		changes []Invalidation
		want    map[CollectionKey]reason.Reason
		loads   int           // so far; 0: as many as there are
		lost    reason.Reason // why a state of config maps was lost, once
	}
	held := func(all ...CollectionKey) map[CollectionKey]reason.Reason {
		want := map[CollectionKey]reason.Reason{configMaps: reason.None, otherMaps: reason.None}
		for _, r := range all {
			want[r] = reason.Upstream
		}
		return want
	}
	for name, steps := range map[string][]step{
		"API servers changed, and again: all is held until there was no change for a time": {
			{changes: []Invalidation{apiServers(15 * time.Second)}, want: held(configMaps, otherMaps)},
			{after: 10 * time.Second, changes: []Invalidation{apiServers(15 * time.Second)}, want: held(configMaps, otherMaps)},
			{after: 15*time.Second - 1, want: held(configMaps, otherMaps), loads: 2},
			{after: 1, want: held(), loads: 4, lost: reason.Upstream},
		},
		"they disagree: one resource is held, in all versions and representations, until both is over": {
			{changes: []Invalidation{stored(UntilLifted())}, want: held(configMaps)},
			{after: time.Hour, want: held(configMaps, elsewhere)},
			{changes: []Invalidation{apiServers(time.Second), stored(Lift())}, want: held(configMaps, otherMaps)},
			{after: time.Second, want: held()},
		},
		"rebuilt: it may be loaded again at once": {
			{changes: []Invalidation{rebuild(otherMaps)}, want: held(), loads: 3},
			{changes: []Invalidation{rebuild(configMaps)}, want: held(), loads: 4, lost: reason.Upstream},
		},
		"moved: API servers that have not heard of it yet would still ask the server of before": {
			{changes: []Invalidation{moved}, want: held(configMaps)},
			{after: 15 * time.Second, want: held(), lost: reason.Moved},
		},
		"defined in another way": {
			{changes: []Invalidation{defined, defined}, want: held(configMaps)},
			{after: 15 * time.Second, want: held(), lost: reason.Schema},
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			u := &upstream{revision: 9}
			c := newCollections(t, u)
			before := map[CollectionKey]*Collection{}
			for r := range held() {
				before[r] = expectUse(t, "at first", c, r, reason.None)
			}
			for i, s := range steps {
				time.Sleep(s.after)
				for _, change := range s.changes {
					c.Invalidate(change)
					for r, was := range before {
						if gone := was.whyRetired() != reason.None; change.Scope.has(r) && !gone {
							t.Errorf("step %d: %v, which somebody had looked up before, is still there", i, r)
						}
					}
				}
				for r, want := range s.want {
					if now := expectUse(t, fmt.Sprintf("step %d: %v", i, r), c, r, want); want == reason.None {
						before[r] = now
					} else if _, unavailable := c.Keep(r); unavailable != want {
						t.Errorf("step %d: %v, an eager one: %q", i, r, unavailable)
					}
				}
				if lost := before[configMaps].counts.lossesByCause(); s.lost != reason.None && (len(lost) != 1 || lost[s.lost] != 1) {
					t.Errorf("step %d: lost %v, want one of %q", i, lost, s.lost)
				}
				if s.loads > 0 && u.loads != s.loads {
					t.Errorf("step %d: %d loads, want %d", i, u.loads, s.loads)
				}
			}
		})
	}
}

// TestChanges: each change is told once, the latest first, by what it was about; and only so many.
func TestChanges(t *testing.T) {
	begun := time.Now()
	definition := Invalidation{Cause: Definition, Scope: OfResource(widgets.GroupResource()), Until: For(time.Minute), What: "one"}
	another := definition
	another.What = "another"
	var c changes
	for at, i := range []Invalidation{
		definition,
		{Cause: Servers, Until: For(time.Minute)},
		{Cause: Servers, Scope: OfResource(widgets.GroupResource()), Until: Lift()},
		{Cause: Catalog, Scope: OfVersion(widgets.GroupVersion())},
		{Cause: Mismatch, Scope: OfCollection(configMaps)},
		another,
	} {
		c = c.with(i, begun.Add(time.Duration(at)))
	}
	expect.Same(t, changes{
		{At: begun.Add(5), Of: "widgets.example.com", What: "another", Cause: reason.Schema},
		{At: begun.Add(4), Of: "configmaps/json", Cause: reason.Mismatch},
		{At: begun.Add(3), Of: "example.com/v1", Cause: reason.Moved},
		{At: begun.Add(1), Of: "all", Cause: reason.Upstream},
	}, c)
	for i := range 2 * maxChanges {
		c = c.with(Invalidation{Cause: Definition, Scope: OfResource(schema.GroupResource{Resource: fmt.Sprint(i)})}, begun)
	}
	if len(c) != maxChanges || c[0].Of != fmt.Sprint(2*maxChanges-1) {
		t.Errorf("%d changes, the latest %+v", len(c), c[0])
	}
}
