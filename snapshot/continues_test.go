package snapshot

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/freshness"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/test/expect"
)

// TestWantNext: the feed is told of a newest page only if another one follows it.
func TestWantNext(t *testing.T) {
	var objects []*index.Object
	for i := range 10 {
		objects = append(objects, index.NewObject(0, fmt.Sprintf("ns%d/o%d", i%2, i), 7, nil))
	}
	known := Fixed(7, "PodList", "v1", objects)
	r := resourceNamed("pods")
	none, err := labels.Parse("app=none")
	expect.NoError(t, err)
	for name, tt := range map[string]struct {
		q    index.Query
		view *View
		want bool
	}{
		"no limit":                    {q: index.Query{}},
		"all fit":                     {q: index.Query{Limit: 10}},
		"one too many":                {q: index.Query{Limit: 9}, want: true},
		"those of a namespace fit":    {q: index.Query{Limit: 5, Scope: index.Scope{Namespace: "ns1"}}},
		"or do not":                   {q: index.Query{Limit: 4, Scope: index.Scope{Namespace: "ns1"}}, want: true},
		"one name":                    {q: index.Query{Limit: 1, Scope: index.Scope{Namespace: "ns1"}, Name: "o1"}},
		"those with a label fit":      {q: index.Query{Limit: 1, Labels: none}},
		"a field that nobody selects": {q: index.Query{Limit: 1, Fields: fields.OneTermEqualSelector("spec.x", "y")}},
		"nothing is known":            {q: index.Query{Limit: 1}, view: &View{absence: reason.Warming}},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.q.Fields == nil {
				tt.q.Fields = fields.Everything()
			}
			if tt.view == nil {
				tt.view = &View{Interval: Interval{1, 7}, frame: known.Frame, newest: known.tree}
			}
			found := newCollection(r, Limits{}, nil, nil, &freshness.Numbers{})
			found.view.Store(tt.view)
			c := &Collections{all: map[Resource]*running{r: {Collection: found}}}
			c.WantNext(r, tt.q)
			c.WantNext(resourceNamed("nodes"), tt.q) // which are not there
			if told := len(found.probeRequests) == 1; told != tt.want {
				t.Errorf("the feed was told: %v", told)
			}
		})
	}
}
