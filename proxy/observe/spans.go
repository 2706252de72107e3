package observe

import (
	"context"
	"fmt"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.39.0"
	"go.opentelemetry.io/otel/trace"
)

// The attributes of a request's span, beside those of OpenTelemetry's semantic conventions for
// HTTP: the words of metrics, of Cache-Status and of the documentation.
var (
	attrResource       = attribute.Key("listproxy.resource")
	attrSemantics      = attribute.Key("listproxy.semantics")
	attrDecision       = attribute.Key("listproxy.decision")
	attrReason         = attribute.Key("listproxy.reason")
	attrRevision       = attribute.Key("listproxy.revision")
	attrItems          = attribute.Key("listproxy.items")
	attrBytes          = attribute.Key("listproxy.bytes")
	attrRepresentation = attribute.Key("listproxy.representation")
	attrProofResult    = attribute.Key("listproxy.proof.result")
	attrEvents         = attribute.Key("listproxy.watch.events")
	attrWatchEnd       = attribute.Key("listproxy.watch.end")
)

// The spans of a request's steps, below its own.
const (
	SpanReview   = "review"
	SpanSnapshot = "snapshot"
	SpanProof    = "proof"
	SpanWrite    = "write"
	SpanWatch    = "watch"
	SpanForward  = "forward"
)

// WatchEnd is what the span of a watch says at its end: how many events were written, and why it
// has ended.
func WatchEnd(events int, why string) []attribute.KeyValue {
	return []attribute.KeyValue{attrEvents.Int(events), attrWatchEnd.String(why)}
}

// Proof is what the span of a proof of the newest state says at its end: what became of it.
func Proof(result string) attribute.KeyValue { return attrProofResult.String(result) }

// Step begins the span of a step; ctx is the request's, and the one that is returned is for what is done in
// that step. Where nothing is recorded, it costs nothing.
func Step(ctx context.Context, name string) (context.Context, trace.Span) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return ctx, trace.SpanFromContext(nil) //nolint:staticcheck // one that does nothing
	}
	return span.TracerProvider().Tracer(tracerName).Start(ctx, name)
}

// spans makes the spans of requests that come and of those that are sent. They have nothing of a request's path,
// query, headers and addresses, which may hold what must not be in a trace.
type spans struct{ tracer trace.Tracer }

// tracerName is the name of the tracer of all spans.
const tracerName = "github.com/listproxy/listproxy"

// propagator reads and writes traceparent and tracestate (https://www.w3.org/TR/trace-context).
// Baggage passes as it came: it is the caller's.
var propagator propagation.TraceContext

// begin begins the span of a request that came, and returns the request with the span in its context. The span
// must be ended.
//
// Anybody can write a traceparent. So, as at kube-apiserver for ordinary users, a request begins a trace of its
// own, with a link to the caller's, and the caller does not decide whether it is sampled.
func (s *spans) begin(r *http.Request) *http.Request {
	method, name := methodName(r.Method)
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	options := []trace.SpanStartOption{
		trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(semconv.HTTPRequestMethodKey.String(method), semconv.URLScheme(scheme),
			semconv.ServerAddress("listproxy"), semconv.NetworkProtocolVersion(protocolVersion(r))),
	}
	callers := trace.SpanContextFromContext(propagator.Extract(context.Background(), propagation.HeaderCarrier(r.Header)))
	if callers.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: callers}))
	}
	ctx, _ := s.tracer.Start(r.Context(), name, options...)
	return r.WithContext(ctx)
}

// protocolVersion returns the version of HTTP in the words of the semantic conventions: 1.1, or 2.
func protocolVersion(r *http.Request) string {
	if r.ProtoMajor == 2 {
		return "2"
	}
	return fmt.Sprintf("%d.%d", r.ProtoMajor, r.ProtoMinor)
}

// send sends r by via, in a client's span with that name, and sends the span's traceparent with it. end must
// be called when the answer is over; it may be called again. Nil spans make none.
func (s *spans) send(
	name string, via http.RoundTripper, r *http.Request, attributes ...attribute.KeyValue,
) (_ *http.Response, end func(), _ error) {
	if s == nil {
		res, err := via.RoundTrip(r)
		return res, func() {}, err
	}
	method, _ := methodName(r.Method)
	ctx, span := s.tracer.Start(r.Context(), name, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(append(attributes, semconv.HTTPRequestMethodKey.String(method))...))
	r = r.WithContext(ctx)
	r.Header = r.Header.Clone()
	for _, field := range propagator.Fields() {
		r.Header.Del(field)
	}
	propagator.Inject(ctx, propagation.HeaderCarrier(r.Header))
	res, err := via.RoundTrip(r)
	if err != nil {
		span.SetStatus(codes.Error, "no answer") // the text of an error may be about anything
		span.End()
		return res, func() {}, err
	}
	span.SetAttributes(semconv.HTTPResponseStatusCode(res.StatusCode))
	if res.StatusCode >= http.StatusBadRequest {
		span.SetStatus(codes.Error, "")
	}
	return res, func() { span.End() }, nil
}
