package observe

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"

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
	expect.Same(t, "proven", proven(reason.None))
	want("listproxy_proof_waiting", " 2")
	expect.Same(t, "not-proven", late(reason.NotProven))
	leave()
	expect.Same(t, "gone", left(reason.NotProven))
	want("listproxy_proof_waiting", " 0")
	want("listproxy_proof_duration_seconds", "result=gone 1", "result=not-proven 1", "result=proven 1")
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
