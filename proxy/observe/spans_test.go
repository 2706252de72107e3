package observe_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/auth"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/inmemory"
	"github.com/listproxy/listproxy/test/observetest"
	"github.com/listproxy/listproxy/test/proxytest"
)

// newTracedObserver returns an Observer with a sampler, and a function that returns the spans that have ended.
func newTracedObserver(sampler sdktrace.Sampler) (*observe.Observer, func() tracetest.SpanStubs) {
	spans := tracetest.NewInMemoryExporter()
	o, _ := observetest.New(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans), sdktrace.WithSampler(sampler)))
	return o, spans.GetSpans
}

// attributesOf returns the attributes of a span as text.
func attributesOf(s tracetest.SpanStub) map[string]string {
	all := map[string]string{}
	for _, a := range s.Attributes {
		all[string(a.Key)] = a.Value.Emit()
	}
	return all
}

// TestSpanOfAList: the span of a list from memory has the request, the decision and the size of the answer as attributes, and
// nothing of the request's selector. The span has no parent, and a link to the caller's span.
// (test/cluster has the child spans in Jaeger.)
func TestSpanOfAList(t *testing.T) {
	o, ended := newTracedObserver(sdktrace.AlwaysSample())
	const target = "/api/v1/namespaces/team-a/pods?resourceVersion=0&labelSelector=secret%3Dyes"
	r := httptest.NewRequest(http.MethodGet, target, nil)
	r.Header.Set("Traceparent", proxytest.CallersTrace)
	observetest.Request(o, r, func(s observetest.Seen) { // s has the request's observe.Record and ResponseWriter
		s.SetDecision(&policy.Request{Version: "v1", Resource: "pods", Namespace: "team-a"}, policy.Any, reason.None)
		s.SetMemoryAnswer(observe.MemoryAnswer{Representation: media.JSON, Revision: 42, Items: 3, Bytes: 5})
		_, _ = s.Write([]byte("12345"))
	})
	request := proxytest.SpanNamed(t, ended(), "GET pods")
	if request.Parent.IsValid() {
		t.Errorf("the span has the parent %v, want none", request.Parent.SpanID())
	}
	if len(request.Links) != 1 {
		t.Fatalf("the span links to %v, want one link", request.Links)
	}
	expect.Same(t, proxytest.CallersSpanID, request.Links[0].SpanContext.SpanID().String())
	expect.Same(t, map[string]string{ // all attributes; none has the selector
		"http.request.method": "GET", "http.response.status_code": "200",
		"url.scheme": "http", "server.address": "listproxy",
		"listproxy.decision": "serve", "listproxy.semantics": "any",
		"listproxy.resource": "pods", "listproxy.representation": "json",
		"listproxy.revision": "42", "listproxy.items": "3", "listproxy.bytes": "5",
	}, attributesOf(request))
}

// TestInstrumentSend: Observer.InstrumentSend counts requests to the API server by their purpose: review, or whoami. Only the
// duration of reviews is measured. The span of such a request is a child of the span in the context. The request has its
// traceparent.
func TestInstrumentSend(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	o, metrics := observetest.New(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)))
	observetest.Request(o, httptest.NewRequest(http.MethodGet, "/", nil), func(s observetest.Seen) {
		ctx, span := observe.StartStep(s.Request.Context(), observe.SpanReview)
		defer span.End()
		for _, purpose := range []observe.Purpose{observe.PurposeReview, observe.PurposeWhoAmI} {
			var traceparent string
			send := o.InstrumentSend(purpose, func(_ context.Context, _ auth.Identity, r *http.Request) (*http.Response, error) {
				traceparent = r.Header.Get("Traceparent")
				return &http.Response{StatusCode: http.StatusCreated}, nil
			})
			_, err := send(ctx, auth.Identity{}, httptest.NewRequest(http.MethodPost, "/", nil))
			expect.NoError(t, err)
			// The span of the request is called after its method.
			post := proxytest.SpanNamed(t, spans.GetSpans(), "POST")
			if post.Parent.SpanID() != span.SpanContext().SpanID() {
				t.Errorf("the span of a %s has the parent %v, want %v", purpose, post.Parent.SpanID(), span.SpanContext().SpanID())
			}
			expect.Says(t, traceparent, post.SpanContext.SpanID().String()+"-01")
			spans.Reset() // so that SpanNamed finds the span of the next purpose
		}
	})
	expectSeries(t, metrics, map[string][]string{
		"listproxy_upstream_requests_total": {"code=201,purpose=review 1", "code=201,purpose=whoami 1"},
		"listproxy_review_duration_seconds": {"code=201 1"},
	})
}

// TestCallersDoNotSample: the caller's traceparent does not decide whether a request is recorded.
func TestCallersDoNotSample(t *testing.T) {
	const sampled, notSampled = "-01", "-00" // the flags of a traceparent
	for name, tt := range map[string]struct {
		sampler     sdktrace.Sampler
		callerFlags string
		wantSpans   int
	}{
		"a caller that samples, at an observer that does not": {
			sampler: sdktrace.NeverSample(), callerFlags: sampled, wantSpans: 0,
		},
		"a caller that does not sample, at an observer that does": {
			sampler: sdktrace.AlwaysSample(), callerFlags: notSampled, wantSpans: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			// ParentBased obeys the flags of a parent. tt.sampler decides if the caller's span is not the parent.
			o, ended := newTracedObserver(sdktrace.ParentBased(tt.sampler))
			r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
			r.Header.Set("Traceparent", strings.TrimSuffix(proxytest.CallersTrace, sampled)+tt.callerFlags)
			observetest.Request(o, r, func(observetest.Seen) {})
			expect.Same(t, tt.wantSpans, len(ended()))
		})
	}
}

// TestCodesOfSpans: a span has the status code that the client got. A span without a code is an error.
// (TestRequestsAreCounted has more cases.)
func TestCodesOfSpans(t *testing.T) {
	for name, tt := range map[string]struct {
		handle     func(observetest.Seen)
		wantCode   string // empty: the span has no code
		wantStatus codes.Code
	}{
		"a handler that writes nothing": {handle: func(observetest.Seen) {}, wantCode: "200"},
		"an upgrade": {
			handle: func(s observetest.Seen) { s.SetHijackedAnswer(http.StatusSwitchingProtocols, 0) }, wantCode: "101",
		},
		"broken off": {handle: func(observetest.Seen) { panic(http.ErrAbortHandler) }, wantStatus: codes.Error},
	} {
		t.Run(name, func(t *testing.T) {
			o, ended := newTracedObserver(sdktrace.AlwaysSample())
			observetest.Request(o, httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil), tt.handle)
			span := proxytest.SpanNamed(t, ended(), "GET")
			expect.Same(t, tt.wantCode, attributesOf(span)["http.response.status_code"])
			expect.Same(t, tt.wantStatus, span.Status.Code)
		})
	}
}

// TestTunnelHasNoSpan: a CONNECT has no span, since each request in the tunnel has one.
func TestTunnelHasNoSpan(t *testing.T) {
	o, ended := newTracedObserver(sdktrace.AlwaysSample())
	observetest.Request(o, httptest.NewRequest(http.MethodConnect, "/", nil), func(observetest.Seen) {})
	expect.Same(t, 0, len(ended()))
}

// TestFeedTransport: Observer.FeedTransport counts the requests of feeds by their purpose, counts the bytes that they
// receive, and gives each a span without a parent.
func TestFeedTransport(t *testing.T) {
	const body = "{}\n{}\n{}\n" // the answer to every request
	spans := tracetest.NewInMemoryExporter()
	o, metrics := observetest.New(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)))
	transport := o.FeedTransport(proxytest.Transport(func(r *http.Request) (*http.Response, error) {
		return inmemory.Answer(r, http.StatusOK, body), nil
	}), source.Describe)
	deployments := source.CollectionKey{
		GroupVersionResource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"},
		Representation:       media.MetadataProtobuf,
	}
	// A feed of deployments sends three requests: it loads its resource twice, and then watches it.
	for _, purpose := range []source.Purpose{source.ForLoad, source.ForLoad, source.ForWatch} {
		ctx := source.WithCollection(source.WithPurpose(t.Context(), purpose), deployments)
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://upstream", http.NoBody)
		expect.NoError(t, err)
		res, err := transport.RoundTrip(r)
		expect.NoError(t, err)
		_ = proxytest.ReadAll(t, res.Body)
		expect.NoError(t, res.Body.Close())
		expect.Same(t, "", r.Header.Get("Traceparent")) // the sender's request is unchanged
	}

	expectSeries(t, metrics, map[string][]string{
		"listproxy_feed_requests_total": {
			"code=200,representation=metadata-protobuf,request=load,resource=deployments.apps,version=v1 2",
			"code=200,representation=metadata-protobuf,request=watch,resource=deployments.apps,version=v1 1",
		},
		"listproxy_feed_received_bytes_total": {
			fmt.Sprintf("representation=metadata-protobuf,resource=deployments.apps,version=v1 %d", 3*len(body)),
		},
		"listproxy_upstream_requests_total": {"code=200,purpose=feed 3"},
	})

	var names []string
	for _, span := range spans.GetSpans() {
		names = append(names, span.Name)
		if span.Parent.IsValid() {
			t.Errorf("the span %q has the parent %v, want none", span.Name, span.Parent.SpanID())
		}
		attributes := attributesOf(span)
		expect.Same(t, "deployments.apps", attributes["listproxy.resource"])
		expect.Same(t, "metadata-protobuf", attributes["listproxy.representation"])
	}
	expect.Same(t, []string{"feed load", "feed load", "feed watch"}, names)
}

// TestForwardTransport: Record.ForwardTransport sends the traceparent of the span in which a request is forwarded, in
// place of the caller's.
func TestForwardTransport(t *testing.T) {
	o, ended := newTracedObserver(sdktrace.AlwaysSample())
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Traceparent", proxytest.CallersTrace)
	traceparent := ""
	observetest.Request(o, r, func(s observetest.Seen) {
		forward, end := s.ForwardTransport(proxytest.Transport(func(r *http.Request) (*http.Response, error) {
			traceparent = r.Header.Get("Traceparent")
			return &http.Response{StatusCode: http.StatusOK}, nil
		}))
		_, err := forward.RoundTrip(s.Request)
		expect.NoError(t, err)
		end()
	})
	span := proxytest.SpanNamed(t, ended(), observe.SpanForward)
	expect.Same(t, proxytest.SpanNamed(t, ended(), "GET").SpanContext.SpanID(), span.Parent.SpanID())
	expect.Says(t, traceparent, span.SpanContext.SpanID().String()+"-01")
}

// TestSpansHaveNoSecrets: credentials, names and selectors of a request are in no span.
func TestSpansHaveNoSecrets(t *testing.T) {
	o, ended := newTracedObserver(sdktrace.AlwaysSample())
	const secret = "hunter2"
	target := strings.ReplaceAll("/api/v1/namespaces/NAME/pods/NAME/exec?command=NAME&labelSelector=NAME", "NAME", secret)
	r := httptest.NewRequest("X"+secret, target, nil)
	r.Header.Set("Authorization", "Bearer "+secret)
	r.Header.Set("User-Agent", secret)
	r.Header.Set("Impersonate-User", secret)
	observetest.Request(o, r, func(s observetest.Seen) {
		request := policy.Request{Group: secret, Version: secret, Resource: secret, Namespace: secret, Name: secret}
		s.SetDecision(&request, "", reason.Watch)
		forward, end := s.ForwardTransport(proxytest.Transport(func(*http.Request) (*http.Response, error) {
			return nil, errors.New(secret)
		}))
		_, err := forward.RoundTrip(s.Request)
		end()
		expect.Same(t, secret, err.Error())
	})
	text := fmt.Sprintf("%+v", ended())
	proxytest.AssertNotContains(t, text, secret)
	// The text has both spans: the request's, with HTTP in place of its unknown method, and the span of forwarding.
	expect.Says(t, text, "{Name:HTTP ", "{Name:"+observe.SpanForward+" ")
}
