package clients

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// TestNoticesWrongWalks: a walk that is not the state at its revision.
func TestNoticesWrongWalks(t *testing.T) {
	of := func(name, revision, tier string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{
			"namespace": "n", "name": name, "resourceVersion": revision, "labels": map[string]any{"tier": tier},
		}}}
	}
	l := &ledger{begin: map[string]*unstructured.Unstructured{"n/a": of("a", "1", "web")}, newest: 2}
	l.add(watch.Event{Type: watch.Added, Object: of("b", "3", "db")})
	l.add(watch.Event{Type: watch.Modified, Object: of("a", "5", "db")})
	l.add(watch.Event{Type: watch.Deleted, Object: of("b", "7", "db")})
	exact := metav1.ListOptions{ResourceVersion: "4"}
	for name, test := range map[string]struct {
		walk  walk
		wrong bool
	}{
		"right":            {walk{revision: 4, objects: state{"n/a": "1", "n/b": "3"}}, false},
		"later":            {walk{revision: 8, objects: state{"n/a": "5"}}, false},
		"as asked":         {walk{revision: 4, asked: exact, objects: state{"n/a": "1", "n/b": "3"}}, false},
		"selected":         {walk{revision: 4, filter: filter{labels: "tier=db"}, objects: state{"n/b": "3"}}, false},
		"selected by then": {walk{revision: 6, filter: filter{labels: "tier=db"}, objects: state{"n/a": "5", "n/b": "3"}}, false},
		"one too few":      {walk{revision: 4, objects: state{"n/a": "1"}}, true},
		"one too many":     {walk{revision: 8, objects: state{"n/a": "5", "n/b": "3"}}, true},
		"an old one":       {walk{revision: 8, objects: state{"n/a": "1"}}, true},
		"a new one":        {walk{revision: 4, objects: state{"n/a": "5", "n/b": "3"}}, true},
		"not selected":     {walk{revision: 4, filter: filter{labels: "tier=db"}, objects: state{"n/a": "1", "n/b": "3"}}, true},
		"another revision": {walk{revision: 8, asked: exact, objects: state{"n/a": "5"}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			test.walk.resource = pods
			k := &walker{ledgers: map[schema.GroupVersionResource]*ledger{pods: l}, walks: []walk{test.walk}}
			if _, err := k.check(); (err != nil) != test.wrong {
				t.Errorf("wrong: %v, want %v", err, test.wrong)
			}
		})
	}
}
