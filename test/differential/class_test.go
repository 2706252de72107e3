package differential

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/differential/cluster"
	"github.com/listproxy/listproxy/test/expect"
)

func named(t *testing.T, name string) cluster.Resource {
	t.Helper()
	all := cluster.Resources()
	i := slices.IndexFunc(all, func(r cluster.Resource) bool { return r.Resource == name })
	if i < 0 {
		t.Fatalf("no resource %q", name)
	}
	return all[i]
}

// TestQuestions: what the API server does with a field selector, and what is to come from memory.
func TestQuestions(t *testing.T) {
	anybody := cluster.User{Lists: func(cluster.Resource, string) bool { return true }}
	for name, test := range map[string]struct {
		resource, namespace, query string
		semantics                  Semantics
		representation             Representation
		effective                  Semantics
		selector                   Selector
		indexed, memory            bool
	}{
		"plain":                {"pods", "", "limit=5", Exact, JSON, Exact, None, false, true},
		"one key":              {"pods", "a", "fieldSelector=metadata.name=x&limit=5", Legacy, JSON, MostRecent, Metadata, false, false},
		"one key, no limit":    {"pods", "a", "fieldSelector=metadata.name=x", Exact, JSON, Exact, Metadata, false, true},
		"one key, narrowed":    {"pods", "", "fieldSelector=metadata.name=x,metadata.namespace=a&limit=1", Legacy, JSON, MostRecent, Metadata, false, false},
		"a name everywhere":    {"pods", "", "fieldSelector=metadata.name=x&limit=5", Legacy, Protobuf, Legacy, Metadata, false, true},
		"no name":              {"nodes", "", "fieldSelector=metadata.name=&limit=5", Legacy, JSON, Legacy, Metadata, false, false},
		"a node by name":       {"nodes", "", "fieldSelector=metadata.name=x&limit=5", Legacy, JSON, MostRecent, Metadata, false, false},
		"all but one key":      {"pods", "a", "fieldSelector=metadata.name!=x&limit=5", Legacy, JSON, Legacy, Metadata, false, true},
		"narrowed":             {"pods", "", "fieldSelector=metadata.namespace=a", Any, JSON, Any, Metadata, false, true},
		"narrowed, a page":     {"pods", "", "fieldSelector=metadata.namespace=a&limit=5", Exact, JSON, Exact, Metadata, false, false},
		"narrowed, next":       {"pods", "", "fieldSelector=metadata.namespace=a&continue=x", Continue, JSON, Continue, Metadata, false, false},
		"in a namespace":       {"pods", "b", "fieldSelector=metadata.namespace=a&limit=5", Exact, JSON, Exact, Metadata, false, true},
		"index":                {"pods", "", "fieldSelector=spec.nodeName=a&limit=5", NotOlderThan, Protobuf, NotOlderThan, Fields, true, true},
		"index, exact":         {"pods", "", "fieldSelector=spec.nodeName=a&limit=5", Exact, Protobuf, Exact, Fields, false, true},
		"index, no limit":      {"pods", "", "fieldSelector=spec.nodeName=a", NotOlderThan, Protobuf, NotOlderThan, Fields, false, true},
		"not of the index":     {"pods", "", "fieldSelector=spec.nodeName!=a&limit=5", NotOlderThan, Protobuf, NotOlderThan, Fields, false, true},
		"fields, metadata":     {"pods", "", "fieldSelector=spec.nodeName=a", Exact, MetadataJSON, Exact, Fields, false, false},
		"indented":             {"pods", "", "limit=5&pretty=1", Exact, Indented, Exact, None, false, true},
		"fields, indented":     {"pods", "", "fieldSelector=spec.nodeName=a", Exact, MetadataIndented, Exact, Fields, false, false},
		"name, metadata":       {"pods", "", "fieldSelector=metadata.name=a&labelSelector=x", Exact, MetadataProtobuf, Exact, Both, false, true},
		"labels":               {"secrets", "", "labelSelector=x", Exact, JSON, Exact, Labels, false, false},
		"the newest":           {"pods", "", "labelSelector=x", MostRecent, JSON, MostRecent, Labels, false, false},
		"no such list":         {"nodes", "a", "", Exact, JSON, Exact, None, false, false},
		"an odd form":          {"pods", "a", "", Exact, OddForm, Exact, None, false, false},
		"fields of a custom":   {"widgets", "", "fieldSelector=spec.color=a", Exact, Protobuf, Exact, Fields, false, true},
		"an empty term, a key": {"widgets", "", "fieldSelector=,metadata.name=a&limit=1", Legacy, JSON, MostRecent, Metadata, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			query, err := url.ParseQuery(test.query)
			expect.NoError(t, err)
			q := Question{
				Resource: named(t, test.resource), Namespace: test.namespace, Query: query, User: anybody,
				Semantics: test.semantics, Representation: test.representation,
			}
			if got := q.effective(); got != test.effective {
				t.Errorf("as %s, want %s", got, test.effective)
			}
			if got := q.selector(); got != test.selector {
				t.Errorf("selector %s, want %s", got, test.selector)
			}
			if _, got := q.indexed(); got != test.indexed {
				t.Errorf("indexed: %v", got)
			}
			if got := q.memory(false); got != test.memory {
				t.Errorf("from memory: %v", got)
			}
			if got, want := q.memory(true), test.memory || test.semantics == MostRecent; got != want {
				t.Errorf("from memory, where the newest state is: %v", got)
			}
		})
	}
}

func TestMissing(t *testing.T) {
	report := NewReport()
	all := len(classes())
	if got := len(report.Missing()); got != all {
		t.Errorf("%d classes are missing from an empty report, want %d", got, all)
	}
	q := Question{Resource: named(t, "nodes"), Semantics: Exact, Representation: Protobuf, Answerable: true}
	report.compared(q, Answer{Status: 403})
	odd := q
	odd.Odd = true
	report.compared(odd, Answer{Status: 200})
	if got := len(report.Missing()); got != all {
		t.Errorf("%d classes are missing after what does not count, want %d", got, all)
	}
	report.compared(q, Answer{Status: 200, Header: map[string][]string{"Cache-Status": {"listproxy; hit; detail=exact"}}})
	missing := report.Missing()
	if class, _ := q.Class(); len(missing) != all-1 || slices.Contains(missing, class) {
		t.Errorf("%d classes are missing, %v still: %v", len(missing), class, slices.Contains(missing, class))
	}
	if text := report.String(); !strings.Contains(text, "1, 1 of 1 from memory") {
		t.Errorf("the report does not show the class: %s", text)
	}
}
