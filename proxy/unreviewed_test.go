package proxy

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/internal/authntest"
	"github.com/listproxy/listproxy/proxy/internal/observetest"
	"github.com/listproxy/listproxy/proxy/internal/proxytest"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/telemetry"
	"github.com/listproxy/listproxy/test/harness/logbuffer"
)

// TestReasonTold: what memory knows is only for who may list the resource.
func TestReasonTold(t *testing.T) {
	for _, tt := range []struct {
		memorys reason.Reason
		code    int
		want    reason.Reason
	}{
		{reason.Warming, http.StatusOK, reason.Warming},
		{reason.History, http.StatusGone, reason.History},
		{reason.Ahead, http.StatusGatewayTimeout, reason.Ahead},
		{reason.Stale, http.StatusGatewayTimeout, reason.ReviewFailed},
		{reason.Warming, http.StatusForbidden, reason.NotAllowed},
		{reason.Warming, http.StatusUnauthorized, reason.NotAllowed},
		{reason.Stale, http.StatusBadRequest, reason.ReviewFailed},
		{reason.Stale, http.StatusTooManyRequests, reason.ReviewFailed},
		{reason.Stale, http.StatusServiceUnavailable, reason.ReviewFailed},
	} {
		if got := reasonTold(tt.memorys, tt.code); got != tt.want {
			t.Errorf("%s with %d: %s, want %s", tt.memorys, tt.code, got, tt.want)
		}
	}
}

// TestReasonIsToldInAllPlaces: in the header, beside what other caches say, in the log, and in
// metrics. Only these have memory's reason where the caller may not be told, and no review that
// failed where none was sent.
func TestReasonIsToldInAllPlaces(t *testing.T) {
	for code, want := range map[int]struct{ told, counted string }{
		http.StatusOK:              {"history", "history"},
		http.StatusForbidden:       {"not-allowed", "not-allowed"},
		http.StatusTooManyRequests: {"review-failed", "history"},
	} {
		o, metrics := observetest.New(t, nil)
		w, log := httptest.NewRecorder(), &logbuffer.Buffer{}
		o.Observe(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			record := observe.RecordOf(r.Context())
			record.Decided(policy.Request{}, "", reason.History)
			w.Header()[kubehttp.CacheStatusHeader] = []string{"other; hit", kubehttp.CacheForwarded(reason.History)}
			writer := &unreviewedWriter{ResponseWriter: w, record: record, reason: reason.History}
			writer.WriteHeader(http.StatusEarlyHints) // is no answer
			writer.WriteHeader(code)
		}), telemetry.NewLogger(log, telemetry.FormatText, telemetry.LevelAccess)).
			ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil))
		status := kubehttp.CacheForwarded(reason.Reason(want.told))
		if diff := cmp.Diff([]string{"other; hit", status}, w.Header()[kubehttp.CacheStatusHeader]); diff != "" {
			t.Errorf("the header of a %d (-want +got):\n%s", code, diff)
		}
		counted := proxytest.Series(proxytest.Gather(t, metrics)["listproxy_requests_total"])
		if len(counted) != 1 || !strings.Contains(counted[0], "reason="+want.counted+",") || !strings.Contains(log.String(), status) {
			t.Errorf("a %d: %q in metrics, %q in the log", code, counted, log)
		}
	}
}

// TestNoReviewInVain: what memory lacks is known before a review is sent; a collection is started
// only for who has a right to it, and what such a one has just been told is told again.
func TestNoReviewInVain(t *testing.T) { synctest.Test(t, testNoReviewInVain) }

func testNoReviewInVain(t *testing.T) {
	h := decider(t, fakeCluster(), 0)
	var asked atomic.Int32
	var allows atomic.Bool
	h.Authorizer = authorizerOf(t, func(r *http.Request) (*http.Response, error) {
		asked.Add(1)
		return proxytest.AnswerReview(r, authorizationv1.SubjectAccessReviewStatus{Allowed: allows.Load()})
	})
	h.Policy = policy.DefaultConfig()
	who := caller{identity: authntest.Identify(authntest.New(t), "Bearer a"), accepted: true}
	pods := snapshot.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespaced: true, Representation: media.JSON}
	want := func(what string, want reason.Reason, unreviewed bool, reviews int32) {
		t.Helper()
		r := httptest.NewRequest(http.MethodGet, "/api/v1/pods?resourceVersion=0", nil)
		r.Header.Set("Authorization", "Bearer a")
		r.Header.Set("Accept", "application/json")
		_, found, got := h.decide(r, who)
		if got != want || found.unreviewed != unreviewed || asked.Swap(0) != reviews {
			t.Errorf("%s: %q, unreviewed %t, want %q, %t, with %d reviews", what, got, found.unreviewed, want, unreviewed, reviews)
		}
		synctest.Wait() // the answer is remembered
	}
	want("a collection that is not there", reason.NotAllowed, false, 1)
	if collection, _ := h.Collections.Peek(pods); collection != nil {
		t.Error("started for somebody who may not list it")
	}
	allows.Store(true)
	want("by one who may", reason.Warming, false, 1)
	want("once more", reason.Warming, false, 0)
	h.Authorizer.Flush()
	want("one that is warming", reason.Warming, true, 0)
}

// TestUnknownCallersAreNotLookedUp: a Handler that knows nothing at all has its answer for them.
func TestUnknownCallersAreNotLookedUp(t *testing.T) {
	identifier := authntest.New(t)
	h := &Handler{Policy: &policy.Config{}}
	for target, want := range map[string]reason.Reason{
		"/api/v1/pods?resourceVersion=0":                      reason.UnknownCaller,
		"/api/v1/secrets?resourceVersion=0":                   reason.UnknownCaller,
		"/apis/no.such.group/v1/things?resourceVersion=0":     reason.UnknownCaller,
		"/apis/metrics.k8s.io/v1beta1/pods?resourceVersion=0": reason.UnknownCaller,
		"/api/v1/pods?resourceVersion=7&limit=1":              reason.UnknownCaller,
		"/api/v1/pods":                                        reason.MostRecent, // the request's own
		"/api/v1/pods?watch=1":                                reason.Watch,
		"/api/v1/pods?unknown=1":                              reason.Parameter,
	} {
		r := httptest.NewRequest(http.MethodGet, target, nil)
		r.Header.Set("Authorization", "Bearer made-up")
		r.Header.Set("Accept", "application/json")
		id, _ := identifier.Authenticate(r)
		_, _, got := h.decide(r, caller{identity: id})
		if got != want {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
	}
}
