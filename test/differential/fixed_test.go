package differential_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/differential"
	"github.com/listproxy/listproxy/test/differential/cluster"
	"github.com/listproxy/listproxy/test/expect"
)

// quiet returns a comparator for lists that nothing changes meanwhile.
func quiet() (*differential.Report, *differential.Comparator) {
	report := differential.NewReport()
	return report, differential.NewComparator(shared.Cluster, differential.SideOf(shared.Healthy), report, differential.Options{Bound: differential.HealthyBound})
}

// touch writes an object of a resource and returns the revision.
func touch(t *testing.T, r cluster.Resource) uint64 {
	t.Helper()
	revision, err := shared.Touch(t.Context(), r)
	expect.NoError(t, err)
	return revision
}

// TestAccept compares how both read odd Accept headers, for built-in and custom resources.
func TestAccept(t *testing.T) {
	report, c := quiet()
	for _, name := range []string{"configmaps", "deployments", "gadgets"} {
		r := resource(t, name)
		query := differential.Exactly(touch(t, r))
		for _, accept := range differential.Accepts() {
			c.Compare(t.Context(), r, "team-b", shared.Users()[0], query, http.Header{"Accept": {accept}})
		}
		c.Compare(t.Context(), r, "team-b", shared.Users()[0], query, http.Header{"Accept": {"application/json", "application/yaml"}})
	}
	finish(t, report)
}

// TestGzipThreshold compares lists whose bodies are just as large as kube-apiserver leaves them
// uncompressed, and a byte more or less, in every representation.
func TestGzipThreshold(t *testing.T) {
	report, c := quiet()
	configMaps := resource(t, "configmaps")
	const namespace, threshold = "team-a-2", 128 << 10
	admin := shared.Users()[0]
	for _, accept := range []string{
		"application/json", "application/vnd.kubernetes.protobuf",
		"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
		"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
		"application/json;pretty=1",
		"application/json;pretty=1;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
	} {
		size := threshold / 2
		for _, target := range []int{threshold - 1, threshold, threshold + 1} {
			var query url.Values
			for got := -1; got != target; {
				shared.Delete(t.Context(), configMaps, namespace, "filler", true)
				revision, err := shared.Create(t.Context(), configMaps, namespace, "filler",
					map[string]any{"metadata": map[string]any{"annotations": map[string]any{"fill": strings.Repeat("x", size)}}})
				expect.NoError(t, err)
				query = differential.Exactly(revision)
				if got, err = c.DirectSize(t.Context(), configMaps, namespace, admin, query, accept); err != nil {
					t.Fatal(err)
				}
				size += target - got
			}
			for _, encoding := range []string{"gzip", "gzip;q=1", "br,gzip", "identity"} {
				c.Compare(t.Context(), configMaps, namespace, admin, query, http.Header{"Accept": {accept}, "Accept-Encoding": {encoding}})
			}
		}
	}
	shared.Delete(t.Context(), configMaps, namespace, "filler", true)
	finish(t, report)
}

// TestIndexEnd: the last pod of a node fills a page, and others follow. Who takes the page from an
// index of pods by node sees the end; who does not gives a token.
func TestIndexEnd(t *testing.T) {
	report, c := quiet()
	pods := resource(t, "pods")
	const namespace, node = "index-end", "index-end"
	expect.NoError(t, shared.CreateNamespace(t.Context(), namespace))
	var revision uint64
	for _, pod := range []struct{ name, node string }{{"a", node}, {"b", "other"}, {"c", node}, {"d", "other"}} {
		var err error
		revision, err = shared.Create(t.Context(), pods, namespace, pod.name, map[string]any{"spec": map[string]any{
			"nodeName": pod.node, "containers": []any{map[string]any{"name": "c", "image": "registry.test/app:1"}},
		}})
		expect.NoError(t, err)
	}
	for _, accept := range []string{
		"application/json", "application/vnd.kubernetes.protobuf", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
		"application/json;pretty=1",
	} {
		for _, scope := range []string{namespace, ""} {
			for _, limit := range []string{"1", "2", "3"} {
				query := differential.Exactly(revision)
				query.Set("limit", limit)
				query.Set("fieldSelector", "spec.nodeName="+node)
				c.Compare(t.Context(), pods, scope, shared.Users()[0], query, http.Header{"Accept": {accept}})
				query.Set("resourceVersionMatch", "NotOlderThan")
				c.Compare(t.Context(), pods, scope, shared.Users()[0], query, http.Header{"Accept": {accept}})
				query.Set("fieldSelector", "spec.nodeName="+node+",metadata.namespace="+namespace)
				c.Compare(t.Context(), pods, scope, shared.Users()[0], query, http.Header{"Accept": {accept}})
			}
		}
	}
	finish(t, report)
}
