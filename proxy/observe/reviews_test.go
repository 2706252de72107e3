package observe

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestProving: of lists that waited for a proof it is counted what became of them.
func TestProving(t *testing.T) {
	o, metrics := newMetered(nil)
	gone, leave := context.WithCancel(t.Context())
	proven, late, left := o.Proving(t.Context()), o.Proving(t.Context()), o.Proving(gone)
	expect.Same(t, "proven", proven(reason.None))
	expect.Same(t, "not-proven", late(reason.NotProven))
	leave()
	expect.Same(t, "gone", left(reason.NotProven))
	expect.Same(t, []string{"result=gone 1", "result=not-proven 1", "result=proven 1"},
		proxytest.Series(proxytest.Gather(t, metrics)["listproxy_proof_duration_seconds"]))
}

// TestQuestionsWhoACallerIsAreCounted by their purpose, and are no reviews.
func TestQuestionsWhoACallerIsAreCounted(t *testing.T) {
	o, metrics := newMetered(nil)
	answer := &http.Response{StatusCode: http.StatusCreated, Body: http.NoBody}
	for _, err := range []error{nil, nil, http.ErrHandlerTimeout} {
		send := Asking(o, PurposeWhoAmI, func(context.Context, struct{}, *http.Request) (*http.Response, error) { return answer, err })
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
