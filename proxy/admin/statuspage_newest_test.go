package admin

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/internal/observetest"
	"github.com/listproxy/listproxy/proxy/internal/proxytest"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/telemetry/statusz"
)

// TestStatusOfTheNewestState: lists of the newest state are counted by what became of them, and
// apart from all others; so is what the switch would have done with them. A client that leaves has
// not been failed.
func TestStatusOfTheNewestState(t *testing.T) {
	o, metrics := observetest.New(t, nil)
	for _, list := range []struct {
		semantics policy.Semantics
		why       reason.Reason
	}{
		{policy.MostRecent, reason.None},
		{policy.MostRecent, reason.None},
		{policy.MostRecent, reason.MostRecent},
		{policy.MostRecent, reason.FasterForwarded},
		{policy.MostRecent, reason.NotProven},
		{policy.Any, reason.None},
		{policy.Exact, reason.History},
		{policy.After, reason.None}, // watches are no lists
		{policy.After, reason.History},
	} {
		target := "/api/v1/pods"
		if list.semantics == policy.After {
			target += "?watch=1&resourceVersion=5"
		}
		observetest.Request(o, httptest.NewRequest(http.MethodGet, target, nil), func(s *observe.Record, w http.ResponseWriter) {
			s.Decided(policy.Request{Version: "v1", Resource: "pods"}, list.semantics, list.why)
			answerWith(s, w, http.StatusOK)
		})
	}
	for _, why := range []reason.Reason{reason.None, reason.None, reason.FasterForwarded, reason.Warming} {
		o.Estimate(why)
	}
	want := statusz.Newest{Proven: 2, Forwarded: 3, Estimated: 4, WouldAnswer: 2}
	lists := newStatusSource(o, metrics.Gatherer()).Read().Lists
	if got := lists.Newest; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if lists.Answered != 3 || lists.Forwarded != 4 {
		t.Errorf("%d lists answered, %d forwarded, want 3 and 4", lists.Answered, lists.Forwarded)
	}

	ctx, leave := context.WithCancel(t.Context())
	o.Proving(ctx)(reason.None)
	o.Proving(ctx)(reason.NotProven)
	leave()
	o.Proving(ctx)(reason.NotProven)
	series := proxytest.Series(proxytest.Gather(t, metrics)["listproxy_proof_duration_seconds"])
	if len(series) != 3 || series[0] != "result=gone 1" || series[1] != "result=not-proven 1" || series[2] != "result=proven 1" {
		t.Errorf("proofs are counted as %q", series)
	}
}
