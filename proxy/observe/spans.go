package observe

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.39.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"k8s.io/apimachinery/pkg/util/sets"
)

// tracerName is the instrumentation scope of all spans.
const tracerName = "github.com/listproxy/listproxy"

// spans makes the spans of callers' requests (begin), and those of requests to the API server (sendInSpan). A request's path,
// query, headers and addresses may hold secrets, so of these its span has only the resource. A nil *spans means that tracing is
// off.
type spans struct{ tracer trace.Tracer }

// propagator reads and writes traceparent and tracestate (https://www.w3.org/TR/trace-context). It leaves baggage alone:
// a caller's baggage is forwarded unchanged.
var propagator propagation.TraceContext

// begin starts the span of a caller's request, and returns the request with the span in its context. The caller of begin must
// end the span.
//
// The span starts a new trace. If the request has a traceparent, the span has a link to the span there, as at kube-apiserver
// for ordinary users. It is no child of that span: otherwise the sender of a traceparent would decide whether listproxy's span
// is sampled.
func (s *spans) begin(r *http.Request) *http.Request {
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	options := []trace.SpanStartOption{
		trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(semconv.HTTPRequestMethodKey.String(knownMethod(r.Method, otherMethod)),
			semconv.URLScheme(scheme), semconv.ServerAddress("listproxy")),
	}
	caller := trace.SpanContextFromContext(propagator.Extract(context.Background(), propagation.HeaderCarrier(r.Header)))
	if caller.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: caller}))
	}
	ctx, _ := s.tracer.Start(r.Context(), knownMethod(r.Method, otherMethodInName), options...) // ctx has the span
	return r.WithContext(ctx)
}

// ForwardTransport returns a transport that sends the record's request through next, in a span. It is for one RoundTrip. The
// caller must call end at the end of the answer. That ends the span.
func (rec *Record) ForwardTransport(next http.RoundTripper) (_ http.RoundTripper, end func()) {
	if rec.observer == nil {
		return next, func() {}
	}
	forward := &forwardTransport{next: next, spans: rec.observer.spans, endSpan: func() {}}
	return forward, func() { forward.endSpan() }
}

// forwardTransport is the transport of [Record.ForwardTransport].
type forwardTransport struct {
	next    http.RoundTripper
	spans   *spans
	endSpan func() // does nothing until RoundTrip has made the span
}

// RoundTrip implements [http.RoundTripper].
func (f *forwardTransport) RoundTrip(r *http.Request) (res *http.Response, err error) {
	res, f.endSpan, err = f.spans.sendInSpan(SpanForward, f.next, r)
	return res, err
}

// sendInSpan sends r to the API server through next, in a new client span with a name and attributes. The span's traceparent
// replaces r's own. The caller must call endSpan at the end of the answer, and may call it again. After an error, sendInSpan
// itself has ended the span.
//
// If s is nil, sendInSpan makes no span, and sends r unchanged.
func (s *spans) sendInSpan(
	name string, next http.RoundTripper, r *http.Request, attributes ...attribute.KeyValue,
) (_ *http.Response, endSpan func(), _ error) {
	if s == nil {
		res, err := next.RoundTrip(r)
		return res, func() {}, err
	}
	attributes = append(attributes, semconv.HTTPRequestMethodKey.String(knownMethod(r.Method, otherMethod)))
	ctx, span := s.tracer.Start(r.Context(), name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attributes...))
	res, err := next.RoundTrip(withTraceparent(ctx, r))
	if err != nil {
		span.SetStatus(codes.Error, "no answer") // err may have a secret
		span.End()
		return res, func() {}, err
	}
	span.SetAttributes(semconv.HTTPResponseStatusCode(res.StatusCode))
	if res.StatusCode >= http.StatusBadRequest {
		span.SetStatus(codes.Error, "")
	}
	return res, func() { span.End() }, nil
}

// withTraceparent returns r with the context ctx, and with the traceparent of ctx's span in place of r's own.
func withTraceparent(ctx context.Context, r *http.Request) *http.Request {
	r = r.WithContext(ctx)
	r.Header = r.Header.Clone()
	for _, field := range propagator.Fields() {
		r.Header.Del(field)
	}
	propagator.Inject(ctx, propagation.HeaderCarrier(r.Header))
	return r
}

// roundTripper is a function as an [http.RoundTripper].
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements [http.RoundTripper].
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// httpMethods are the methods that OpenTelemetry's semantic conventions know.
var httpMethods = sets.New(http.MethodConnect, http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodOptions,
	http.MethodPatch, http.MethodPost, http.MethodPut, http.MethodTrace)

// In place of any other method, a span has otherMethod as the value of its attribute, and otherMethodInName in its name.
const otherMethod, otherMethodInName = "_OTHER", "HTTP"

// knownMethod returns method if it is one of httpMethods. Otherwise it returns other: otherMethod or otherMethodInName.
func knownMethod(method, other string) string {
	if httpMethods.Has(method) {
		return method
	}
	return other
}

// listproxy's own attributes of spans. The other attributes are those of OpenTelemetry's semantic conventions for HTTP.
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

// The names of the spans of a request's steps, which are children of the request's span.
const (
	SpanReview   = "review"
	SpanSnapshot = "snapshot"
	spanProof    = "proof"
	SpanWrite    = "write"
	SpanWatch    = "watch"
	SpanForward  = "forward"
)

// WatchEndAttributes returns the attributes that the span of a watch gets at its end: the number of events that were
// written, and why the watch ended.
func WatchEndAttributes(events int, why string) []attribute.KeyValue {
	return []attribute.KeyValue{attrEvents.Int(events), attrWatchEnd.String(why)}
}

// StartStep starts the span of a step of a request. ctx is the request's context. It returns the context of the step. The
// caller must end the span. If the request's span is not recorded, StartStep makes no span, and costs nothing.
func StartStep(ctx context.Context, name string) (context.Context, trace.Span) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return ctx, noop.Span{}
	}
	return span.TracerProvider().Tracer(tracerName).Start(ctx, name)
}
