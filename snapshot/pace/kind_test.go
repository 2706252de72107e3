package pace

import (
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/listproxy/listproxy/snapshot/index"
)

// TestSelectorOf: a selector that chooses everything, as parsed requests have it, does not count.
func TestSelectorOf(t *testing.T) {
	for name, tt := range map[string]struct {
		q    index.Query
		want selector
	}{
		"all":             {q: index.Query{}},
		"as requests say": {q: index.Query{Labels: labels.Everything(), Fields: fields.Everything()}},
		"one name":        {q: index.Query{Name: "a"}, want: byName},
		"by labels":       {q: index.Query{Labels: labels.SelectorFromSet(labels.Set{"a": "b"})}, want: byLabels},
		"by fields":       {q: index.Query{Fields: fields.OneTermEqualSelector("a", "b")}, want: byFields},
		"by no labels, by fields": {
			q: index.Query{Labels: labels.Everything(), Fields: fields.OneTermEqualSelector("a", "b")}, want: byFields,
		},
	} {
		if kind, _ := KindOf(index.NewTree(false), tt.q); kind.selector != tt.want {
			t.Errorf("%s: %v", name, kind.selector)
		}
	}
}
