package observe

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/internal/proxytest"
	"github.com/listproxy/listproxy/test/expect"
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

// TestProof: the span says what became of a proof, and how long the probe took or has taken so far. A
// probe that was sent before the wait began has not queued.
func TestProof(t *testing.T) {
	begun := time.Now()
	at := func(ms int) time.Time { return begun.Add(time.Duration(ms) * time.Millisecond) }
	for name, tt := range map[string]struct {
		sent, answered time.Time
		want           []attribute.KeyValue
	}{
		"proven":                     {at(2), at(7), []attribute.KeyValue{attrQueued.Float64(2), attrProbe.Float64(5)}},
		"sent before the wait began": {at(-3), at(7), []attribute.KeyValue{attrQueued.Float64(0), attrProbe.Float64(10)}},
		"no probe":                   {time.Time{}, at(1500), nil},
	} {
		want := append([]attribute.KeyValue{attrProofResult.String(name)}, tt.want...)
		if got := Proof(name, begun, tt.sent, tt.answered); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// TestQuestionsWhoACallerIsAreCounted by their purpose, and are no reviews.
func TestQuestionsWhoACallerIsAreCounted(t *testing.T) {
	o, metrics := newMetered(nil)
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
