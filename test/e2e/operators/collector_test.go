package operators

import (
	"context"
	"encoding/hex"
	"net"
	"slices"
	"strconv"
	"sync"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// collector keeps the spans that processes send it by OTLP over gRPC.
type collector struct {
	collectorv1.UnimplementedTraceServiceServer
	address string

	mu    sync.Mutex
	spans []span
}

// span is one that a process has ended.
type span struct {
	*tracev1.Span
	service string
}

func startCollector() (*collector, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c, server := &collector{address: l.Addr().String()}, grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(server, c)
	go func() { _ = server.Serve(l) }() // until this process ends
	return c, nil
}

// Export implements [collectorv1.TraceServiceServer].
func (c *collector) Export(_ context.Context, r *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, process := range r.GetResourceSpans() {
		service := attribute(process.GetResource().GetAttributes(), "service.name")
		for _, scope := range process.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, span{s, service})
			}
		}
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

// of are the spans for which wanted says so.
func (c *collector) of(wanted func(span) bool) (found []span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if wanted(s) {
			found = append(found, s)
		}
	}
	return found
}

func (s span) trace() string  { return hex.EncodeToString(s.GetTraceId()) }
func (s span) id() string     { return hex.EncodeToString(s.GetSpanId()) }
func (s span) parent() string { return hex.EncodeToString(s.GetParentSpanId()) }

// linked says whether a span is linked with a trace.
func (s span) linked(trace string) bool {
	return slices.ContainsFunc(s.GetLinks(), func(l *tracev1.Span_Link) bool { return hex.EncodeToString(l.GetTraceId()) == trace })
}

// attribute is a text or a number.
func attribute(all []*commonv1.KeyValue, key string) string {
	i := slices.IndexFunc(all, func(kv *commonv1.KeyValue) bool { return kv.GetKey() == key })
	if i < 0 {
		return ""
	}
	if n, is := all[i].GetValue().GetValue().(*commonv1.AnyValue_IntValue); is {
		return strconv.FormatInt(n.IntValue, 10)
	}
	return all[i].GetValue().GetStringValue()
}
