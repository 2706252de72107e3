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

// wantSpan is a span whose service and name begin with prefix. parent is the service and name of the span above it; ""
// allows any parent, or none.
type wantSpan struct{ prefix, parent string }

// hasSpan reports whether the trace has a span.
func (t trace) hasSpan(want wantSpan) bool {
	names := map[string]string{} // service and name, by ID
	for _, s := range t.Spans {
		names[s.SpanID] = t.Processes[s.ProcessID].ServiceName + " " + s.OperationName
	}
	return slices.ContainsFunc(t.Spans, func(s span) bool {
		isBelow := want.parent == "" || len(s.References) > 0 && names[s.References[0].SpanID] == want.parent
		return isBelow && strings.HasPrefix(names[s.SpanID], want.prefix)
	})
}

// checkTraces checks the traces in Jaeger: the steps of a list from memory are below its request, the span of kube-apiserver
// is below that of a forwarded list, and feeds have traces of their own.
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
		wantSpans []wantSpan
	}{
		"hit": {operation: "GET%20pods", wantSpans: []wantSpan{
			{prefix: "listproxy review", parent: "listproxy GET pods"},
			{prefix: "listproxy snapshot", parent: "listproxy GET pods"},
			{prefix: "listproxy write", parent: "listproxy GET pods"},
		}},
		"forward": {operation: "GET%20secrets", wantSpans: []wantSpan{
			{prefix: "listproxy forward", parent: "listproxy GET secrets"},
			{prefix: "apiserver GET /api", parent: "listproxy forward"},
		}},
		// A feed's span of a watch would come only at the end of the watch.
		"feed": {operation: "feed%20probe", wantSpans: []wantSpan{{prefix: "listproxy feed probe"}}},
	} {
		t.Run(name, func(t *testing.T) {
			// Each try makes new traces: until the exporters have reconnected to the new Jaeger, traces are lost.
			poll.Until(t, patience, "the trace is in Jaeger", func() bool {
				_, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
				expect.NoError(t, err)
				_, err = client.CoreV1().Secrets(team).List(t.Context(), metav1.ListOptions{})
				expect.NoError(t, err)
				address := c.kubectl(t, "get pods -n tracing -o jsonpath={.items[*].status.podIP}")
				text := get(t, "http://"+address+":16686/api/traces?service=listproxy&limit=200&operation="+tt.operation)
				var found struct{ Data []trace }
				_ = json.Unmarshal([]byte(text), &found) // an error: not found
				return slices.ContainsFunc(found.Data, func(one trace) bool {
					return !slices.ContainsFunc(tt.wantSpans, func(want wantSpan) bool { return !one.hasSpan(want) })
				})
			})
		})
	}
}
