package differential

import (
	"context"
	"maps"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/differential/cluster"
	"github.com/listproxy/listproxy/test/expect"
)

// anyShare is the minShare of [finish] in this file: the tests here compare answers wherever they come from.
const anyShare = 0

// touch writes an object of a resource and returns the revision of the write.
func touch(t *testing.T, r cluster.Resource) uint64 {
	t.Helper()
	revision, err := shared.Touch(t.Context(), r)
	expect.NoError(t, err)
	return revision
}

// accepting returns a copy of the question with these Accept headers. It is marked as odd: listproxy may forward it.
func (q question) accepting(accept ...string) question {
	q.Header = maps.Clone(q.Header)
	q.Header["Accept"] = accept
	q.Representation, q.Odd = forwardedForm, true
	return q
}

// TestAccept: listproxy reads odd Accept headers as kube-apiserver does, for built-in and custom resources.
func TestAccept(t *testing.T) {
	c := newComparator(t)
	for _, name := range []string{"configmaps", "deployments", "gadgets"} {
		r := resource(t, name)
		q := exactly(r, "team-b", shared.Users[0], touch(t, r))
		for _, accept := range oddAccepts() {
			c.compare(t.Context(), q.accepting(accept))
		}
		c.compare(t.Context(), q.accepting("application/json", "application/yaml"))
	}
	finish(t, c.report, anyShare)
}

// TestGzipThreshold: listproxy compresses a list if and only if kube-apiserver does, in every representation: if the list has
// more than 128 KiB. The lists have just under, exactly and just over 128 KiB.
func TestGzipThreshold(t *testing.T) {
	c := newComparator(t)
	const threshold = 128 << 10
	for _, accept := range []string{
		asJSON, asProtobuf, asJSON + asMetadata, asProtobuf + asMetadata, asJSON + ";pretty=1", asJSON + ";pretty=1" + asMetadata,
	} {
		for _, size := range []int{threshold - 1, threshold, threshold + 1} {
			q := listOfSize(t, c, accept, size)
			for _, encoding := range []string{"gzip", "gzip;q=1", "br,gzip", "identity"} {
				q.Header.Set("Accept-Encoding", encoding)
				c.compare(t.Context(), q)
			}
		}
	}
	finish(t, c.report, anyShare)
}

// listOfSize creates a ConfigMap in a namespace, with as much text as makes the list of the namespace wantSize bytes long. It
// returns the question for that list, and deletes the ConfigMap when the test ends. It finds the amount of text by trying.
func listOfSize(t *testing.T, c *comparator, accept string, wantSize int) question {
	t.Helper()
	const namespace, name = "team-a-2", "filler"
	configMaps := resource(t, "configmaps")
	t.Cleanup(func() { shared.DeleteNow(context.Background(), configMaps, namespace, name) })
	for fill := wantSize / 2; ; {
		shared.DeleteNow(t.Context(), configMaps, namespace, name)
		revision, err := shared.Create(t.Context(), configMaps, namespace, name,
			map[string]any{"metadata": map[string]any{"annotations": map[string]any{"fill": strings.Repeat("x", fill)}}})
		expect.NoError(t, err)
		q := exactly(configMaps, namespace, shared.Users[0], revision).accepting(accept)
		answer, err := c.direct.ask(t.Context(), q)
		expect.NoError(t, err)
		if len(answer.Body) == wantSize {
			return q
		}
		fill += wantSize - len(answer.Body)
	}
}

// TestIndexEnd: if the last pod of a node fills a page, and pods of other nodes follow, listproxy gives a token if and only
// if kube-apiserver does. kube-apiserver gives none if it takes the page from its index of pods by node.
func TestIndexEnd(t *testing.T) {
	c := newComparator(t)
	pods := resource(t, "pods")
	const namespace, node = "index-end", "index-end"
	expect.NoError(t, shared.CreateNamespace(t.Context(), namespace))
	var revision uint64
	// With limit=1, a pod of the node follows the page. With limit=2, only a pod of the other node does. With 3 the page is not
	// full.
	for _, pod := range []struct{ name, node string }{{"a", node}, {"b", "other"}, {"c", node}, {"d", "other"}} {
		var err error
		revision, err = shared.Create(t.Context(), pods, namespace, pod.name, map[string]any{"spec": map[string]any{
			"nodeName": pod.node, "containers": []any{map[string]any{"name": "c", "image": "registry.test/app:1"}},
		}})
		expect.NoError(t, err)
	}
	for _, accept := range []string{asJSON, asProtobuf, asJSON + asMetadata, asJSON + ";pretty=1"} {
		for _, scope := range []string{namespace, ""} {
			for _, limit := range []string{"1", "2", "3"} {
				q := exactly(pods, scope, shared.Users[0], revision).accepting(accept)
				q.Query.Set("limit", limit)
				q.Query.Set("fieldSelector", "spec.nodeName="+node)
				c.compare(t.Context(), q)
				q.Semantics = notOlderThan
				q.Query.Set("resourceVersionMatch", "NotOlderThan")
				c.compare(t.Context(), q)
				q.Query.Set("fieldSelector", "spec.nodeName="+node+",metadata.namespace="+namespace)
				c.compare(t.Context(), q)
			}
		}
	}
	finish(t, c.report, anyShare)
}
