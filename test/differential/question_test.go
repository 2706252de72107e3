package differential

import (
	"net/url"
	"testing"

	"github.com/listproxy/listproxy/test/differential/cluster"
	"github.com/listproxy/listproxy/test/expect"
)

// TestQuestions: what the API server does with a field selector, and what is to come from memory.
func TestQuestions(t *testing.T) {
	anybody := cluster.User{Lists: func(cluster.Resource, string) bool { return true }}
	for name, test := range map[string]struct {
		resource, namespace, query string
		semantics                  semantics
		representation             representation
		effective                  semantics
		selector                   selector
		indexed, memory            bool
	}{
		"plain":                {"pods", "", "limit=5", exact, plainJSON, exact, byNothing, false, true},
		"one key":              {"pods", "a", "fieldSelector=metadata.name=x&limit=5", legacyExact, plainJSON, mostRecent, byMetadata, false, false},
		"one key, no limit":    {"pods", "a", "fieldSelector=metadata.name=x", exact, plainJSON, exact, byMetadata, false, true},
		"one key, narrowed":    {"pods", "", "fieldSelector=metadata.name=x,metadata.namespace=a&limit=1", legacyExact, plainJSON, mostRecent, byMetadata, false, false},
		"a name everywhere":    {"pods", "", "fieldSelector=metadata.name=x&limit=5", legacyExact, protobuf, legacyExact, byMetadata, false, true},
		"no name":              {"nodes", "", "fieldSelector=metadata.name=&limit=5", legacyExact, plainJSON, legacyExact, byMetadata, false, false},
		"a node by name":       {"nodes", "", "fieldSelector=metadata.name=x&limit=5", legacyExact, plainJSON, mostRecent, byMetadata, false, false},
		"all but one key":      {"pods", "a", "fieldSelector=metadata.name!=x&limit=5", legacyExact, plainJSON, legacyExact, byMetadata, false, true},
		"narrowed":             {"pods", "", "fieldSelector=metadata.namespace=a", anyRevision, plainJSON, anyRevision, byMetadata, false, true},
		"narrowed, a page":     {"pods", "", "fieldSelector=metadata.namespace=a&limit=5", exact, plainJSON, exact, byMetadata, false, false},
		"narrowed, next":       {"pods", "", "fieldSelector=metadata.namespace=a&continue=x", continued, plainJSON, continued, byMetadata, false, false},
		"in a namespace":       {"pods", "b", "fieldSelector=metadata.namespace=a&limit=5", exact, plainJSON, exact, byMetadata, false, true},
		"index":                {"pods", "", "fieldSelector=spec.nodeName=a&limit=5", notOlderThan, protobuf, notOlderThan, byFields, true, true},
		"index, exact":         {"pods", "", "fieldSelector=spec.nodeName=a&limit=5", exact, protobuf, exact, byFields, false, true},
		"index, no limit":      {"pods", "", "fieldSelector=spec.nodeName=a", notOlderThan, protobuf, notOlderThan, byFields, false, true},
		"not of the index":     {"pods", "", "fieldSelector=spec.nodeName!=a&limit=5", notOlderThan, protobuf, notOlderThan, byFields, false, true},
		"fields, metadata":     {"pods", "", "fieldSelector=spec.nodeName=a", exact, metadataJSON, exact, byFields, false, false},
		"indented":             {"pods", "", "limit=5&pretty=1", exact, indentedJSON, exact, byNothing, false, true},
		"fields, indented":     {"pods", "", "fieldSelector=spec.nodeName=a", exact, metadataIndented, exact, byFields, false, false},
		"name, metadata":       {"pods", "", "fieldSelector=metadata.name=a&labelSelector=x", exact, metadataProtobuf, exact, byBoth, false, true},
		"labels":               {"secrets", "", "labelSelector=x", exact, plainJSON, exact, byLabels, false, false},
		"the newest":           {"pods", "", "labelSelector=x", mostRecent, plainJSON, mostRecent, byLabels, false, true},
		"no such list":         {"nodes", "a", "", exact, plainJSON, exact, byNothing, false, false},
		"an odd form":          {"pods", "a", "", exact, oddForm, exact, byNothing, false, false},
		"fields of a custom":   {"widgets", "", "fieldSelector=spec.color=a", exact, protobuf, exact, byFields, false, true},
		"an empty term, a key": {"widgets", "", "fieldSelector=,metadata.name=a&limit=1", legacyExact, plainJSON, mostRecent, byMetadata, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			query, err := url.ParseQuery(test.query)
			expect.NoError(t, err)
			q := question{
				Resource: resource(t, test.resource), Namespace: test.namespace, Query: query, User: anybody,
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
			if got := q.memory(); got != test.memory {
				t.Errorf("from memory: %v", got)
			}
		})
	}
}
