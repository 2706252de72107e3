package observe

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

// The attributes of a request's span, beside those of OpenTelemetry's semantic conventions for
// HTTP: the words of metrics, of Cache-Status and of the documentation.
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
	attrListener       = attribute.Key("listproxy.door")
	attrCause          = attribute.Key("listproxy.cause")
	attrProofResult    = attribute.Key("listproxy.proof.result")
	attrQueued         = attribute.Key("listproxy.proof.queued_ms")
	attrEvents         = attribute.Key("listproxy.watch.events")
	attrWatchEnd       = attribute.Key("listproxy.watch.end")
	attrProbe          = attribute.Key("listproxy.proof.question_ms")
)

// The scopes of lists.
const (
	scopeAll       = "all"
	scopeNamespace = "namespace"
	scopeObject    = "object" // a field selector names one
)

// The children of a request's span.
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

// spanGap is the time in which a feed had no state.
const spanGap = "gap"

// Trace begins the request's span, if traces are wanted, below the caller's if it has sent a
// traceparent, and returns r with the span. It does nothing a second time. Whether the span records
// is the sampler's to say. What the caller says about that counts if the upstream is known to
// accept the caller: nobody else makes spans by sending a header.
func (rec *Record) Trace(r *http.Request, accepted bool) *http.Request {
	if rec == nil || rec.observer == nil || rec.observer.tracer == nil || rec.span != nil || rec.unsampled.IsValid() {
		return r
	}
	method, name := methodName(r.Method)
	ctx := propagator.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	if !accepted {
		ctx = telemetry.DistrustParent(ctx)
	}
	ctx, span := rec.observer.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(rec.begun),
		trace.WithAttributes(semconv.HTTPRequestMethodKey.String(method)))
	if !span.IsRecording() {
		rec.unsampled = span.SpanContext()
		return r
	}
	rec.span, rec.request = span, r.WithContext(ctx)
	return rec.request
}

// endSpan says what became of the request.
func (rec *Record) endSpan() {
	method, name := methodName(rec.request.Method)
	attributes := []attribute.KeyValue{
		semconv.URLScheme("https"),
		semconv.NetworkProtocolVersion(protocolVersion(rec.request)),
		attrListener.String(string(kubehttp.ListenerOf(rec.request.Context()))),
		attrBytes.Int64(rec.answer.Bytes),
	}
	add := func(key attribute.Key, value string) {
		if value != "" {
			attributes = append(attributes, key.String(value))
		}
	}
	add(attrDecision, rec.labels.decision)
	add(attrReason, rec.labels.reason)
	add(attrSemantics, string(rec.labels.semantics))
	if rec.labels.resource != OtherLabel {
		add(attrResource, rec.labels.resource)
	}
	if rec.list.Resource != "" && rec.labels.resource != OtherLabel {
		add(attrScope, scopeOf(rec.list.Namespace, rec.list.Name))
	}
	if rec.labels.decision == DecisionServe {
		add(attrRepresentation, string(rec.served.Representation))
		attributes = append(attributes,
			attrRevision.Int64(int64(rec.served.Revision)), // #nosec G115 -- etcd's revisions are int64
			attrItems.Int(rec.served.Items))
	}
	if path := route(rec.request, rec.serves); path != "" {
		add(semconv.HTTPRouteKey, path)
		rec.span.SetName(name + " " + path)
	} else {
		rec.span.SetName(name)
	}
	if method != rec.request.Method {
		add(semconv.HTTPRequestMethodKey, method)
	}
	if rec.labels.code != 0 {
		attributes = append(attributes, semconv.HTTPResponseStatusCode(rec.labels.code))
	}
	rec.span.SetAttributes(attributes...)
	switch {
	case !rec.whole:
		rec.span.SetStatus(codes.Error, "the answer was broken off")
	case rec.labels.code >= http.StatusInternalServerError:
		rec.span.SetStatus(codes.Error, "")
	}
	rec.span.End()
}

// serves says whether the upstream is known to have a resource, from the catalog or from what it
// has answered. The catalog counts for what was decided about.
func (rec *Record) serves(gvr schema.GroupVersionResource) bool {
	_, served := rec.observer.served.of(gvr)
	return served || rec.decided && rec.observer.serves(gvr)
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

// Step begins a child of the request's span; ctx is the request's, and the one that is returned is
// for what is done in that step. Where nothing is recorded, it costs nothing, except for a review,
// which may be sent: it tells the upstream that nothing is sampled.
func (rec *Record) Step(ctx context.Context, name string) (context.Context, trace.Span) {
	switch {
	case rec == nil:
	case rec.span != nil:
		return rec.observer.tracer.Start(ctx, name)
	case name == SpanReview && rec.unsampled.IsValid():
		return trace.ContextWithSpanContext(ctx, rec.unsampled), noop.Span{}
	}
	return ctx, noop.Span{}
}

// Proof are the attributes of a proof of the newest state that a list has waited for since begun: what
// became of it; how long the list waited for a probe to be sent, and how long the upstream took to
// answer it, or has taken so far. sent is zero if no probe was under way. The rest of the span is the
// wait for the feed to get there.
func Proof(result string, begun, sent, answered time.Time) []attribute.KeyValue {
	all := []attribute.KeyValue{attrProofResult.String(result)}
	if sent.IsZero() {
		return all
	}
	ms := func(d time.Duration) float64 { return float64(max(0, d)) / float64(time.Millisecond) }
	return append(all, attrQueued.Float64(ms(sent.Sub(begun))), attrProbe.Float64(ms(answered.Sub(sent))))
}

// Forwarding begins the span of the request's way to the upstream, and returns r as it is to be
// sent on: the upstream's own spans come below that span. end is to be called when the answer is
// over. Where no traces are wanted r stays as it came. The upstream is told if a request is not
// sampled: else it would sample requests whose trace was not recorded here.
func (rec *Record) Forwarding(r *http.Request) (out *http.Request, end func()) {
	if rec == nil || rec.observer == nil || rec.observer.tracer == nil {
		return r, func() {}
	}
	ctx, span := trace.ContextWithSpanContext(r.Context(), rec.unsampled), trace.Span(noop.Span{})
	if rec.span != nil {
		method, _ := methodName(r.Method)
		ctx, span = rec.observer.tracer.Start(r.Context(), SpanForward, trace.WithSpanKind(trace.SpanKindClient),
			trace.WithAttributes(semconv.HTTPRequestMethodKey.String(method)))
	}
	out = r.WithContext(ctx)
	out.Header = r.Header.Clone()
	inject(ctx, out.Header)
	return out, func() {
		if code := rec.answer.Code; code != 0 {
			span.SetAttributes(semconv.HTTPResponseStatusCode(code))
			if code >= http.StatusBadRequest { // a client's span, for which 4xx is an error (semantic conventions)
				span.SetStatus(codes.Error, "")
			}
		}
		span.End()
	}
}

// inject makes a header say what trace a request belongs to, and nothing else of one.
func inject(ctx context.Context, h http.Header) {
	h.Del("Traceparent")
	h.Del("Tracestate")
	propagator.Inject(ctx, propagation.HeaderCarrier(h))
}

// Reviews returns send, observed: it sends reviews of what a caller may do. Each is counted, and
// has a span below that of the first request that asked for it. Where that is not sampled, the
// upstream is told so too.
func Reviews[Caller any](
	o *Observer, send func(context.Context, Caller, *http.Request) (*http.Response, error),
) func(context.Context, Caller, *http.Request) (*http.Response, error) {
	count := func(took time.Duration, code int) { o.metrics.reviewed(took, code) }
	return observed(o, send, count) //nolint:bodyclose // a function is returned, and no response
}

// WhoAmI is Reviews for questions who a caller is.
func WhoAmI[Caller any](
	o *Observer, send func(context.Context, Caller, *http.Request) (*http.Response, error),
) func(context.Context, Caller, *http.Request) (*http.Response, error) {
	count := func(_ time.Duration, code int) { o.metrics.asked(purposeWhoAmI, code) }
	return observed(o, send, count) //nolint:bodyclose // a function is returned, and no response
}

func observed[Caller any](
	o *Observer, send func(context.Context, Caller, *http.Request) (*http.Response, error),
	count func(took time.Duration, code int),
) func(context.Context, Caller, *http.Request) (*http.Response, error) {
	if o == nil {
		return send
	}
	return func(ctx context.Context, caller Caller, r *http.Request) (*http.Response, error) {
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
		res, err := send(ctx, caller, r)
		code := 0
		if err == nil {
			code = res.StatusCode
			span.SetAttributes(semconv.HTTPResponseStatusCode(code))
		} else {
			span.SetStatus(codes.Error, "no answer") // the error's text may be about anything
		}
		count(time.Since(begun), code)
		return res, err
	}
}
