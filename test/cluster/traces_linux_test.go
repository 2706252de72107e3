package cluster_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/pages"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// span is one of a [trace].
type span struct {
	SpanID, OperationName, ProcessID string
	References                       []struct{ SpanID string } // the parent's
}

// trace is one of Jaeger's API.
type trace struct {
	Spans     []span
	Processes map[string]struct{ ServiceName string }
}

// hasSpans reports whether a trace has spans. Keys of parents begin the name of a span, with its service, and values are the
// name of its parent; "": any.
func (t trace) hasSpans(parents map[string]string) bool {
	names := map[string]string{} // by ID
	for _, s := range t.Spans {
		names[s.SpanID] = t.Processes[s.ProcessID].ServiceName + " " + s.OperationName
	}
	for prefix, parent := range parents {
		if !slices.ContainsFunc(t.Spans, func(s span) bool {
			isBelow := parent == "" || len(s.References) > 0 && names[s.References[0].SpanID] == parent
			return isBelow && strings.HasPrefix(names[s.SpanID], prefix)
		}) {
			return false
		}
	}
	return true
}

// checkTraces: in Jaeger, the steps of a list from memory are below its request, the span of kube-apiserver is below that
// of a forwarded list, and feeds have traces of their own.
func checkTraces(t *testing.T, c *tester) {
	c.kubectl(t, "delete namespace tracing")
	for line := range strings.Lines(pages.Block(t, "observability.md", "kubectl create namespace tracing", "jaeger")) {
		if command, ok := strings.CutPrefix(line, "kubectl "); ok && !strings.Contains(line, "port-forward") {
			c.kubectl(t, command)
		}
	}
	c.kubectl(t, "rollout status deployment/jaeger -n tracing --timeout=5m")
	through, err := c.Through(t.Context(), c.RESTConfig(controlplane.Admin))
	expect.NoError(t, err)
	client, err := kubernetes.NewForConfig(through)
	expect.NoError(t, err)
	for name, tt := range map[string]struct {
		operation string
		parents   map[string]string // as in hasSpans
	}{
		"hit": {operation: "GET%20pods", parents: map[string]string{
			"listproxy review":   "listproxy GET pods",
			"listproxy snapshot": "listproxy GET pods",
			"listproxy write":    "listproxy GET pods",
		}},
		"forward": {operation: "GET%20secrets", parents: map[string]string{
			"listproxy forward":  "listproxy GET secrets",
			"apiserver GET /api": "listproxy forward",
		}},
		// A feed's span of a watch would come only at the end of the watch.
		"feed": {operation: "feed%20probe", parents: map[string]string{"listproxy feed probe": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			poll.Until(t, patience, "the trace is in Jaeger", func() bool {
				_, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
				expect.NoError(t, err)
				_, err = client.CoreV1().Secrets(team).List(t.Context(), metav1.ListOptions{})
				expect.NoError(t, err)
				address := c.kubectl(t, "get pods -n tracing -o jsonpath={.items[*].status.podIP}")
				text := get(t, "http://"+address+":16686/api/traces?service=listproxy&limit=200&operation="+tt.operation)
				var found struct{ Data []trace }
				_ = json.Unmarshal([]byte(text), &found) // an error: not found
				return slices.ContainsFunc(found.Data, func(one trace) bool { return one.hasSpans(tt.parents) })
			})
		})
	}
}
