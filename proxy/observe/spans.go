package observe

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.39.0"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/util/sets"
)

// The attributes of a request's span, beside those of OpenTelemetry's semantic conventions for HTTP.
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

// The names of the spans of a request's steps, below its own.
const (
	SpanReview   = "review"
	SpanSnapshot = "snapshot"
	SpanProof    = "proof"
	SpanWrite    = "write"
	SpanWatch    = "watch"
	SpanForward  = "forward"
)

// WatchEnd returns the attributes of a watch's span at its end: the number of events written, and why it has ended.
func WatchEnd(events int, why string) []attribute.KeyValue {
	return []attribute.KeyValue{attrEvents.Int(events), attrWatchEnd.String(why)}
}

// ProofResult returns the attribute of the span of a proof of the newest state at its end.
func ProofResult(result string) attribute.KeyValue { return attrProofResult.String(result) }

// StartStep begins the span of a step. ctx is the request's; the context that is returned is for the step. It costs nothing
// if the request is not recorded.
func StartStep(ctx context.Context, name string) (context.Context, trace.Span) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return ctx, trace.SpanFromContext(nil) //nolint:staticcheck // one that does nothing
	}
	return span.TracerProvider().Tracer(tracerName).Start(ctx, name)
}

// spans makes the spans of requests from callers and of requests to the upstream. They have nothing of a request's
// path, query, headers and addresses, in which there may be a secret.
type spans struct{ tracer trace.Tracer }

// tracerName is the name of the tracer of all spans.
const tracerName = "github.com/listproxy/listproxy"

// propagator reads and writes traceparent and tracestate (https://www.w3.org/TR/trace-context).
// Baggage is the caller's, and is forwarded unchanged.
var propagator propagation.TraceContext

// begin begins the span of a caller's request, and returns the request with the span in its context. The span must be
// ended.
//
// Anybody can write a traceparent. So, as at kube-apiserver for ordinary users, the span begins a new trace with a link
// to the caller's, and the caller does not decide whether it is sampled.
func (s *spans) begin(r *http.Request) *http.Request {
	method, name := methodName(r.Method)
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	options := []trace.SpanStartOption{
		trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(semconv.HTTPRequestMethodKey.String(method), semconv.URLScheme(scheme),
			semconv.ServerAddress("listproxy")),
	}
	parent := trace.SpanContextFromContext(propagator.Extract(context.Background(), propagation.HeaderCarrier(r.Header)))
	if parent.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: parent}))
	}
	ctx, _ := s.tracer.Start(r.Context(), name, options...)
	return r.WithContext(ctx)
}

// httpMethods are the methods that the semantic conventions know.
var httpMethods = sets.New(http.MethodConnect, http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodOptions,
	http.MethodPatch, http.MethodPost, http.MethodPut, http.MethodTrace)

// methodName returns a request's method as an attribute, and as a part of the name of its span.
func methodName(method string) (attribute, inName string) {
	if httpMethods.Has(method) {
		return method, method
	}
	return "_OTHER", "HTTP"
}

// send sends r through via with the traceparent of a new client span. end must be called at the end of the answer, and
// may be called again. Without spans it only sends r.
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
		span.SetStatus(codes.Error, "no answer") // the error's own text might have a secret
		span.End()
		return res, func() {}, err
	}
	span.SetAttributes(semconv.HTTPResponseStatusCode(res.StatusCode))
	if res.StatusCode >= http.StatusBadRequest {
		span.SetStatus(codes.Error, "")
	}
	return res, func() { span.End() }, nil
}

// sender makes an [http.RoundTripper] of a function.
type sender func(*http.Request) (*http.Response, error)

// RoundTrip implements [http.RoundTripper].
func (s sender) RoundTrip(r *http.Request) (*http.Response, error) { return s(r) }
