package differential

import (
	"cmp"
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/differential/cluster"
	"github.com/listproxy/listproxy/test/expect"
)

// TestQuestions: of each question, the package knows the kind of its selector, the semantics and the index by which
// kube-apiserver answers it, and whether the answer should come from memory.
func TestQuestions(t *testing.T) {
	anybody := cluster.User{ListsFromMemory: func(cluster.Resource, string) bool { return true }}
	for name, test := range map[string]struct {
		list           string // [NAMESPACE/]RESOURCE?QUERY
		semantics      semantics
		representation representation // "": JSON
		wantEffective  semantics      // "": semantics
		wantSelector   selector       // "": byNothing
		wantIndexed    bool           // kube-apiserver uses its index of pods by node
		wantHit        bool
	}{
		"a first page": {list: "pods?limit=5", semantics: exact, wantHit: true},
		"one key with a limit": {
			list:      "a/pods?fieldSelector=metadata.name=x&limit=5",
			semantics: legacyExact, wantEffective: mostRecent, wantSelector: byMetadata,
		},
		"one key without a limit": {list: "a/pods?fieldSelector=metadata.name=x", semantics: exact, wantSelector: byMetadata, wantHit: true},
		"one key by name and namespace": {
			list:      "pods?fieldSelector=metadata.name=x,metadata.namespace=a&limit=1",
			semantics: legacyExact, wantEffective: mostRecent, wantSelector: byMetadata,
		},
		"a name in all namespaces": {
			list:      "pods?fieldSelector=metadata.name=x&limit=5",
			semantics: legacyExact, representation: protobuf, wantSelector: byMetadata, wantHit: true,
		},
		"an empty name": {list: "nodes?fieldSelector=metadata.name=&limit=5", semantics: legacyExact, wantSelector: byMetadata},
		"a node by name": {
			list:      "nodes?fieldSelector=metadata.name=x&limit=5",
			semantics: legacyExact, wantEffective: mostRecent, wantSelector: byMetadata,
		},
		"any other name": {
			list:      "a/pods?fieldSelector=metadata.name!=x&limit=5",
			semantics: legacyExact, wantSelector: byMetadata, wantHit: true,
		},
		"one namespace by selector":                      {list: "pods?fieldSelector=metadata.namespace=a", semantics: anyRevision, wantSelector: byMetadata, wantHit: true},
		"first page of one namespace by selector":        {list: "pods?fieldSelector=metadata.namespace=a&limit=5", semantics: exact, wantSelector: byMetadata},
		"next page of one namespace by selector":         {list: "pods?fieldSelector=metadata.namespace=a&continue=x", semantics: continued, wantSelector: byMetadata},
		"another namespace by selector than in the path": {list: "b/pods?fieldSelector=metadata.namespace=a&limit=5", semantics: exact, wantSelector: byMetadata, wantHit: true},
		"page of a node's pods": {
			list:      "pods?fieldSelector=spec.nodeName=a&limit=5",
			semantics: notOlderThan, representation: protobuf, wantSelector: byFields, wantIndexed: true, wantHit: true,
		},
		"page of a node's pods, exact": {
			list:      "pods?fieldSelector=spec.nodeName=a&limit=5",
			semantics: exact, representation: protobuf, wantSelector: byFields, wantHit: true,
		},
		"all of a node's pods": {
			list:      "pods?fieldSelector=spec.nodeName=a",
			semantics: notOlderThan, representation: protobuf, wantSelector: byFields, wantHit: true,
		},
		"page of other nodes' pods": {
			list:      "pods?fieldSelector=spec.nodeName!=a&limit=5",
			semantics: notOlderThan, representation: protobuf, wantSelector: byFields, wantHit: true,
		},
		"a field of the type, metadata": {
			list:      "pods?fieldSelector=spec.nodeName=a",
			semantics: exact, representation: metadataJSON, wantSelector: byFields,
		},
		"indented": {list: "pods?limit=5&pretty=1", semantics: exact, representation: indentedJSON, wantHit: true},
		"a field of the type, indented metadata": {
			list:      "pods?fieldSelector=spec.nodeName=a",
			semantics: exact, representation: metadataIndented, wantSelector: byFields,
		},
		"a name and a label, metadata": {
			list:      "pods?fieldSelector=metadata.name=a&labelSelector=x",
			semantics: exact, representation: metadataProtobuf, wantSelector: byBoth, wantHit: true,
		},
		"a resource that is not cached":            {list: "secrets?labelSelector=x", semantics: exact, wantSelector: byLabels},
		"consistent, by label":                     {list: "pods?labelSelector=x", semantics: mostRecent, wantSelector: byLabels, wantHit: true},
		"a namespace of a cluster-scoped resource": {list: "a/nodes?", semantics: exact},
		"an odd representation":                    {list: "a/pods?", semantics: exact, representation: forwardedForm},
		"a field of a custom resource": {
			list:      "widgets?fieldSelector=spec.color=a",
			semantics: exact, representation: protobuf, wantSelector: byFields, wantHit: true,
		},
		"one key and an empty term": {
			list:      "widgets?fieldSelector=,metadata.name=a&limit=1",
			semantics: legacyExact, wantEffective: mostRecent, wantSelector: byMetadata,
		},
	} {
		t.Run(name, func(t *testing.T) {
			list, err := url.Parse(test.list)
			expect.NoError(t, err)
			namespace, name := path.Split(list.Path)
			q := question{
				Resource: resource(t, name), Namespace: strings.TrimSuffix(namespace, "/"), Query: list.Query(), User: anybody,
				Semantics: test.semantics, Representation: cmp.Or(test.representation, plainJSON),
			}
			expect.Same(t, cmp.Or(test.wantEffective, test.semantics), q.effective())
			expect.Same(t, cmp.Or(test.wantSelector, byNothing), q.selectorKind())
			_, indexed := q.indexedNode()
			expect.Same(t, test.wantIndexed, indexed)
			expect.Same(t, test.wantHit, q.shouldHit())
		})
	}
}
