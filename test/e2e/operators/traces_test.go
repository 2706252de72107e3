package operators

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/secrets"
)

// collector keeps the spans that processes send it by OTLP over gRPC, as they send them to Jaeger.
type collector struct {
	collectorv1.UnimplementedTraceServiceServer
	address string

	mu sync.Mutex
	// spans, by trace and then by service and name; links are the traces that others are linked with.
	spans map[string]map[string]*tracev1.Span
	links map[string]string
}

func startCollector() (*collector, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &collector{address: l.Addr().String(), spans: map[string]map[string]*tracev1.Span{}, links: map[string]string{}}
	server := grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(server, c)
	go func() { _ = server.Serve(l) }() // until this process ends
	return c, nil
}

// Export implements [collectorv1.TraceServiceServer].
func (c *collector) Export(_ context.Context, r *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, process := range r.GetResourceSpans() {
		service := ""
		for _, a := range process.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range process.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				trace := string(s.GetTraceId())
				if c.spans[trace] == nil {
					c.spans[trace] = map[string]*tracev1.Span{}
				}
				c.spans[trace][service+" "+s.GetName()] = s
				for _, l := range s.GetLinks() {
					c.links[string(l.GetTraceId())] = trace
				}
			}
		}
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

// linkedWith are the spans of the trace that is linked with another, by service and name.
func (c *collector) linkedWith(trace string) map[string]*tracev1.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.spans[c.links[trace]])
}

// TestTraces: a list is one tree of both processes' spans, which is linked with the caller's trace. Spans may
// be lost on their way (full queues drop them), so requests are sent until one has arrived whole.
func TestTraces(t *testing.T) {
	t.Parallel()
	const request, review = "listproxy GET pods", "apiserver POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	for name, tt := range map[string]struct {
		query, source string
		below         map[string]string // spans, and which one each is below
	}{
		"forwarded": {
			source: "listproxy; fwd=bypass; detail=consistent",
			below:  map[string]string{"listproxy forward": request, "apiserver GET /api/v1/namespaces/{:namespace}/pods": "listproxy forward"},
		},
		"from memory": {
			query: "?resourceVersion=0", source: "listproxy; hit; detail=any",
			below: map[string]string{
				"listproxy review": request, "listproxy snapshot": request, "listproxy write": request,
				"listproxy POST": "listproxy review", review: "listproxy POST",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			client, try := ask.MustNew(t, traced.RESTConfig(cp.RESTConfig(controlplane.Admin)), patience), 0
			expect.NoError(t, poll.Try(t.Context(), 4*time.Minute, time.Second, "all spans of a request", func() error {
				var id [24]byte // of the caller's trace and span
				_, _ = rand.Read(id[:])
				try++ // in a namespace for which nothing was reviewed yet
				path := fmt.Sprintf("/api/v1/namespaces/try-%d/pods", try)
				a, err := client.With("Traceparent", fmt.Sprintf("00-%x-%x-01", id[:16], id[16:])).Get(t.Context(), path+tt.query)
				if err != nil || a.Source() != tt.source {
					return fmt.Errorf("%v: %w", a, err)
				}
				var spans map[string]*tracev1.Span
				err = poll.Try(t.Context(), 20*time.Second, 50*time.Millisecond, "all spans of this request", func() error {
					spans = collected.linkedWith(string(id[:16]))
					for child := range tt.below {
						if spans[child] == nil || spans[request] == nil {
							return fmt.Errorf("%s has not arrived; there are %v", child, slices.Collect(maps.Keys(spans)))
						}
					}
					return nil
				})
				if err != nil {
					return err
				}
				for child, parent := range tt.below {
					if !bytes.Equal(spans[child].GetParentSpanId(), spans[parent].GetSpanId()) {
						t.Errorf("%s is not below %s: %v", child, parent, spans)
					}
				}
				for what := range spans {
					if strings.Contains(tt.source, "hit") && strings.HasPrefix(what, "apiserver GET ") {
						t.Errorf("kube-apiserver was asked, too: %s", what)
					}
				}
				for _, leak := range secrets.Suite.Search("a trace", fmt.Sprint(spans)) {
					t.Error(leak)
				}
				return nil
			}))
		})
	}
}
