package observe

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
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
	return span.TracerProvider().Tracer(otelhttp.ScopeName).Start(ctx, name)
}

// spans makes the spans of requests that come (serve) and of those that are sent (send), with otelhttp.
//
// otelhttp sees no request and no answer. Paths, queries, addresses and headers may hold what must not be in a
// trace, and a wrapper around bodies would be in the way of trailers and of connections that are taken over.
// So it gets a stand-in, which has the request's method, protocol and trace and nothing else, and an answer
// that has the code and nothing else:
//
//	serve: stand-in ─► otelhttp's server begins the span ─► handle(the request, with the span in its context)
//	send:  stand-in ─► otelhttp's client begins the span ─► realTransport ─► via.RoundTrip(the request)
type spans struct {
	server func(http.Handler) http.Handler
	client http.RoundTripper
}

// propagator reads and writes traceparent and tracestate (https://www.w3.org/TR/trace-context).
// Baggage passes as it came: it is the caller's.
var propagator propagation.TraceContext

func newSpans(traces trace.TracerProvider) *spans {
	options := []otelhttp.Option{
		otelhttp.WithServerName("listproxy"), // and not what a caller writes as the Host
		otelhttp.WithTracerProvider(traces), otelhttp.WithMeterProvider(noop.NewMeterProvider()), otelhttp.WithPropagators(propagator),
		// As at kube-apiserver for ordinary users: anybody can write a traceparent. So a request begins a
		// trace of its own, with a link to the caller's, and the caller does not decide whether it is sampled.
		otelhttp.WithPublicEndpointFn(func(*http.Request) bool { return true }),
		otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string {
			if s, ok := r.Context().Value(sendingKey{}).(*sending); ok {
				return s.name
			}
			return r.Method // Record.describe gives it its name at the end
		}),
	}
	return &spans{server: otelhttp.NewMiddleware("", options...), client: otelhttp.NewTransport(realTransport{}, options...)}
}

// standInFor is what otelhttp gets in place of a request.
func standInFor(r *http.Request) *http.Request {
	method := r.Method
	if !httpMethods.Has(method) {
		method = "_OTHER" // it is a word of the caller's
	}
	return (&http.Request{
		Method: method, URL: &url.URL{Scheme: r.URL.Scheme, Host: r.URL.Host}, Header: http.Header{},
		TLS: r.TLS, Proto: r.Proto, ProtoMajor: r.ProtoMajor, ProtoMinor: r.ProtoMinor,
	}).WithContext(r.Context())
}

// serve calls handle with r, in a server's span. handle returns the code of the answer.
func (s *spans) serve(r *http.Request, handle func(*http.Request) (code int)) {
	standIn := standInFor(r)
	for _, name := range propagator.Fields() {
		standIn.Header[http.CanonicalHeaderKey(name)] = r.Header.Values(name)
	}
	s.server(http.HandlerFunc(func(w http.ResponseWriter, standIn *http.Request) {
		w.WriteHeader(handle(r.WithContext(standIn.Context())))
	})).ServeHTTP(discarding{}, standIn)
}

// discarding is the [http.ResponseWriter] that otelhttp gets: the answer itself is written elsewhere.
type discarding struct{}

func (discarding) Header() http.Header         { return http.Header{} }
func (discarding) Write(p []byte) (int, error) { return len(p), nil }
func (discarding) WriteHeader(int)             {}

// sending is a request on its way past otelhttp, and its answer. It is in the stand-in's context.
type sending struct {
	name    string // of the span
	request *http.Request
	via     http.RoundTripper

	res *http.Response
	err error
}

type sendingKey struct{}

// send sends r by via, in a client's span with that name, and sends the span's traceparent with it. end must
// be called when the answer is over; it may be called again. Nil spans make none.
func (s *spans) send(name string, via http.RoundTripper, r *http.Request) (_ *http.Response, end func(), _ error) {
	if s == nil {
		res, err := via.RoundTrip(r)
		return res, func() {}, err
	}
	is := &sending{name: name, request: r, via: via}
	codeOnly, err := s.client.RoundTrip(standInFor(r.WithContext(context.WithValue(r.Context(), sendingKey{}, is))))
	if err != nil {
		return is.res, func() {}, is.err
	}
	return is.res, func() { _ = codeOnly.Body.Close() }, nil // otelhttp ends the span with the body
}

// errNoAnswer is what a span says of an error, whose text may be about anything.
var errNoAnswer = errors.New("no answer")

// realTransport sends the request itself in place of its stand-in, and returns an answer that has only the
// code.
type realTransport struct{}

// RoundTrip implements [http.RoundTripper].
func (realTransport) RoundTrip(standIn *http.Request) (*http.Response, error) {
	is, ok := standIn.Context().Value(sendingKey{}).(*sending)
	if !ok {
		return nil, errNoAnswer
	}
	r := is.request.WithContext(standIn.Context())
	r.Header = r.Header.Clone()
	for _, name := range propagator.Fields() {
		r.Header.Del(name)
		if value := standIn.Header.Get(name); value != "" {
			r.Header.Set(name, value)
		}
	}
	if is.res, is.err = is.via.RoundTrip(r); is.err != nil {
		return nil, errNoAnswer
	}
	return &http.Response{StatusCode: is.res.StatusCode, Body: http.NoBody}, nil
}
