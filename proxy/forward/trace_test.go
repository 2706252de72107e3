package forward

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/observetest"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestTraceIsHandedOn: what the upstream gets, by what is wanted and what the caller sends.
func TestTraceIsHandedOn(t *testing.T) {
	received := make(chan http.Header, 1)
	upstream := proxytest.StartUpstream(t, true, func(_ http.ResponseWriter, r *http.Request) { received <- r.Header })
	forwarder := newForwarder(t, upstream.Config())
	for _, tt := range []struct {
		name    string
		sampler sdktrace.Sampler // nil: no traces
		sent    string
		trace   string // "" is none, "new" one that the caller did not send
		flags   string
	}{
		{"no traces", nil, proxytest.CallersTrace, proxytest.CallersTraceID, "01"},
		{"no traces, none sent", nil, "", "", ""},
		{"sampled", sdktrace.AlwaysSample(), proxytest.CallersTrace, "new", "01"},
		{"none sent", sdktrace.AlwaysSample(), "", "new", "01"},
		{"malformed", sdktrace.AlwaysSample(), "00-xyz", "new", "01"},
		{"not sampled", sdktrace.NeverSample(), proxytest.CallersTrace, "new", "00"},
		{"none sent, not sampled", sdktrace.NeverSample(), "", "new", "00"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spans := tracetest.NewInMemoryExporter()
			var traces trace.TracerProvider
			if tt.sampler != nil {
				traces = sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans), sdktrace.WithSampler(tt.sampler))
			}
			o, _ := observetest.New(traces)
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/pods", http.NoBody)
			r.Header.Set("Baggage", "untouched=yes")
			r.Header.Set("Tracestate", "vendor=theirs")
			if tt.sent != "" {
				r.Header.Set("Traceparent", tt.sent)
			}
			o.Observe(forwarder, proxytest.DiscardLog()).ServeHTTP(httptest.NewRecorder(), r)
			got := <-received
			expect.Same(t, "untouched=yes", got.Get("Baggage"))
			parent := got.Get("Traceparent")
			if tt.trace == "" {
				if parent != "" {
					t.Errorf("traceparent %q", parent)
				}
				return
			}
			parts := strings.Split(parent, "-")
			if len(parts) != 4 {
				t.Fatalf("traceparent %q", parent)
			}
			if fresh := parts[1] != proxytest.CallersTraceID; fresh != (tt.trace == "new") || parts[3] != tt.flags || !fresh && parent != proxytest.CallersTrace {
				t.Errorf("traceparent %q", parent)
			}
			if kept := got.Get("Tracestate") == "vendor=theirs"; kept != (tt.trace == proxytest.CallersTraceID) {
				t.Errorf("tracestate %q", got.Get("Tracestate"))
			}
			if spans := spans.GetSpans(); len(spans) > 0 {
				forward := proxytest.SpanNamed(t, spans, observe.SpanForward)
				if forward.SpanContext.SpanID().String() != parts[2] || forward.SpanKind != trace.SpanKindClient {
					t.Errorf("the upstream's spans come below %s", parts[2])
				}
				if request := proxytest.SpanNamed(t, spans, "GET"); forward.Parent.SpanID() != request.SpanContext.SpanID() {
					t.Error("the forward is not below the request")
				}
			}
		})
	}
}
