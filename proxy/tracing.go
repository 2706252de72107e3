package proxy

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.39.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/telemetry"
)

// The attributes of a request's span, beside those of OpenTelemetry's semantic conventions for HTTP:
// the words of metrics, of Cache-Status and of the documentation.
var (
	attrResource       = attribute.Key("listproxy.resource")
	attrScope          = attribute.Key("listproxy.scope")
	attrSemantics      = attribute.Key("listproxy.semantics")
	attrDecision       = attribute.Key("listproxy.decision")
	attrReason         = attribute.Key("listproxy.reason")
	attrRevision       = attribute.Key("listproxy.revision")
	attrItems          = attribute.Key("listproxy.items")
	attrBytes          = attribute.Key("listproxy.bytes")
	attrRepresentation = attribute.Key("listproxy.representation")
	attrDoor           = attribute.Key("listproxy.door")
	attrCause          = attribute.Key("listproxy.cause")
)

// The scopes of lists.
const (
	scopeAll       = "all"
	scopeNamespace = "namespace"
	scopeObject    = "object" // a field selector names one
)

// The children of a request's span.
const (
	spanReview   = "review"
	spanSnapshot = "snapshot"
	spanWrite    = "write"
	spanForward  = "forward"
)

// spanGap is the time in which a feed had no state.
const spanGap = "gap"

// trace begins the request's span, if traces are wanted, below the caller's if it has sent a traceparent.
// Whether it records is the sampler's to say. What the caller says about that counts for one whom the upstream
// is known to accept: nobody else makes spans by sending a header.
func (s *observation) trace(accepted bool) {
	if s.observer == nil || s.observer.tracer == nil || s.span != nil || s.unsampled.IsValid() {
		return
	}
	method, name := methodName(s.request.Method)
	ctx := propagator.Extract(s.request.Context(), propagation.HeaderCarrier(s.request.Header))
	if !accepted {
		ctx = telemetry.DistrustParent(ctx)
	}
	ctx, span := s.observer.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(s.begun),
		trace.WithAttributes(semconv.HTTPRequestMethodKey.String(method)))
	if span.IsRecording() {
		s.span = span
		s.request = s.request.WithContext(ctx)
	} else {
		s.unsampled = span.SpanContext()
	}
}

// endSpan says what became of the request.
func (s *observation) endSpan() {
	method, name := methodName(s.request.Method)
	attributes := []attribute.KeyValue{
		semconv.URLScheme("https"),
		semconv.NetworkProtocolVersion(protocolVersion(s.request)),
		attrDoor.String(string(kubehttp.ListenerOf(s.request.Context()))),
		attrBytes.Int64(s.bytes),
	}
	add := func(key attribute.Key, value string) {
		if value != "" {
			attributes = append(attributes, key.String(value))
		}
	}
	add(attrDecision, s.labels.decision)
	add(attrReason, s.labels.reason)
	add(attrSemantics, string(s.labels.semantics))
	if s.labels.resource != otherLabel {
		add(attrResource, s.labels.resource)
	}
	if s.list.Resource != "" && s.labels.resource != otherLabel {
		add(attrScope, scopeOf(s.list.Namespace, s.list.Name))
	}
	if s.labels.decision == decisionServe {
		add(attrRepresentation, string(s.representation))
		attributes = append(attributes,
			attrRevision.Int64(int64(s.revision)), // #nosec G115 -- etcd's revisions are int64
			attrItems.Int(s.items))
	}
	if path := route(s.request, s.serves); path != "" {
		add(semconv.HTTPRouteKey, path)
		s.span.SetName(name + " " + path)
	} else {
		s.span.SetName(name)
	}
	if method != s.request.Method {
		add(semconv.HTTPRequestMethodKey, method)
	}
	if s.labels.code != 0 {
		attributes = append(attributes, semconv.HTTPResponseStatusCode(s.labels.code))
	}
	s.span.SetAttributes(attributes...)
	switch {
	case !s.whole:
		s.span.SetStatus(codes.Error, "the answer was broken off")
	case s.labels.code >= http.StatusInternalServerError:
		s.span.SetStatus(codes.Error, "")
	}
	s.span.End()
}

// serves is a knownFunc of what the upstream is known to serve, from the catalog or from what it has answered.
func (s *observation) serves(group, version, resource string) (Entry, bool) {
	gvr := schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
	if _, served := s.observer.served.of(gvr, s.begun); served || s.known == nil {
		return Entry{}, served
	}
	return s.known(group, version, resource)
}

// protocolVersion is "1.1" or "2", as the conventions have it.
func protocolVersion(r *http.Request) string {
	if r.ProtoMajor >= 2 {
		return fmt.Sprint(r.ProtoMajor)
	}
	return fmt.Sprintf("%d.%d", r.ProtoMajor, r.ProtoMinor)
}

func scopeOf(namespace, name string) string {
	switch {
	case name != "":
		return scopeObject
	case namespace != "":
		return scopeNamespace
	}
	return scopeAll
}

// step begins a child of the request's span, whose context is for what is done in it. Where nothing
// is recorded, it costs nothing, but for a review, which may be sent: it tells the upstream so.
func (s *observation) step(name string) (context.Context, trace.Span) {
	switch {
	case s.span != nil:
	case name == spanReview && s.unsampled.IsValid():
		return trace.ContextWithSpanContext(s.request.Context(), s.unsampled), noop.Span{}
	default:
		return s.request.Context(), noop.Span{}
	}
	return s.observer.tracer.Start(s.request.Context(), name)
}

// forward begins the span of the request's way to the upstream, and returns the request as it is to
// be sent on: the upstream's own spans come below that span. Where no traces are wanted it is the
// request as it came. Of a request that is not sampled the upstream is told so, lest it sample by
// itself the rest of what is no trace.
func (s *observation) forward() (*http.Request, trace.Span) {
	if s.observer == nil || s.observer.tracer == nil {
		return s.request, noop.Span{}
	}
	ctx, span := trace.ContextWithSpanContext(s.request.Context(), s.unsampled), trace.Span(noop.Span{})
	if s.span != nil {
		method, _ := methodName(s.request.Method)
		ctx, span = s.observer.tracer.Start(s.request.Context(), spanForward, trace.WithSpanKind(trace.SpanKindClient),
			trace.WithAttributes(semconv.HTTPRequestMethodKey.String(method)))
	}
	out := s.request.WithContext(ctx)
	out.Header = s.request.Header.Clone()
	inject(ctx, out.Header)
	return out, span
}

// forwarded ends the span of [observation.forward].
func (s *observation) forwarded(span trace.Span) {
	if code := s.labels.code; code != 0 {
		span.SetAttributes(semconv.HTTPResponseStatusCode(code))
		if code >= http.StatusBadRequest { // a client's span, for which 4xx is an error (semantic conventions)
			span.SetStatus(codes.Error, "")
		}
	}
	span.End()
}

// inject makes a header say what trace a request belongs to, and nothing else of one.
func inject(ctx context.Context, h http.Header) {
	h.Del("Traceparent")
	h.Del("Tracestate")
	propagator.Inject(ctx, propagation.HeaderCarrier(h))
}

// SendAs observes reviews, which are sent by send: each is counted, and has a span below that of the
// first request that asked for it. Where that is not sampled, the upstream is told so too.
func (o *Observer) SendAs(send SendAs) SendAs {
	if o == nil {
		return send
	}
	return func(ctx context.Context, id Identity, r *http.Request) (*http.Response, error) {
		begun := time.Now()
		span := trace.Span(noop.Span{})
		if o.tracer != nil && trace.SpanFromContext(ctx).IsRecording() {
			ctx, span = o.tracer.Start(ctx, r.Method, trace.WithSpanKind(trace.SpanKindClient),
				trace.WithAttributes(semconv.HTTPRequestMethodKey.String(r.Method)))
		}
		if o.tracer != nil {
			inject(ctx, r.Header) // nothing, if the review is not for a request
		}
		defer span.End()
		res, err := send(ctx, id, r)
		code := 0
		if err == nil {
			code = res.StatusCode
			span.SetAttributes(semconv.HTTPResponseStatusCode(code))
		} else {
			span.SetStatus(codes.Error, "no answer") // the error's text may be about anything
		}
		o.upstream.reviewed(ctx, time.Since(begun), code)
		return res, err
	}
}
