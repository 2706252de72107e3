package proxytest

import (
	"slices"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// CallersTrace is the traceparent of a caller that samples. CallersSpanID is the ID of its span.
const (
	CallersSpanID = "b7ad6b7169203331"
	CallersTrace  = "00-0af7651916cd43dd8448eb211c80319c-" + CallersSpanID + "-01"
)

// SpanNamed returns the first span of that name.
func SpanNamed(t *testing.T, spans tracetest.SpanStubs, name string) tracetest.SpanStub {
	t.Helper()
	i := slices.IndexFunc(spans, func(s tracetest.SpanStub) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("no span %q in %v", name, spans)
	}
	return spans[i]
}
