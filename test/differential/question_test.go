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

// TestQuestions: what the API server does with a field selector, and what is to come from memory.
func TestQuestions(t *testing.T) {
	anybody := cluster.User{Lists: func(cluster.Resource, string) bool { return true }}
	for name, test := range map[string]struct {
		list            string // NAMESPACE/RESOURCE?QUERY, or without a namespace
		semantics       semantics
		representation  representation // none: JSON
		effective       semantics      // none: the same
		selector        selector       // none: by nothing
		indexed, memory bool
	}{
		"plain": {list: "pods?limit=5", semantics: exact, memory: true},
		"one key": {
			list:      "a/pods?fieldSelector=metadata.name=x&limit=5",
			semantics: legacyExact, effective: mostRecent, selector: byMetadata,
		},
		"one key, no limit": {list: "a/pods?fieldSelector=metadata.name=x", semantics: exact, selector: byMetadata, memory: true},
		"one key, narrowed": {
			list:      "pods?fieldSelector=metadata.name=x,metadata.namespace=a&limit=1",
			semantics: legacyExact, effective: mostRecent, selector: byMetadata,
		},
		"a name everywhere": {
			list:      "pods?fieldSelector=metadata.name=x&limit=5",
			semantics: legacyExact, representation: protobuf, selector: byMetadata, memory: true,
		},
		"no name": {list: "nodes?fieldSelector=metadata.name=&limit=5", semantics: legacyExact, selector: byMetadata},
		"a node by name": {
			list:      "nodes?fieldSelector=metadata.name=x&limit=5",
			semantics: legacyExact, effective: mostRecent, selector: byMetadata,
		},
		"all but one key": {
			list:      "a/pods?fieldSelector=metadata.name!=x&limit=5",
			semantics: legacyExact, selector: byMetadata, memory: true,
		},
		"narrowed":         {list: "pods?fieldSelector=metadata.namespace=a", semantics: anyRevision, selector: byMetadata, memory: true},
		"narrowed, a page": {list: "pods?fieldSelector=metadata.namespace=a&limit=5", semantics: exact, selector: byMetadata},
		"narrowed, next":   {list: "pods?fieldSelector=metadata.namespace=a&continue=x", semantics: continued, selector: byMetadata},
		"in a namespace":   {list: "b/pods?fieldSelector=metadata.namespace=a&limit=5", semantics: exact, selector: byMetadata, memory: true},
		"index": {
			list:      "pods?fieldSelector=spec.nodeName=a&limit=5",
			semantics: notOlderThan, representation: protobuf, selector: byFields, indexed: true, memory: true,
		},
		"index, exact": {
			list:      "pods?fieldSelector=spec.nodeName=a&limit=5",
			semantics: exact, representation: protobuf, selector: byFields, memory: true,
		},
		"index, no limit": {
			list:      "pods?fieldSelector=spec.nodeName=a",
			semantics: notOlderThan, representation: protobuf, selector: byFields, memory: true,
		},
		"not of the index": {
			list:      "pods?fieldSelector=spec.nodeName!=a&limit=5",
			semantics: notOlderThan, representation: protobuf, selector: byFields, memory: true,
		},
		"fields, metadata": {
			list:      "pods?fieldSelector=spec.nodeName=a",
			semantics: exact, representation: metadataJSON, selector: byFields,
		},
		"indented": {list: "pods?limit=5&pretty=1", semantics: exact, representation: indentedJSON, memory: true},
		"fields, indented": {
			list:      "pods?fieldSelector=spec.nodeName=a",
			semantics: exact, representation: metadataIndented, selector: byFields,
		},
		"name, metadata": {
			list:      "pods?fieldSelector=metadata.name=a&labelSelector=x",
			semantics: exact, representation: metadataProtobuf, selector: byBoth, memory: true,
		},
		"labels":       {list: "secrets?labelSelector=x", semantics: exact, selector: byLabels},
		"the newest":   {list: "pods?labelSelector=x", semantics: mostRecent, selector: byLabels, memory: true},
		"no such list": {list: "a/nodes?", semantics: exact},
		"an odd form":  {list: "a/pods?", semantics: exact, representation: oddForm},
		"fields of a custom": {
			list:      "widgets?fieldSelector=spec.color=a",
			semantics: exact, representation: protobuf, selector: byFields, memory: true,
		},
		"an empty term, a key": {
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
