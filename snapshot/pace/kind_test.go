package pace

import (
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/listproxy/listproxy/snapshot/index"
)

// TestSelects: a selector that chooses everything, as parsed requests have it, does not count.
func TestSelects(t *testing.T) {
	for name, tt := range map[string]struct {
		q    index.Query
		want bool
	}{
		"all":             {q: index.Query{}},
		"as requests say": {q: index.Query{Labels: labels.Everything(), Fields: fields.Everything()}},
		"one name":        {q: index.Query{Name: "a"}, want: true},
		"by labels":       {q: index.Query{Labels: labels.SelectorFromSet(labels.Set{"a": "b"})}, want: true},
		"by fields":       {q: index.Query{Fields: fields.OneTermEqualSelector("a", "b")}, want: true},
		"by no labels, by fields": {
			q: index.Query{Labels: labels.Everything(), Fields: fields.OneTermEqualSelector("a", "b")}, want: true,
		},
	} {
		if kind, _ := KindOf(index.NewTree(false), tt.q); kind.selects != tt.want {
			t.Errorf("%s: %v", name, kind.selects)
		}
	}
}
