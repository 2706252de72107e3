package feed

import (
	"fmt"
	"testing"

	"github.com/listproxy/listproxy/test/harness"
)

// TestChangesBelowTheLoad: objects that were created and deleted before a state was loaded come again in the watch
// that begins with the newest change that the state knows. They contradict nothing.
func TestChangesBelowTheLoad(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	c := ownCluster(t)
	ns := c.namespace(t, "below")
	tests := []struct {
		name string
		kind kind
		// older are there before the newest object of the state that is loaded, and gone come and go after it.
		older []string
		after func(t *testing.T, k kind)
	}{
		{name: "one was created and deleted", kind: limitRanges, after: func(t *testing.T, k kind) {
			c.create(t, k, ns, "gone")
			c.remove(t, k, ns, "gone")
		}},
		{name: "one was created, changed and deleted", kind: podTemplates, after: func(t *testing.T, k kind) {
			c.create(t, k, ns, "gone")
			c.touch(t, k, ns, "gone", "once")
			c.touch(t, k, ns, "gone", "twice")
			c.remove(t, k, ns, "gone")
		}},
		{name: "an older one was deleted", kind: resourceQuotas, older: []string{"gone", "stays"}, after: func(t *testing.T, k kind) {
			c.remove(t, k, ns, "gone")
		}},
		{name: "an older one was changed and deleted", kind: budgets, older: []string{"gone", "stays"}, after: func(t *testing.T, k kind) {
			c.touch(t, k, ns, "gone", "once")
			c.remove(t, k, ns, "gone")
		}},
		{name: "one was deleted, created and deleted again", kind: networkPolicies, older: []string{"gone"}, after: func(t *testing.T, k kind) {
			c.remove(t, k, ns, "gone")
			c.create(t, k, ns, "gone")
			c.remove(t, k, ns, "gone")
		}},
		{name: "many came and went", kind: revisions, older: []string{"stays"}, after: func(t *testing.T, k kind) {
			for i := range 10 {
				c.create(t, k, ns, fmt.Sprint("gone-", i))
			}
			for i := range 10 {
				c.remove(t, k, ns, fmt.Sprint("gone-", i))
			}
		}},
		{name: "a custom one was created and deleted", kind: widgets, after: func(t *testing.T, k kind) {
			c.create(t, k, ns, "gone")
			c.remove(t, k, ns, "gone")
		}},
	}
	r := newRig(t, c, rigOptions{})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := &feeds{rig: r, kind: tt.kind, namespace: ns}
			for _, name := range tt.older {
				r.create(t, tt.kind, ns, name)
			}
			r.create(t, tt.kind, ns, "newest")
			tt.after(t, tt.kind)
			known := f.begin(t, false)
			loads := r.count(tt.kind, fullLoad)
			r.hop.CutAll()
			known = append(known, f.goesOn(t))

			// What comes after the state counts, also where its names have been seen below it.
			known = append(known, r.create(t, tt.kind, ns, "gone"), r.touch(t, tt.kind, ns, "newest", "later"))
			r.remove(t, tt.kind, ns, "gone")
			known = append(known, r.touch(t, tt.kind, ns, "newest", "last"), f.goesOn(t))
			again := r.count(tt.kind, fullLoad) - loads
			t.Logf("full lists: %d at the beginning, %d since then, for %d feeds; restarts: %v", loads, again, len(f.accepts()), r.restarts(t, tt.kind))
			if again != 0 {
				t.Errorf("loaded %d times again", again)
			}
			if lost := r.restarts(t, tt.kind); len(lost) > 0 {
				t.Errorf("lost: %v", lost)
			}
			f.stillKnown(t, known)
		})
	}
}
