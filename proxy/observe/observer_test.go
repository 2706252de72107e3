package observe_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/observetest"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestRequestsAreCounted: Observer.Observe counts each request once, with the decision, the reason, and the status code
// that the client got. The metrics of bytes, durations and upstream requests agree with that count.
func TestRequestsAreCounted(t *testing.T) {
	o, metrics := observetest.New(nil)
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
	pods := &policy.Request{Version: "v1", Resource: "pods"}
	// A list that is answered from memory: 1000 bytes, compressed to 100.
	observetest.Request(o, r, func(s observetest.Seen) {
		s.SetDecision(pods, policy.Any, reason.None)
		s.SetMemoryAnswer(observe.MemoryAnswer{Bytes: 1000})
		_, _ = s.Write(make([]byte, 100))
	})
	// A list that is forwarded. A 102 precedes the answer, a 410.
	observetest.Request(o, r, func(s observetest.Seen) {
		s.SetDecision(pods, policy.Exact, reason.History)
		s.WriteHeader(http.StatusProcessing)
		s.WriteHeader(http.StatusGone)
	})
	// A watch over a websocket, whose connection is hijacked.
	observetest.Request(o, httptest.NewRequest(http.MethodGet, "/api/v1/pods?watch=1", nil), func(s observetest.Seen) {
		s.SetDecision(&policy.Request{}, "", reason.Watch)
		s.SetHijackedAnswer(http.StatusSwitchingProtocols, 0)
	})
	// A list that listproxy refuses.
	observetest.Request(o, r, func(s observetest.Seen) {
		s.SetRefused("time-out")
		s.WriteHeader(http.StatusTooManyRequests)
	})
	// A forwarded list with a status code that HTTP does not define, as a pod behind kube-apiserver's proxy may send it.
	observetest.Request(o, r, func(s observetest.Seen) {
		s.SetDecision(pods, "", reason.Representation)
		s.WriteHeader(799)
	})
	// A forwarded list that is broken off before its answer begins.
	observetest.Request(o, r, func(s observetest.Seen) {
		s.SetDecision(pods, "", reason.Representation)
		panic(http.ErrAbortHandler)
	})
	expectSeries(t, metrics, map[string][]string{
		"listproxy_requests_total": {
			"code=101,decision=forward,reason=watch,resource=pods,semantics=none,verb=watch 1",
			"code=200,decision=serve,reason=none,resource=pods,semantics=any,verb=list 1",
			"code=410,decision=forward,reason=history,resource=pods,semantics=exact,verb=list 1",
			"code=429,decision=refuse,reason=time-out,resource=other,semantics=none,verb=list 1",
			"code=none,decision=forward,reason=representation,resource=pods,semantics=none,verb=list 1",
			"code=other,decision=forward,reason=representation,resource=pods,semantics=none,verb=list 1",
		},
		"listproxy_request_duration_seconds": { // all but the watch; the numbers are counts of requests
			"decision=forward,resource=pods,semantics=exact 1",
			"decision=forward,resource=pods,semantics=none 2",
			"decision=refuse,resource=other,semantics=none 1",
			"decision=serve,resource=pods,semantics=any 1",
		},
		"listproxy_response_body_bytes_total": {
			"decision=forward,resource=pods 0",
			"decision=refuse,resource=other 0", "decision=serve,resource=pods 100",
		},
		"listproxy_saved_bytes_total": {"resource=pods 1000"},
		"listproxy_upstream_requests_total": {
			"code=101,purpose=forward 1", "code=410,purpose=forward 1", "code=none,purpose=forward 1",
			"code=other,purpose=forward 1",
		},
	})
}

// expectSeries fails the test unless the metrics with these names have these series.
func expectSeries(t *testing.T, metrics prometheus.Gatherer, want map[string][]string) {
	t.Helper()
	families := proxytest.Gather(t, metrics)
	got := map[string][]string{}
	for name := range want {
		got[name] = proxytest.Series(families[name])
	}
	expect.Same(t, want, got)
}

// TestResourceLabel: a resource is counted under its own name if it is in the catalog, or once a GET of it has succeeded. All
// others are counted as "other".
func TestResourceLabel(t *testing.T) {
	const deployments = "/apis/apps/v1/deployments"
	for _, tt := range []struct {
		name   string
		method string // empty: GET
		target string
		reason reason.Reason
		code   int // 0: the answer is broken off
		want   string
	}{
		{name: "a list", target: deployments, reason: reason.Consistent, code: 200, want: "deployments.apps"},
		{name: "a watch", target: deployments + "?watch=1", reason: reason.Watch, code: 200, want: "deployments.apps"},
		{
			name: "an object", target: "/apis/apps/v1/namespaces/a/deployments/b", reason: reason.NotList, code: 200,
			want: "deployments.apps",
		},
		{
			name: "a subresource", target: "/api/v1/namespaces/a/services/b/proxy/c", reason: reason.NotList, code: 204,
			want: "services",
		},
		{
			name: "forbidden, but in the catalog", method: http.MethodPost, target: "/api/v1/namespaces/a/pods", reason: reason.NotList,
			code: 403, want: "pods",
		},
		{name: "not found", target: "/apis/apps/v1/made-up", reason: reason.Consistent, code: 404, want: observe.OtherLabel},
		{name: "forbidden", target: deployments, reason: reason.Consistent, code: 403, want: observe.OtherLabel},
		{name: "broken off", target: deployments, reason: reason.Consistent, want: observe.OtherLabel},
		{
			name: "a preflight", method: http.MethodOptions, target: "/apis/apps/v1/made-up", reason: reason.NotList,
			code: 204, want: observe.OtherLabel,
		},
		{
			name: "not a name that Kubernetes allows", target: "/apis/apps/v1/Ey.hbGci", reason: reason.NotCanonical, code: 200,
			want: observe.OtherLabel,
		},
		{name: "no resource", target: "/version", reason: reason.NotList, code: 200, want: observe.OtherLabel},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o, metrics := observetest.New(nil)
			r := httptest.NewRequest(cmp.Or(tt.method, http.MethodGet), tt.target, nil)
			r.Header.Set("Authorization", "Bearer x")
			observetest.Request(o, r, func(s observetest.Seen) {
				asked, _ := policy.Parse(r, kubehttp.RequestOf(r).Info, policy.PlainToken)
				s.SetDecision(asked, "", tt.reason)
				if tt.code == 0 {
					panic(http.ErrAbortHandler)
				}
				s.WriteHeader(tt.code)
			})
			got := proxytest.Series(proxytest.Gather(t, metrics)["listproxy_requests_total"])
			if len(got) != 1 || !strings.Contains(got[0], "resource="+tt.want+",") {
				t.Errorf("the series are %v, want one with resource=%s", got, tt.want)
			}
		})
	}
}

// TestSeriesAreBounded: if callers name ever more resources, only the first 512 get series of their own. Requests for the
// others are counted as resource=other, by reason.
func TestSeriesAreBounded(t *testing.T) {
	const bound = 512        // resources with series of their own (maxResourceValues of package observe)
	const furtherNames = 100 // resources after the first 512
	o, metrics := observetest.New(nil)
	o.IsServed = func(_, _, _ string) bool { return true }
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	reasons := []reason.Reason{reason.Consistent, reason.Warming, reason.NotAllowed}
	for i := range bound + furtherNames {
		for _, why := range reasons {
			observetest.Request(o, r, func(s observetest.Seen) {
				s.SetDecision(&policy.Request{Version: "v1", Resource: fmt.Sprint("kind-", i)}, policy.Any, why)
				s.WriteHeader(http.StatusOK)
			})
		}
	}
	got := proxytest.Series(proxytest.Gather(t, metrics)["listproxy_requests_total"])
	expect.Same(t, (bound+1)*len(reasons), len(got)) // for each reason, one more series: resource=other
	for _, why := range reasons {
		want := fmt.Sprintf("code=200,decision=forward,reason=%s,resource=other,semantics=any,verb=other %d", why, furtherNames)
		if !slices.Contains(got, want) {
			t.Errorf("there is no series %q", want)
		}
	}
}

// TestStartProof: Observer.StartProof counts waits for a proof by their result: proven, the reason why not, or gone if the
// client has left.
func TestStartProof(t *testing.T) {
	o, metrics := observetest.New(nil)
	for _, why := range []reason.Reason{reason.None, reason.NotProven} {
		_, end := o.StartProof(t.Context())
		end(why)
	}
	ctx, leave := context.WithCancel(t.Context())
	_, end := o.StartProof(ctx)
	leave()
	end(reason.NotProven)
	expect.Same(t, []string{"result=gone 1", "result=not-proven 1", "result=proven 1"},
		proxytest.Series(proxytest.Gather(t, metrics)["listproxy_proof_duration_seconds"]))
}
