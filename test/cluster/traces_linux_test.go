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

// trace is a trace in the JSON of Jaeger's API.
type trace struct {
	Spans     []span
	Processes map[string]struct{ ServiceName string } // by ID
}

// span is a span of a [trace].
type span struct {
	SpanID        string
	OperationName string
	ProcessID     string
	References    []struct{ SpanID string } // to the parent, if it has one
}

// wantSpan is a span that a trace must have. Both fields have the form "SERVICE OPERATION".
type wantSpan struct {
	prefix string // of the span's name
	parent string // the name of the span above it; "" allows any parent, or none
}

// hasAll reports whether the trace has all spans of want.
func (t trace) hasAll(want []wantSpan) bool {
	return !slices.ContainsFunc(want, func(w wantSpan) bool { return !t.hasSpan(w) })
}

// hasSpan reports whether the trace has a span.
func (t trace) hasSpan(want wantSpan) bool {
	names := map[string]string{} // of spans, by ID
	for _, s := range t.Spans {
		names[s.SpanID] = t.Processes[s.ProcessID].ServiceName + " " + s.OperationName
	}
	return slices.ContainsFunc(t.Spans, func(s span) bool {
		var parent string
		if len(s.References) > 0 {
			parent = names[s.References[0].SpanID]
		}
		isBelow := want.parent == "" || want.parent == parent
		return isBelow && strings.HasPrefix(names[s.SpanID], want.prefix)
	})
}

// checkTraces checks three kinds of traces in Jaeger:
//   - In the trace of a list from memory, the steps are below the request.
//   - In the trace of a forwarded list, kube-apiserver's span is below listproxy's.
//   - Feeds have traces of their own.
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
		operation string // the name of a span in the trace, escaped for a URL
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
				_ = json.Unmarshal([]byte(text), &found) // without a trace, text may be empty
				return slices.ContainsFunc(found.Data, func(one trace) bool { return one.hasAll(tt.wantSpans) })
			})
		})
	}
}
