package differential_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/differential"
)

// quiet returns a comparator for lists that nothing changes meanwhile.
func quiet() (*differential.Report, *differential.Comparator) {
	report := differential.NewReport()
	return report, differential.NewComparator(cluster, side(healthy), report, differential.Options{Bound: 10 * time.Second})
}

// touch writes an object of a resource and returns the revision.
func touch(t *testing.T, r differential.Resource) uint64 {
	t.Helper()
	revision, err := cluster.Touch(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

// TestAccept compares how both read odd Accept headers, for built-in and custom resources.
func TestAccept(t *testing.T) {
	report, c := quiet()
	for _, name := range []string{"configmaps", "deployments", "gadgets"} {
		r := resource(t, name)
		query := differential.Exactly(touch(t, r))
		for _, accept := range differential.Accepts() {
			c.Compare(t.Context(), r, "team-b", cluster.Users()[0], query, http.Header{"Accept": {accept}})
		}
		c.Compare(t.Context(), r, "team-b", cluster.Users()[0], query, http.Header{"Accept": {"application/json", "application/yaml"}})
	}
	finish(t, report)
}

// TestGzipThreshold compares lists whose bodies are just as large as kube-apiserver leaves them
// uncompressed, and a byte more or less.
func TestGzipThreshold(t *testing.T) {
	report, c := quiet()
	configMaps := resource(t, "configmaps")
	const namespace, threshold = "team-a-2", 128 << 10
	admin := cluster.Users()[0]
	size := threshold / 2
	for _, target := range []int{threshold - 1, threshold, threshold + 1} {
		var query url.Values
		for got := -1; got != target; {
			cluster.Delete(t.Context(), configMaps, namespace, "filler", true)
			revision, err := cluster.Create(t.Context(), configMaps, namespace, "filler",
				map[string]any{"data": map[string]any{"fill": strings.Repeat("x", size)}})
			if err != nil {
				t.Fatal(err)
			}
			query = differential.Exactly(revision)
			answer, err := c.DirectAnswer(t.Context(), configMaps, namespace, admin, query)
			if err != nil {
				t.Fatal(err)
			}
			got = len(answer.Body)
			size += target - got
		}
		for _, encoding := range []string{"gzip", "gzip;q=1", "br,gzip", "identity"} {
			c.Compare(t.Context(), configMaps, namespace, admin, query, http.Header{"Accept-Encoding": {encoding}})
		}
	}
	cluster.Delete(t.Context(), configMaps, namespace, "filler", true)
	finish(t, report)
}
