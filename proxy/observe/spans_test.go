package observe_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/observetest"
	"github.com/listproxy/listproxy/test/proxytest"
)

// traced returns an Observer, and the spans that have ended so far.
func traced(sampler sdktrace.Sampler) (*observe.Observer, func() tracetest.SpanStubs) {
	spans := tracetest.NewInMemoryExporter()
	o, _ := observetest.New(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans), sdktrace.WithSampler(sampler)))
	return o, spans.GetSpans
}

func attributesOf(s tracetest.SpanStub) map[string]string {
	all := map[string]string{}
	for _, a := range s.Attributes {
		all[string(a.Key)] = a.Value.Emit()
	}
	return all
}

// TestSpanOfAList: the span of a list has these attributes, and a link to the caller's. (test/cluster has the
// spans below it in Jaeger.)
func TestSpanOfAList(t *testing.T) {
	o, ended := traced(sdktrace.AlwaysSample())
	const target = "/api/v1/namespaces/team-a/pods?resourceVersion=0&labelSelector=secret%3Dyes"
	r := httptest.NewRequest(http.MethodGet, target, nil)
	r.Header.Set("Traceparent", proxytest.CallersTrace)
	observetest.Request(o, r, func(s observetest.Seen) {
		s.SetDecision(&policy.Request{Version: "v1", Resource: "pods", Namespace: "team-a"}, policy.Any, reason.None)
		s.SetMemoryAnswer(observe.MemoryAnswer{Representation: media.JSON, Revision: 42, Items: 3, Bytes: 5})
		_, _ = s.Write([]byte("12345"))
	})
	request := proxytest.SpanNamed(t, ended(), "GET pods")
	if request.Parent.IsValid() || len(request.Links) != 1 {
		t.Fatalf("the span is below %v, with links to %v; want one link alone", request.Parent.SpanID(), request.Links)
	}
	expect.Same(t, proxytest.CallersSpanID, request.Links[0].SpanContext.SpanID().String())
	if diff := cmp.Diff(map[string]string{
		"http.request.method": "GET", "http.response.status_code": "200",
		"url.scheme": "http", "server.address": "listproxy",
		"listproxy.decision": "serve", "listproxy.semantics": "any",
		"listproxy.resource": "pods", "listproxy.representation": "json",
		"listproxy.revision": "42", "listproxy.items": "3", "listproxy.bytes": "5",
	}, attributesOf(request)); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
}

// TestQuestionsAboutCallers: each question to the upstream about a caller is counted by its purpose, and its span, of
// which the upstream is told, is below that of the request that asked it first.
func TestQuestionsAboutCallers(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	o, metrics := observetest.New(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)))
	observetest.Request(o, httptest.NewRequest(http.MethodGet, "/", nil), func(s observetest.Seen) {
		ctx, span := observe.StartStep(s.Request.Context(), observe.SpanReview)
		defer span.End()
		for _, purpose := range []observe.Purpose{observe.PurposeReview, observe.PurposeWhoAmI} {
			var traceparent string
			send := observe.Instrument(o, purpose, func(_ context.Context, _ struct{}, r *http.Request) (*http.Response, error) {
				traceparent = r.Header.Get("Traceparent")
				return &http.Response{StatusCode: http.StatusCreated}, nil
			})
			_, err := send(context.WithoutCancel(ctx), struct{}{}, httptest.NewRequest(http.MethodPost, "/", nil))
			expect.NoError(t, err)
			post := proxytest.SpanNamed(t, spans.GetSpans(), "POST")
			if post.Parent.SpanID() != span.SpanContext().SpanID() {
				t.Errorf("%s is below %v, want %v", purpose, post.Parent.SpanID(), span.SpanContext().SpanID())
			}
			expect.Says(t, traceparent, post.SpanContext.SpanID().String()+"-01")
			spans.Reset()
		}
	})
	got := proxytest.Gather(t, metrics)
	for name, want := range map[string][]string{
		"listproxy_upstream_requests_total": {"code=201,purpose=review 1", "code=201,purpose=whoami 1"},
		"listproxy_review_duration_seconds": {"code=201 1"},
	} {
		expect.Same(t, want, proxytest.Series(got[name]))
	}
}

// TestCallersHaveNoSay: whoever sends a traceparent does not decide what is recorded.
func TestCallersHaveNoSay(t *testing.T) {
	for _, tt := range []struct {
		sampler   sdktrace.Sampler
		flags     string // of the traceparent: whether the caller wants a record
		wantSpans int
	}{
		{sampler: sdktrace.NeverSample(), flags: "-01", wantSpans: 0},
		{sampler: sdktrace.AlwaysSample(), flags: "-00", wantSpans: 1},
	} {
		o, ended := traced(sdktrace.ParentBased(tt.sampler))
		r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
		r.Header.Set("Traceparent", strings.TrimSuffix(proxytest.CallersTrace, "-01")+tt.flags)
		observetest.Request(o, r, func(observetest.Seen) {})
		expect.Same(t, tt.wantSpans, len(ended()))
	}
}

// TestCodesOfSpans: a span has the code that the client got, also where no ResponseWriter has seen it. A tunnel has no
// span.
func TestCodesOfSpans(t *testing.T) {
	for name, tt := range map[string]struct {
		handle   func(observetest.Seen)
		wantCode string // "": none, and the status is an error
	}{
		"switched": {handle: func(s observetest.Seen) { s.SetUpstreamStatus(http.StatusSwitchingProtocols) }, wantCode: "101"},
		"empty":    {handle: func(observetest.Seen) {}, wantCode: "200"},
		"sent":     {handle: func(s observetest.Seen) { s.SetSent(http.StatusForbidden, 10) }, wantCode: "403"},
		"told twice": {
			handle: func(s observetest.Seen) {
				s.WriteHeader(http.StatusContinue)
				s.WriteHeader(http.StatusTeapot)
			},
			wantCode: "418",
		},
		"broken off": {handle: func(observetest.Seen) { panic(http.ErrAbortHandler) }},
	} {
		o, ended := traced(sdktrace.AlwaysSample())
		for _, method := range []string{http.MethodGet, http.MethodConnect} {
			observetest.Request(o, httptest.NewRequest(method, "/api/v1/pods", nil), tt.handle)
		}
		spans := ended()
		if len(spans) != 1 {
			t.Fatalf("%s: spans %v, want one", name, spans)
		}
		gotCode, failed := attributesOf(spans[0])["http.response.status_code"], spans[0].Status.Code == codes.Error
		if gotCode != tt.wantCode || failed != (tt.wantCode == "") {
			t.Errorf("%s: the code %q, an error: %t; want the code %q", name, gotCode, failed, tt.wantCode)
		}
	}
}

// TestFeedsAreObserved: requests of feeds are counted by their purpose, have spans of their own, and the bytes that they
// receive are counted.
func TestFeedsAreObserved(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	o, metrics := observetest.New(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)))
	transport := o.FeedTransport(proxytest.Transport(func(r *http.Request) (*http.Response, error) {
		return proxytest.JSONResponse(r, http.StatusOK, "{}\n{}\n{}\n"), nil
	}), source.Describe)
	ask := func(kind source.Kind, representation media.Representation) {
		t.Helper()
		deployments := source.CollectionKey{
			GroupVersionResource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"},
			Representation:       representation,
		}
		ctx := source.WithCollection(source.With(t.Context(), kind), deployments)
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://upstream", http.NoBody)
		expect.NoError(t, err)
		res, err := transport.RoundTrip(r)
		expect.NoError(t, err)
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if r.Header.Get("Traceparent") != "" {
			t.Error("the request of the caller was changed")
		}
	}
	for _, kind := range []source.Kind{
		source.ForList, source.ForLoad, source.ForWatch, source.ForProbe, source.ForLearn, source.ForLoad,
	} {
		ask(kind, media.JSON)
	}
	ask(source.ForWatch, media.MetadataProtobuf)

	got := proxytest.Gather(t, metrics)
	for name, want := range map[string][]string{
		"listproxy_feed_requests_total": {
			"code=200,representation=json,request=learn,resource=deployments.apps,version=v1 1",
			"code=200,representation=json,request=list,resource=deployments.apps,version=v1 1",
			"code=200,representation=json,request=load,resource=deployments.apps,version=v1 2",
			"code=200,representation=json,request=probe,resource=deployments.apps,version=v1 1",
			"code=200,representation=json,request=watch,resource=deployments.apps,version=v1 1",
			"code=200,representation=metadata-protobuf,request=watch,resource=deployments.apps,version=v1 1",
		},
		"listproxy_feed_received_bytes_total": {
			"representation=json,resource=deployments.apps,version=v1 54",
			"representation=metadata-protobuf,resource=deployments.apps,version=v1 9",
		},
		"listproxy_upstream_requests_total": {"code=200,purpose=feed 7"},
	} {
		if diff := cmp.Diff(want, proxytest.Series(got[name])); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}

	ended := spans.GetSpans()
	wantNames := []string{
		"feed list", "feed load", "feed watch", "feed probe", "feed learn", "feed load", "feed watch",
	}
	if diff := cmp.Diff(wantNames, proxytest.SpanNames(ended)); diff != "" {
		t.Fatalf("spans (-want +got):\n%s", diff)
	}
	for _, span := range ended {
		got := attributesOf(span)
		if got["listproxy.resource"] != "deployments.apps" || got["listproxy.representation"] == "" || span.Parent.IsValid() {
			t.Errorf("%s is below %v, and has %v; want no parent, a resource and a form", span.Name, span.Parent, got)
		}
	}
}

// TestSpanOfAForward: the upstream gets the traceparent of the span in which a request is forwarded, not the caller's.
func TestSpanOfAForward(t *testing.T) {
	o, ended := traced(sdktrace.AlwaysSample())
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

// TestSpansTellNoSecrets: credentials, names and selectors of a request are in no span.
func TestSpansTellNoSecrets(t *testing.T) {
	o, ended := traced(sdktrace.AlwaysSample())
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
	expect.Says(t, text, "{Name:HTTP ", "{Name:"+observe.SpanForward+" ")
}
