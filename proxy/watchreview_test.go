package proxy

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/authz"
	"github.com/listproxy/listproxy/proxy/inflight"
	"github.com/listproxy/listproxy/proxy/internal/authntest"
	"github.com/listproxy/listproxy/proxy/internal/proxytest"
)

// TestManyWatchesAreReviewed: where thousands of watches of one caller begin at once, each with a
// selector of its own, all are reviewed. Another caller's does not wait behind them, and who has
// gone is not reviewed at all.
func TestManyWatchesAreReviewed(t *testing.T) { synctest.Test(t, testManyWatchesAreReviewed) }

func testManyWatchesAreReviewed(t *testing.T) {
	const (
		stay, leave = 3000, 1000
		takes       = 50 * time.Millisecond
	)
	h := decider(t, 0)
	h.Policy = policy.DefaultConfig().With(policy.Switches{Watches: true})
	var mu sync.Mutex
	reviews, underWay, most := 0, 0, 0
	h.Authorizer = authorizerOf(t, func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		reviews++
		underWay++
		most = max(most, underWay)
		mu.Unlock()
		time.Sleep(takes)
		mu.Lock()
		underWay--
		mu.Unlock()
		return proxytest.AnswerReview(r, authorizationv1.SubjectAccessReviewStatus{})
	})
	identity := authntest.Identify(authntest.New(t), "Bearer a")
	said := map[reason.Reason]int{}
	watch := func(ctx context.Context, share byte, node int) {
		target := fmt.Sprintf("/api/v1/pods?watch=true&resourceVersion=1&fieldSelector=spec.nodeName%%3Dnode-%d", node)
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, target, nil)
		r.Header.Set("Authorization", "Bearer a")
		r.Header.Set("Accept", "application/json")
		_, _, why := h.decide(r, caller{identity: identity, accepted: true, share: inflight.ShareKey{share}})
		mu.Lock()
		said[why]++
		mu.Unlock()
	}
	var all sync.WaitGroup
	for node := range stay {
		all.Go(func() { watch(t.Context(), 1, node) })
	}
	synctest.Wait()
	gone, goes := context.WithCancel(t.Context())
	for node := range leave {
		all.Go(func() { watch(gone, 1, stay+node) })
	}
	synctest.Wait()
	goes()
	begun := time.Now()
	watch(t.Context(), 2, stay+leave)
	if waited := time.Since(begun); waited != takes {
		t.Errorf("another caller's watch was reviewed after %v, alone it is after %v", waited, takes)
	}
	all.Wait()
	if diff := cmp.Diff(map[reason.Reason]int{reason.NotAllowed: stay + 1, reason.ReviewFailed: leave}, said); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if reviews != stay+1 || most > 128 {
		t.Errorf("%d reviews, %d at once", reviews, most)
	}
}

// TestReviewedAgain: a yes that has expired while the answer waited for its proof is asked for once
// more. If it is a no by then, nothing is answered.
func TestReviewedAgain(t *testing.T) {
	streaming := "watch=true&timeoutSeconds=20&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
	for request, query := range map[string]string{"a list": "", "a streaming list": streaming} {
		for name, tt := range map[string]struct {
			ttl, takes time.Duration // of a yes, and of the proof
			yes        int           // that many reviews are answered with, before a no
			asked      int
			want       reason.Reason
		}{
			"in time":        {10 * time.Second, 6 * time.Second, 1, 1, ""},
			"late":           {5 * time.Second, 6 * time.Second, 2, 2, ""},
			"nothing kept":   {0, 6 * time.Second, 2, 2, ""},
			"late, then not": {5 * time.Second, 6 * time.Second, 1, 2, reason.NotAllowed},
		} {
			t.Run(request+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newModelWorld(t)
					w.handler.ConsistentWait = time.Minute
					w.probeTakes = tt.takes
					w.load(t)
					asked := 0
					w.handler.Authorizer = authorizerWith(t, func(r *http.Request) (*http.Response, error) {
						asked++
						return proxytest.AnswerReview(r, authorizationv1.SubjectAccessReviewStatus{Allowed: asked <= tt.yes})
					}, authz.Config{TTL: tt.ttl})
					out := httptest.NewRecorder()
					o := w.open(t, out, query, "")
					defer o.leave()
					<-o.done
					if diff := cmp.Diff(tt.want, o.why); diff != "" || asked != tt.asked || (out.Body.Len() > 0) != (tt.want == "") {
						t.Errorf("%d reviews, %d bytes (-want +got):\n%s", asked, out.Body.Len(), diff)
					}
				})
			})
		}
	}
}
