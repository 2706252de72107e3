package observe

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/internal/proxytest"
	"github.com/listproxy/listproxy/test/expect"
)

// TestProving: lists that wait for a proof are counted while they wait, and what came of them after
// that.
func TestProving(t *testing.T) {
	o, metrics := newMetered(t, nil)
	gone, leave := context.WithCancel(t.Context())
	proven, late, left := o.Proving(t.Context()), o.Proving(t.Context()), o.Proving(gone)
	want := func(name string, series ...string) {
		t.Helper()
		if diff := cmp.Diff(series, proxytest.Series(proxytest.Gather(t, metrics)[name])); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	want("listproxy_proof_waiting", " 3")
	proven(reason.None)
	want("listproxy_proof_waiting", " 2")
	late(reason.NotProven)
	leave()
	left(reason.NotProven)
	want("listproxy_proof_waiting", " 0")
	want("listproxy_proof_duration_seconds", "result=gone 1", "result=not-proven 1", "result=proven 1")
}

// TestQuestionsWhoACallerIsAreCounted by their purpose, and are no reviews.
func TestQuestionsWhoACallerIsAreCounted(t *testing.T) {
	o, metrics := newMetered(t, nil)
	answer := &http.Response{StatusCode: http.StatusCreated, Body: http.NoBody}
	for _, err := range []error{nil, nil, http.ErrHandlerTimeout} {
		send := WhoAmI(o, func(context.Context, struct{}, *http.Request) (*http.Response, error) { return answer, err })
		if res, got := send(t.Context(), struct{}{}, httptest.NewRequest(http.MethodPost, "/", nil)); got == nil {
			_ = res.Body.Close()
		}
	}
	got := proxytest.Gather(t, metrics)
	expect.Same(t, []string{"code=201,purpose=whoami 2", "code=none,purpose=whoami 1"}, proxytest.Series(got["listproxy_upstream_requests_total"]))
	if reviews := got["listproxy_review_duration_seconds"]; reviews != nil {
		t.Errorf("reviews: %v", reviews)
	}
}
