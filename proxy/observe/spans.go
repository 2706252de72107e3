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

// Proof is what the span of a proof of the newest state says at its end: what became of it.
func Proof(result string) attribute.KeyValue { return attrProofResult.String(result) }

// Step begins a child of the request's span; ctx is the request's, and the one that is returned is
// for what is done in that step. Where nothing is recorded, it costs nothing.
func Step(ctx context.Context, name string) (context.Context, trace.Span) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return ctx, trace.SpanFromContext(nil) //nolint:staticcheck // one that does nothing
	}
	return span.TracerProvider().Tracer(otelhttp.ScopeName).Start(ctx, name)
}

// spans are those of HTTP, made by otelhttp. It is shown nothing of a request but its method, its
// protocol and whose trace it is in, and nothing of an answer but its code: paths, queries, addresses
// and headers may hold what must not be in a trace. And so it is not in the way of bodies, trailers
// and connections that are taken over. So each request has a stand-in, which is what otelhttp gets:
//
//	serve: stand-in ─► otelhttp's server ─► handle(the request itself, with the span in its context)
//	send:  stand-in, with the request itself in its context ─► otelhttp's client ─► blindTransport ─► via(the request itself)
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
			if sent, ok := r.Context().Value(exchangeKey{}).(*exchange); ok {
				return sent.name
			}
			return r.Method // until it has ended, and its route is known
		}),
	}
	return &spans{server: otelhttp.NewMiddleware("", options...), client: otelhttp.NewTransport(blindTransport{}, options...)}
}

// standInFor is what otelhttp is shown of a request.
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

// serve calls handle with r, in a server's span. Handle returns the code of the answer.
func (s *spans) serve(r *http.Request, handle func(*http.Request) (code int)) {
	standIn := standInFor(r)
	for _, name := range propagator.Fields() {
		standIn.Header[http.CanonicalHeaderKey(name)] = r.Header.Values(name)
	}
	s.server(http.HandlerFunc(func(w http.ResponseWriter, standIn *http.Request) {
		w.WriteHeader(handle(r.WithContext(standIn.Context())))
	})).ServeHTTP(unsent{}, standIn)
}

// unsent is an [http.ResponseWriter] that goes nowhere.
type unsent struct{}

func (unsent) Header() http.Header         { return http.Header{} }
func (unsent) Write(p []byte) (int, error) { return len(p), nil }
func (unsent) WriteHeader(int)             {}

// exchange is a request that is sent in a client's span.
type exchange struct {
	name    string
	request *http.Request
	via     http.RoundTripper

	res *http.Response
	err error
}

type exchangeKey struct{}

// send sends r by via, in a client's span with that name, and tells the upstream of it. end must be
// called when the answer is over; it may be called again.
func (s *spans) send(name string, via http.RoundTripper, r *http.Request) (_ *http.Response, end func(), _ error) {
	if s == nil {
		res, err := via.RoundTrip(r)
		return res, func() {}, err
	}
	e := &exchange{name: name, request: r, via: via}
	blank, err := s.client.RoundTrip(standInFor(r.WithContext(context.WithValue(r.Context(), exchangeKey{}, e))))
	if err != nil {
		return e.res, func() {}, e.err
	}
	return e.res, func() { _ = blank.Body.Close() }, nil // ends the span
}

// errNoAnswer is what a span says of an error, whose text may be about anything.
var errNoAnswer = errors.New("no answer")

// blindTransport sends the request itself in place of the stand-in, and returns a blank answer.
type blindTransport struct{}

// RoundTrip implements [http.RoundTripper].
func (blindTransport) RoundTrip(standIn *http.Request) (*http.Response, error) {
	e, ok := standIn.Context().Value(exchangeKey{}).(*exchange)
	if !ok {
		return nil, errNoAnswer
	}
	r := e.request.WithContext(standIn.Context())
	r.Header = r.Header.Clone()
	for _, name := range propagator.Fields() {
		r.Header.Del(name)
		if value := standIn.Header.Get(name); value != "" {
			r.Header.Set(name, value)
		}
	}
	if e.res, e.err = e.via.RoundTrip(r); e.err != nil {
		return nil, errNoAnswer
	}
	return &http.Response{StatusCode: e.res.StatusCode, Body: http.NoBody}, nil
}
