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

// TestQuestions: the selector, the semantics and the index by which kube-apiserver answers a question, and whether the answer
// should come from memory.
func TestQuestions(t *testing.T) {
	anybody := cluster.User{Lists: func(cluster.Resource, string) bool { return true }}
	for name, test := range map[string]struct {
		list           string // [NAMESPACE/]RESOURCE?QUERY
		semantics      semantics
		representation representation // "": JSON
		effective      semantics      // "": semantics
		selector       selector       // "": byNothing
		indexed        bool           // kube-apiserver uses its index of pods by node
		memory         bool
	}{
		"a first page": {list: "pods?limit=5", semantics: exact, memory: true},
		"one key with a limit": {
			list:      "a/pods?fieldSelector=metadata.name=x&limit=5",
			semantics: legacyExact, effective: mostRecent, selector: byMetadata,
		},
		"one key without a limit": {list: "a/pods?fieldSelector=metadata.name=x", semantics: exact, selector: byMetadata, memory: true},
		"one key by name and namespace": {
			list:      "pods?fieldSelector=metadata.name=x,metadata.namespace=a&limit=1",
			semantics: legacyExact, effective: mostRecent, selector: byMetadata,
		},
		"a name in all namespaces": {
			list:      "pods?fieldSelector=metadata.name=x&limit=5",
			semantics: legacyExact, representation: protobuf, selector: byMetadata, memory: true,
		},
		"an empty name": {list: "nodes?fieldSelector=metadata.name=&limit=5", semantics: legacyExact, selector: byMetadata},
		"a node by name": {
			list:      "nodes?fieldSelector=metadata.name=x&limit=5",
			semantics: legacyExact, effective: mostRecent, selector: byMetadata,
		},
		"any other name": {
			list:      "a/pods?fieldSelector=metadata.name!=x&limit=5",
			semantics: legacyExact, selector: byMetadata, memory: true,
		},
		"one namespace by selector":                      {list: "pods?fieldSelector=metadata.namespace=a", semantics: anyRevision, selector: byMetadata, memory: true},
		"first page of one namespace by selector":        {list: "pods?fieldSelector=metadata.namespace=a&limit=5", semantics: exact, selector: byMetadata},
		"next page of one namespace by selector":         {list: "pods?fieldSelector=metadata.namespace=a&continue=x", semantics: continued, selector: byMetadata},
		"another namespace by selector than in the path": {list: "b/pods?fieldSelector=metadata.namespace=a&limit=5", semantics: exact, selector: byMetadata, memory: true},
		"page of a node's pods": {
			list:      "pods?fieldSelector=spec.nodeName=a&limit=5",
			semantics: notOlderThan, representation: protobuf, selector: byFields, indexed: true, memory: true,
		},
		"page of a node's pods, exact": {
			list:      "pods?fieldSelector=spec.nodeName=a&limit=5",
			semantics: exact, representation: protobuf, selector: byFields, memory: true,
		},
		"all of a node's pods": {
			list:      "pods?fieldSelector=spec.nodeName=a",
			semantics: notOlderThan, representation: protobuf, selector: byFields, memory: true,
		},
		"page of other nodes' pods": {
			list:      "pods?fieldSelector=spec.nodeName!=a&limit=5",
			semantics: notOlderThan, representation: protobuf, selector: byFields, memory: true,
		},
		"a field of the type, metadata": {
			list:      "pods?fieldSelector=spec.nodeName=a",
			semantics: exact, representation: metadataJSON, selector: byFields,
		},
		"indented": {list: "pods?limit=5&pretty=1", semantics: exact, representation: indentedJSON, memory: true},
		"a field of the type, indented metadata": {
			list:      "pods?fieldSelector=spec.nodeName=a",
			semantics: exact, representation: metadataIndented, selector: byFields,
		},
		"a name and a label, metadata": {
			list:      "pods?fieldSelector=metadata.name=a&labelSelector=x",
			semantics: exact, representation: metadataProtobuf, selector: byBoth, memory: true,
		},
		"a resource that is not cached":            {list: "secrets?labelSelector=x", semantics: exact, selector: byLabels},
		"consistent, by label":                     {list: "pods?labelSelector=x", semantics: mostRecent, selector: byLabels, memory: true},
		"a namespace of a cluster-scoped resource": {list: "a/nodes?", semantics: exact},
		"an odd representation":                    {list: "a/pods?", semantics: exact, representation: oddForm},
		"a field of a custom resource": {
			list:      "widgets?fieldSelector=spec.color=a",
			semantics: exact, representation: protobuf, selector: byFields, memory: true,
		},
		"one key and an empty term": {
			list:      "widgets?fieldSelector=,metadata.name=a&limit=1",
			semantics: legacyExact, effective: mostRecent, selector: byMetadata,
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
			expect.Same(t, cmp.Or(test.effective, test.semantics), q.effective())
			expect.Same(t, cmp.Or(test.selector, byNothing), q.selector())
			_, indexed := q.indexed()
			expect.Same(t, test.indexed, indexed)
			expect.Same(t, test.memory, q.memory())
		})
	}
}
