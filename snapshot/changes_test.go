package snapshot

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
)

// TestChanges: each change is told once, the latest first, by what it was about; and only so many.
func TestChanges(t *testing.T) {
	begun := time.Now()
	widgets := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	pods := Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Representation: media.JSON}
	var c changes
	for at, i := range []Invalidation{
		{Cause: Definition, Scope: OfResource(widgets), Until: For(time.Minute), What: "one"},
		{Cause: Servers, Until: For(time.Minute)},
		{Cause: Servers, Scope: OfResource(widgets), Until: Lift()},
		{Cause: Catalog, Scope: OfVersion(schema.GroupVersion{Group: "example.com", Version: "v1"})},
		{Cause: Mismatch, Scope: OfCollection(pods)},
		{Cause: Definition, Scope: OfResource(widgets), Until: For(time.Minute), What: "another"},
	} {
		c = c.with(i, begun.Add(time.Duration(at)))
	}
	want := changes{
		{At: begun.Add(5), Of: "widgets.example.com", What: "another", Cause: reason.Schema},
		{At: begun.Add(4), Of: "pods/json", Cause: reason.Mismatch},
		{At: begun.Add(3), Of: "example.com/v1", Cause: reason.Moved},
		{At: begun.Add(1), Of: "all", Cause: reason.Upstream},
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for i := range 2 * maxChanges {
		c = c.with(Invalidation{Cause: Definition, Scope: OfResource(schema.GroupResource{Resource: fmt.Sprint(i)})}, begun)
	}
	if len(c) != maxChanges || c[0].Of != fmt.Sprint(2*maxChanges-1) {
		t.Errorf("%d changes, the latest %+v", len(c), c[0])
	}
}
