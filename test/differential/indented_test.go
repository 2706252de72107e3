package differential_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/differential"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// TestIndentedNested: a list that becomes many times as long when it is indented is
// kube-apiserver's to write; others are not.
func TestIndentedNested(t *testing.T) {
	report, c := quiet()
	gadgets, admin := resource(t, "gadgets"), shared.Users()[0]
	const namespace, levels = "indented", 20
	harness.Must(t, shared.CreateNamespace(t.Context(), namespace))
	for _, test := range []struct {
		name   string
		number int // of the innermost list
		want   string
	}{
		{"short", 1_000, "listproxy; hit; detail=exact"},
		{"long", 30_000, "listproxy; fwd=bypass; detail=pretty"},
	} {
		nested := strings.Repeat("[", levels) + strings.Repeat("1,", test.number) + "1" + strings.Repeat("]", levels)
		revision, err := shared.Create(t.Context(), gadgets, namespace, test.name, map[string]any{
			"spec": map[string]any{"anything": map[string]any{"value": json.RawMessage(nested)}},
		})
		harness.Must(t, err)
		query := differential.Exactly(revision)
		query.Set("pretty", "true")
		poll.Until(t, patience, test.name+": "+test.want, func() bool {
			answer, err := c.ProxyAnswer(t.Context(), gadgets, namespace, admin, query)
			return err == nil && answer.Header.Get("Cache-Status") == test.want
		})
		c.Compare(t.Context(), gadgets, namespace, admin, query, http.Header{"Accept-Encoding": {"gzip"}})
		c.Compare(t.Context(), gadgets, namespace, admin, differential.Exactly(revision), http.Header{})
		harness.Must(t, shared.Remove(t.Context(), gadgets, namespace, test.name))
	}
	finish(t, report)
}
