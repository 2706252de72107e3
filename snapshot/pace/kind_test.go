package pace

import (
	"strconv"
	"strings"
	"testing"
	"time"

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

// TestSelectorsAreTold: what a list costs says nothing of one with another selector, nor of an
// indented one, however many objects both look at.
func TestSelectorsAreTold(t *testing.T) {
	kinds := map[Kind]bool{}
	for i := range 100 {
		value := strconv.Itoa(100 + i)
		for _, q := range []index.Query{
			{Labels: labels.SelectorFromSet(labels.Set{"app": value})},
			{Labels: labels.Everything(), Fields: fields.OneTermEqualSelector("spec.nodeName", value)},
		} {
			kind, _ := KindOf(index.NewTree(false), q)
			kinds[kind] = true
			if again, _ := KindOf(index.NewTree(false), q); again != kind {
				t.Error("the same list is of two kinds")
			}
			q.Indented = true
			if indented, _ := KindOf(index.NewTree(false), q); kinds[indented] {
				t.Error("an indented list is of the kind of one that is not")
			}
		}
	}
	if len(kinds) < 100 { // of 200 selectors
		t.Errorf("only %d kinds", len(kinds))
	}
	var long []string
	for i := range 10_000 {
		long = append(long, "!"+strconv.Itoa(i))
	}
	if q, err := labels.Parse(strings.Join(long, ",")); err != nil {
		t.Error(err)
	} else if kind, _ := KindOf(index.NewTree(false), index.Query{Labels: q}); kind.length < 15 {
		t.Errorf("a long selector has the length %d", kind.length)
	}
}

// TestGuess: a list that was not measured is guessed by its bytes; one by labels by how many objects the
// upstream has to match, whether it selects many or few.
func TestGuess(t *testing.T) {
	tree := index.NewTree(false)
	for i := range 4000 {
		key := index.JoinKey([]string{"a", "b"}[i%2], strconv.Itoa(i))
		tree.Set(&index.Object{Key: key, Bytes: make([]byte, 1000)})
	}
	labeled := labels.SelectorFromSet(labels.Set{"a": "b"})
	for name, tt := range map[string]struct {
		q    index.Query
		want time.Duration
	}{
		"all":                      {q: index.Query{}, want: 40 * ms},
		"of a namespace":           {q: index.Query{Scope: index.Scope{Namespace: "a"}}, want: 20 * ms},
		"a page":                   {q: index.Query{Limit: 500}, want: 5 * ms},
		"a small page":             {q: index.Query{Limit: 5}, want: leastCost},
		"by labels":                {q: index.Query{Labels: labeled}, want: 4 * ms},
		"of a namespace, labels":   {q: index.Query{Labels: labeled, Scope: index.Scope{Namespace: "a"}}, want: 2 * ms},
		"a page by labels":         {q: index.Query{Labels: labeled, Limit: 5}, want: 4 * ms},
		"by labels, where is none": {q: index.Query{Labels: labeled, Scope: index.Scope{Namespace: "c"}}, want: leastCost},
		"by name":                  {q: index.Query{Name: "1", Labels: labeled}, want: leastCost},
		"by fields":                {q: index.Query{Fields: fields.OneTermEqualSelector("a", "b")}, want: leastCost},
	} {
		if _, guess := KindOf(tree, tt.q); guess != tt.want {
			t.Errorf("%s: %v, want %v", name, guess, tt.want)
		}
	}
}
