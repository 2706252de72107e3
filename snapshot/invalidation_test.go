package snapshot

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestInvalidate: Invalidate drops the collections of a scope, and no others. They can be started again when Skew has passed
// since the last change.
func TestInvalidate(t *testing.T) {
	otherVersion, otherGroup := widgets, widgets
	otherVersion.Version = "v2"
	otherVersion.Representation = media.MetadataJSON
	otherGroup.Group = "other"
	keys := []CollectionKey{widgets, otherVersion, otherGroup}
	for name, tt := range map[string]struct {
		invalidation Invalidation
		wantDropped  []CollectionKey
		wantLoss     reason.Reason
	}{
		"a definition changes": {
			invalidation: Invalidation{Cause: CauseDefinition, Scope: OfResource(widgets.GroupResource())},
			wantDropped:  []CollectionKey{widgets, otherVersion}, wantLoss: reason.Schema,
		},
		"a route changes": {
			invalidation: Invalidation{Cause: CauseCatalog, Scope: OfVersion(widgets.GroupVersion())},
			wantDropped:  []CollectionKey{widgets}, wantLoss: reason.Moved,
		},
		"all routes change": {invalidation: Invalidation{Cause: CauseCatalog}, wantDropped: keys, wantLoss: reason.Moved},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			p := newPlane(t)
			p.serve(otherVersion)
			p.serve(otherGroup)
			all := newCollections(t, p)
			before := map[CollectionKey]*Collection{}
			for _, key := range keys {
				before[key] = expectUse(t, "at first", all, key, reason.None)
			}
			all.Invalidate(tt.invalidation)
			for _, key := range keys {
				wantLoss := reason.None
				if slices.Contains(tt.wantDropped, key) {
					wantLoss = tt.wantLoss
				}
				if dropped, want := whyRetired(before[key]) != reason.None, wantLoss != reason.None; dropped != want {
					t.Errorf("%v is dropped: got %t, want %t", key, dropped, want)
				}
				expectLoss(t, before[key], wantLoss)
			}
			expectAll := func(when string, want reason.Reason) {
				t.Helper()
				for _, key := range tt.wantDropped {
					expectUse(t, fmt.Sprintf("%s: %v", when, key), all, key, want)
				}
			}
			expectAll("at once", reason.Upstream)
			if _, refusal := all.Keep(widgets); refusal != reason.Upstream {
				t.Errorf("an eager collection: got reason %q, want %q", refusal, reason.Upstream)
			}
			time.Sleep(Skew / 2)
			all.Invalidate(tt.invalidation)
			time.Sleep(Skew - time.Nanosecond)
			expectAll("just before Skew has passed since the second change", reason.Upstream)
			time.Sleep(time.Nanosecond)
			expectAll("when Skew has passed", reason.None)
		})
	}
}

// TestChanges: recordChange puts a change first, in place of an earlier one of the same cause and scope, and keeps at most
// maxChanges.
func TestChanges(t *testing.T) {
	begun := time.Now()
	c := &Collections{}
	for i, change := range []Change{
		{Scope: "widgets.example.com", Cause: CauseDefinition, What: "one"},
		{Scope: "all", Cause: CauseServers},
		{Scope: "example.com/v1", Cause: CauseCatalog},
		{Scope: "widgets.example.com", Cause: CauseServers},
		{Scope: "widgets.example.com", Cause: CauseDefinition, What: "another"},
	} {
		change.At = begun.Add(time.Duration(i))
		c.recordChange(change)
	}
	expect.Same(t, []Change{
		{At: begun.Add(4), Scope: "widgets.example.com", Cause: CauseDefinition, What: "another"},
		{At: begun.Add(3), Scope: "widgets.example.com", Cause: CauseServers},
		{At: begun.Add(2), Scope: "example.com/v1", Cause: CauseCatalog},
		{At: begun.Add(1), Scope: "all", Cause: CauseServers},
	}, c.Changes())
	for i := range 2 * maxChanges {
		c.recordChange(Change{Scope: fmt.Sprint(i)})
	}
	expect.Same(t, maxChanges, len(c.Changes()))
	expect.Same(t, fmt.Sprint(2*maxChanges-1), c.Changes()[0].Scope)
}
