package observe

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/internal/proxytest"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/telemetry"
	"github.com/listproxy/listproxy/test/expect"
)

// newMetered returns an Observer and what it counts in.
func newMetered(t testing.TB, traces trace.TracerProvider) (*Observer, *telemetry.Metrics) {
	t.Helper()
	metrics, err := telemetry.NewMetrics(resource.Empty())
	expect.NoError(t, err)
	o, err := New(traces, metrics)
	expect.NoError(t, err)
	o.Serves = podsOnly
	return o, metrics
}

// observe lets a request be seen from beginning to end.
func observe(o *Observer, r *http.Request, then func(*Record)) {
	observeOn(o, httptest.NewRecorder(), r, func(s *Record, _ *http.Request) { then(s) })
}

func observeOn(o *Observer, w http.ResponseWriter, r *http.Request, then func(*Record, *http.Request)) {
	o.Observe(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		record := RecordOf(r.Context())
		then(record, record.Trace(r, true))
	}), proxytest.DiscardLog()).ServeHTTP(w, r)
}

// answerWith begins an answer with that code, which is the upstream's if the request is forwarded.
func answerWith(s *Record, code int) {
	if s.labels.decision == DecisionForward {
		s.Answered(code)
	}
	s.answer.WriteHeader(code)
}

func TestRequestsAreCounted(t *testing.T) {
	o, metrics := newMetered(t, nil)
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
	pods := policy.Request{Version: "v1", Resource: "pods"}
	observe(o, r, func(s *Record) {
		s.Decided(pods, policy.Any, "")
		s.Serving(Served{Bytes: 1000})
		_, _ = s.answer.Write(make([]byte, 100))
	})
	observe(o, r, func(s *Record) {
		s.Decided(pods, policy.Exact, reason.History)
		answerWith(s, http.StatusProcessing)
		answerWith(s, http.StatusGone)
	})
	observe(o, httptest.NewRequest(http.MethodGet, "/api/v1/pods?watch=1", nil), func(s *Record) {
		s.LongRunning(true)
		s.Decided(policy.Request{}, "", reason.Watch)
		s.Answered(http.StatusSwitchingProtocols) // and the connection is taken over
	})
	observe(o, r, func(s *Record) {
		s.Refused(s.answer.Header(), "time-out")
		answerWith(s, http.StatusTooManyRequests)
	})
	func() {
		defer func() { _ = recover() }()
		observe(o, r, func(s *Record) {
			s.Decided(pods, "", reason.Pretty)
			panic(http.ErrAbortHandler)
		})
	}()
	got := proxytest.Gather(t, metrics)
	for name, want := range map[string][]string{
		"listproxy_requests_total": {
			"code=101,decision=forward,reason=watch,resource=pods,semantics=none,verb=watch 1",
			"code=200,decision=serve,reason=none,resource=pods,semantics=any,verb=list 1",
			"code=410,decision=forward,reason=history,resource=pods,semantics=exact,verb=list 1",
			"code=429,decision=refuse,reason=time-out,resource=other,semantics=none,verb=list 1",
			"code=none,decision=forward,reason=pretty,resource=pods,semantics=none,verb=list 1",
		},
		"listproxy_request_duration_seconds": {
			"decision=forward,resource=pods,semantics=exact 1",
			"decision=forward,resource=pods,semantics=none 1",
			"decision=refuse,resource=other,semantics=none 1",
			"decision=serve,resource=pods,semantics=any 1",
		},
		"listproxy_response_body_bytes_total": {
			"decision=forward,resource=pods 0",
			"decision=refuse,resource=other 0", "decision=serve,resource=pods 100",
		},
		"listproxy_saved_lists_total": {"resource=pods 1"},
		"listproxy_saved_bytes_total": {"resource=pods 1000"},
		"listproxy_upstream_requests_total": {
			"code=101,purpose=forward 1", "code=410,purpose=forward 1", "code=none,purpose=forward 1",
		},
	} {
		if diff := cmp.Diff(want, proxytest.Series(got[name])); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestVerbs: what is asked for is told by a few words, whatever the method and the path are.
func TestVerbs(t *testing.T) {
	for request, want := range map[string]string{
		"GET /api/v1/pods":                                "list",
		"GET /apis/apps/v1/namespaces/a/deployments":      "list",
		"GET /api/v1/pods?watch=1":                        "watch",
		"GET /api/v1/pods?watch=0":                        "list",
		"GET /api/v1/pods?watch=1&sendInitialEvents=true": "watch",
		"GET /api/v1/watch/pods":                          "watch",
		"GET /api/v1/namespaces/a/pods/b":                 "other",
		"GET /api/v1/namespaces/a/pods/b/log?follow=1":    "other",
		"POST /api/v1/namespaces/a/pods":                  "other",
		"DELETE /api/v1/namespaces/a/pods":                "other",
		"MADEUP /api/v1/pods":                             "other",
		"LIST /healthz":                                   "other",
		"GET /healthz":                                    "other",
	} {
		method, target, _ := strings.Cut(request, " ")
		if got := verbOf(httptest.NewRequest(method, target, nil)); got != want {
			t.Errorf("%s is %s, want %s", request, got, want)
		}
	}
}

// TestSeriesAreBounded: whatever callers and upstreams make up, there are no new series.
func TestSeriesAreBounded(t *testing.T) {
	o, metrics := newMetered(t, nil)
	send := func(i int) {
		path := fmt.Sprintf("/apis/made-up-%d.io/v%d/namespaces/ns-%d/things-%d?resourceVersion=%d", i, i, i, i, i%7)
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Authorization", "Bearer x")
		observe(o, r, func(s *Record) {
			list, reason := policy.Parse(r, kubehttp.Of(r).Info, policy.PlainToken)
			s.Decided(list, "", reason)
			answerWith(s, 300+i%700)
		})
	}
	for i := range 700 { // every status that there can be
		send(i)
	}
	before := proxytest.Gather(t, metrics)
	for i := range 10000 {
		send(i)
	}
	for name, family := range proxytest.Gather(t, metrics) {
		if had := len(before[name].GetMetric()); len(family.GetMetric()) != had {
			t.Errorf("%s: %d series were %d", name, len(family.GetMetric()), had)
		}
		if n := len(family.GetMetric()); n > 100 {
			t.Errorf("%s has %d series", name, n)
		}
	}
}

// TestResourceIsKnownByItsAnswer: what is only forwarded has its name, from the first request that
// succeeds on.
func TestResourceIsKnownByItsAnswer(t *testing.T) {
	for _, tt := range []struct {
		name, method, target string
		reason               reason.Reason
		code                 int
		want                 string
	}{
		{"a list", http.MethodGet, "/apis/apps/v1/deployments", reason.MostRecent, 200, "deployments.apps"},
		{"a watch", http.MethodGet, "/apis/apps/v1/deployments?watch=1", reason.Watch, 200, "deployments.apps"},
		{"an object", http.MethodGet, "/apis/apps/v1/namespaces/a/deployments/b", reason.NotList, 200, "deployments.apps"},
		{"a subresource", http.MethodGet, "/api/v1/namespaces/a/services/b/proxy/c", reason.NotList, 204, "services"},
		{"known anyway", http.MethodPost, "/api/v1/namespaces/a/pods", reason.NotList, 403, "pods"},
		{"not there", http.MethodGet, "/apis/apps/v1/made-up", reason.MostRecent, 404, OtherLabel},
		{"not permitted", http.MethodGet, "/apis/apps/v1/deployments", reason.MostRecent, 403, OtherLabel},
		{"broken off", http.MethodGet, "/apis/apps/v1/deployments", reason.MostRecent, 0, OtherLabel},
		{"of a preflight", http.MethodOptions, "/apis/apps/v1/made-up", reason.NotList, 204, OtherLabel},
		{"no name of a resource", http.MethodGet, "/apis/apps/v1/Ey.hbGci", reason.NotCanonical, 200, OtherLabel},
		{"no resource", http.MethodGet, "/version", reason.NotList, 200, OtherLabel},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o, metrics := newMetered(t, nil)
			r := httptest.NewRequest(tt.method, tt.target, nil)
			r.Header.Set("Authorization", "Bearer x")
			seen := o.begin(httptest.NewRecorder(), r)
			list, _ := policy.Parse(r, kubehttp.Of(r).Info, policy.PlainToken)
			seen.Decided(list, "", tt.reason)
			if tt.code != 0 {
				answerWith(seen, tt.code)
			}
			seen.end()
			got := proxytest.Series(proxytest.Gather(t, metrics)["listproxy_requests_total"])
			if len(got) != 1 || !strings.Contains(got[0], "resource="+tt.want+",") {
				t.Errorf("counted as %v, want %s", got, tt.want)
			}
		})
	}
}

// TestRefusedHasNoResource: the upstream has not said that there is one.
func TestRefusedHasNoResource(t *testing.T) {
	o, metrics := newMetered(t, nil)
	observe(o, httptest.NewRequest(http.MethodGet, "/apis/apps/v1/deployments", nil), func(s *Record) {
		s.Refused(s.answer.Header(), RefusedIdentity)
		answerWith(s, http.StatusForbidden)
	})
	if got := proxytest.Series(proxytest.Gather(t, metrics)["listproxy_requests_total"]); len(got) != 1 || !strings.Contains(got[0], "resource=other,") {
		t.Errorf("counted as %v", got)
	}
}

// TestResourceLabelsAreBounded: at a time. What nobody asks for any more makes room.
func TestResourceLabelsAreBounded(t *testing.T) {
	var served servedResources
	now := time.Now()
	kind := func(i int) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "made.up", Version: "v1", Resource: fmt.Sprint("r", i)}
	}
	for i := range 10 * maxResourceLabels {
		served.add(kind(i), now)
	}
	if n := len(*served.known.Load()); n != maxResourceLabels {
		t.Errorf("%d labels, want %d", n, maxResourceLabels)
	}
	later := now.Add(labelRest - time.Nanosecond)
	if label := served.add(kind(-1), later); label != OtherLabel {
		t.Errorf("one too many is %q", label)
	}
	for i := range maxResourceLabels {
		if i == 7 {
			continue
		}
		if label, ok := served.of(kind(i), later); label != kind(i).GroupResource().String() || !ok {
			t.Errorf("%d is %q, %v", i, label, ok)
		}
	}
	later = now.Add(labelRest)
	for i, want := range []string{"r-1.made.up", OtherLabel} { // one place, and no second
		if label := served.add(kind(-1-i), later); label != want {
			t.Errorf("newcomer %d is %q, want %q", i, label, want)
		}
	}
	if _, ok := served.of(kind(7), later); ok {
		t.Error("what nobody asked for has its label still")
	}
	if n := len(*served.known.Load()); n != maxResourceLabels {
		t.Errorf("%d labels, want %d", n, maxResourceLabels)
	}
}

// BenchmarkObserve is what observing adds to a list from memory.
func BenchmarkObserve(b *testing.B) {
	for _, bb := range []struct {
		name    string
		traces  trace.TracerProvider
		metered bool
	}{
		{"nothing", nil, false},
		{"metrics", nil, true},
		{"metrics and traces, none sampled", sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())), true},
		{"metrics and traces, all sampled", sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample())), true},
	} {
		b.Run(bb.name, func(b *testing.B) {
			var o *Observer
			if bb.metered {
				o, _ = newMetered(b, bb.traces)
			}
			r := httptest.NewRequest(http.MethodGet, "/api/v1/pods?resourceVersion=0", nil)
			r.Header.Set("Authorization", "Bearer x")
			list, page := policy.Request{Version: "v1", Resource: "pods"}, Served{Bytes: 1000}
			w, log := uncountedWriter{}, proxytest.DiscardLog()
			handler := o.Observe(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				s := RecordOf(r.Context())
				r = s.Trace(r, true)
				for _, step := range []string{SpanReview, SpanSnapshot, SpanWrite} {
					_, span := s.Step(r.Context(), step)
					span.End()
				}
				s.Decided(list, policy.Any, "")
				s.Serving(page)
				w.WriteHeader(http.StatusOK)
			}), log)
			b.ReportAllocs()
			for b.Loop() {
				handler.ServeHTTP(w, r)
			}
		})
	}
}

// uncountedWriter is an http.ResponseWriter that costs nothing.
type uncountedWriter struct{}

func (uncountedWriter) Header() http.Header         { return nil }
func (uncountedWriter) Write(p []byte) (int, error) { return len(p), nil }
func (uncountedWriter) WriteHeader(int)             {}

// TestSeriesOfHostiles: who may list much and asks in every way there is makes a bounded number of
// series, and what is counted then has its reason still.
func TestSeriesOfHostiles(t *testing.T) {
	o, metrics := newMetered(t, nil)
	o.Serves = func(_, _, _ string) bool { return true }
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	reasons := reason.Forwarding()
	for i := range 400 {
		for _, reason := range reasons {
			observe(o, r, func(s *Record) {
				s.Decided(policy.Request{Version: "v1", Resource: fmt.Sprint("kind-", i)}, policy.Any, reason)
				answerWith(s, http.StatusOK)
			})
		}
	}
	if got := len(*o.requests.series.known.Load()); got > maxSeries+len(reasons) {
		t.Errorf("%d series are kept", got)
	}
	got := proxytest.Series(proxytest.Gather(t, metrics)["listproxy_requests_total"])
	if len(got) > maxSeries+len(reasons) {
		t.Errorf("%d series", len(got))
	}
	for _, reason := range reasons {
		want := fmt.Sprintf("code=200,decision=forward,reason=%s,resource=other,semantics=any,verb=", reason)
		if !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("nothing like %q: what came late is not told by its reason", want)
		}
	}
}

// TestSeriesOfMany: when custom resources have come and gone in as many versions as there may be
// series, further ones of feeds are counted together.
func TestSeriesOfMany(t *testing.T) {
	o, metrics := newMetered(t, nil)
	series, names := map[feedLabels][]metric.AddOption{}, map[feedName][]metric.AddOption{}
	for i := range maxSeries {
		name := feedName{version: fmt.Sprint("v", i)}
		series[feedLabels{feedName: name}], names[name] = nil, nil
	}
	o.feeds.series.known.Store(&series)
	o.feeds.byObject.known.Store(&names)
	transport := o.FeedTransport(feedAnswer{"application/json", "{}"}, &url.URL{})
	for i := range 100 {
		r := httptest.NewRequestWithContext(source.With(t.Context(), source.ForList), http.MethodGet,
			fmt.Sprintf("/apis/example.com/v%d/widgets", i), nil)
		res, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
	}
	got := proxytest.Gather(t, metrics)
	for family, want := range map[string]string{
		"listproxy_feed_requests_total":       "code=200,representation=json,request=list,resource=other,version=other 100",
		"listproxy_feed_received_bytes_total": "representation=json,resource=other,version=other 200",
	} {
		if diff := cmp.Diff([]string{want}, proxytest.Series(got[family])); diff != "" {
			t.Errorf("%s: -want +got:\n%s", family, diff)
		}
	}
}
