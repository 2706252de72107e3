package snapshot

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestInvalidate: Invalidate, which is called after a change of a definition or a route, drops the collections of a scope and
// no others. They can be started again when Skew has passed since the last change: by then, most API servers have learned of
// it.
func TestInvalidate(t *testing.T) {
	otherVersion := widgets
	otherVersion.Version = "v2"
	otherVersion.Representation = media.MetadataJSON
	otherGroup := widgets
	otherGroup.Group = "other"
	keys := []CollectionKey{widgets, otherVersion, otherGroup}
	for name, tt := range map[string]struct {
		scope       Scope         // the zero Scope has all collections
		cause       reason.Reason // why the collections are dropped
		wantDropped []CollectionKey
	}{
		"a definition changes": {
			scope: OfResource(widgets.GroupResource()), cause: reason.Schema,
			wantDropped: []CollectionKey{widgets, otherVersion},
		},
		"a route changes": {
			scope: OfVersion(widgets.GroupVersion()), cause: reason.Moved,
			wantDropped: []CollectionKey{widgets},
		},
		"all routes change": {
			scope: Scope{}, cause: reason.Moved,
			wantDropped: keys,
		},
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

			// Something changes. The collections of the scope are dropped, and cannot be started again.
			all.Invalidate(tt.scope, tt.cause)
			for _, key := range keys {
				wantDropped := slices.Contains(tt.wantDropped, key)
				wantLoss := reason.None
				if wantDropped {
					wantLoss = tt.cause
				}
				if dropped := whyRetired(before[key]) != reason.None; dropped != wantDropped {
					t.Errorf("%v is dropped: got %t, want %t", key, dropped, wantDropped)
				}
				expectLossCause(t, before[key], wantLoss)
			}
			expectAll := func(when string, want reason.Reason) {
				t.Helper()
				for _, key := range tt.wantDropped {
					expectUse(t, fmt.Sprintf("%s: %v", when, key), all, key, want)
				}
			}
			expectAll("at once", reason.Upstream)
			if _, unavailable := all.Keep(widgets); unavailable != reason.Upstream {
				t.Errorf("an eager collection: got reason %q, want %q", unavailable, reason.Upstream)
			}

			// There is a second change. Skew counts from this one.
			time.Sleep(Skew / 2)
			all.Invalidate(tt.scope, tt.cause)
			time.Sleep(Skew - time.Nanosecond)
			expectAll("just before Skew has passed since the second change", reason.Upstream)
			time.Sleep(time.Nanosecond)
			expectAll("when Skew has passed", reason.None)
		})
	}
}
