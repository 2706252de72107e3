package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/auth"
	"github.com/listproxy/listproxy/proxy/forward"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/limits"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/observetest"
	"github.com/listproxy/listproxy/test/proxytest"
)

// cannedUpstream answers every request with the same answer.
type cannedUpstream struct {
	code    int
	body    string
	warning string        // a header, unless empty
	delay   time.Duration // before the answer
}

func (cannedUpstream) URL() *url.URL { return &url.URL{Scheme: "https", Host: "upstream.example"} }

func (s cannedUpstream) RoundTripper(auth.Identity, *kubehttp.Request) http.RoundTripper {
	return proxytest.Transport(func(r *http.Request) (*http.Response, error) {
		time.Sleep(s.delay)
		res := proxytest.JSONResponse(r, s.code, s.body)
		if s.warning != "" {
			res.Header.Set("Warning", s.warning)
		}
		return res, nil
	})
}

func (cannedUpstream) RecordAnswer(auth.Identity, bool, string, int) {}

// TestWhoAnswers: Cache-Status says who answered and why memory did not. Whatever memory may not or cannot answer is forwarded,
// never refused. A caller whom the upstream has refused, or who is anonymous, gets only "unknown-caller". A caller with an
// unknown token is reviewed, and then answered from memory.
func TestWhoAnswers(t *testing.T) {
	const upstreamBody = "of the upstream"
	exactly := "resourceVersion=%s&resourceVersionMatch=Exact"
	restAt999 := "limit=1&continue=" + policy.EncodeContinue(999, "n/w")
	for name, tt := range map[string]struct {
		query        string
		verdict      *auth.Verdict // nil: Accepted
		denied       bool          // the review says no
		unaudited    bool          // the audit log cannot be written
		draining     bool          // the process is about to end
		slow         bool          // the proof takes longer than a list waits for it
		reviewed     bool          // the right is remembered, so the answer must not wait
		upstreamCode int           // 0: the upstream is not asked
		want         string        // Cache-Status, after "listproxy; "
	}{
		"any version":             {query: "resourceVersion=0", want: "hit; detail=any"},
		"the newest version":      {query: fmt.Sprintf(exactly, newestRevision), want: "hit; detail=exact"},
		"a watch":                 {query: "watch=true&timeoutSeconds=1&resourceVersion=" + newestRevision, want: "hit; detail=after"},
		"an older version":        {query: fmt.Sprintf(exactly, "3"), upstreamCode: 200, want: "fwd=miss; detail=history"},
		"an expired version":      {query: fmt.Sprintf(exactly, "3"), upstreamCode: 410, want: "fwd=miss; detail=history"},
		"a version to come":       {query: fmt.Sprintf(exactly, "999"), upstreamCode: 200, want: "fwd=miss; detail=not-proven"},
		"a page of one to come":   {query: restAt999, reviewed: true, upstreamCode: 200, want: "fwd=miss; detail=not-proven"},
		"no right, by the review": {query: "resourceVersion=0", denied: true, upstreamCode: 200, want: "fwd=bypass; detail=not-allowed"},
		"no right, by both":       {query: "resourceVersion=0", denied: true, upstreamCode: 403, want: "fwd=bypass; detail=not-allowed"},
		"no audit log":            {query: "resourceVersion=0", unaudited: true, upstreamCode: 200, want: "fwd=bypass; detail=audit"},
		"a watch while the process ends": {
			query: "watch=true&resourceVersion=0", draining: true, upstreamCode: 200, want: "fwd=bypass; detail=watch",
		},
		"a list while the process ends": {query: "resourceVersion=0", draining: true, want: "hit; detail=any"},
		"the newest state, slowly":      {slow: true, upstreamCode: 200, want: "fwd=miss; detail=not-proven"},
		"a bad limit":                   {query: "limit=x", upstreamCode: 400, want: "fwd=bypass; detail=not-canonical"},
		"an unknown parameter":          {query: "nobody=knows", upstreamCode: 200, want: "fwd=bypass; detail=not-canonical"},
		"a token that the upstream has refused": {
			query: "resourceVersion=0", verdict: new(auth.Refused), upstreamCode: 401, want: "fwd=bypass; detail=unknown-caller",
		},
		"no credentials": {
			query: "resourceVersion=0", verdict: new(auth.NoToken), upstreamCode: 403, want: "fwd=bypass; detail=unknown-caller",
		},
		"an unknown token": {query: "resourceVersion=0", verdict: new(auth.Unjudged), want: "hit; detail=any"},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newModelWorld(t)
			w.load(t)
			h := w.handler
			h.Observer, _ = observetest.New(nil)
			upstream := cannedUpstream{code: cmp.Or(tt.upstreamCode, http.StatusOK), body: upstreamBody}
			h.Forward = forward.New(upstream, proxytest.DiscardLog())
			if tt.denied {
				w.setReviews(t, 0, func(r *http.Request) (*http.Response, error) {
					return proxytest.AnswerReview(r, authorizationv1.SubjectAccessReviewStatus{})
				})
			}
			h.Draining = func() bool { return tt.draining }
			if tt.slow {
				w.delayProbes(2 * h.ConsistentWait)
			}
			who := w.newCaller(t)
			if tt.verdict != nil {
				who.verdict = *tt.verdict
			}
			if tt.unaudited {
				h.AuditLog = observe.NewAuditLog(fullDisk{})
				who.Identity = auth.NewAuthenticator(nil).NewVerifiedIdentity(&user.DefaultInfo{Name: "jane"})
			}
			answer := func(query string) *httptest.ResponseRecorder {
				out := httptest.NewRecorder()
				r := withCaller(w.request(t.Context(), query), who)
				kubehttp.WithRequest(h.Observer.Observe(http.HandlerFunc(h.respond), h.Log)).ServeHTTP(out, r)
				return out
			}
			if tt.reviewed {
				answer("resourceVersion=0")
			}
			begun := time.Now()
			out := answer(tt.query)
			if waited := time.Since(begun); tt.reviewed && waited > 0 {
				t.Errorf("the answer waited for %v, want 0", waited)
			}
			expect.Same(t, []string{"listproxy; " + tt.want}, out.Header()[kubehttp.CacheStatusHeader])
			if tt.upstreamCode != 0 {
				expect.Same(t, tt.upstreamCode, out.Code)
				expect.Same(t, upstreamBody, out.Body.String())
			}
		})
	}
}

// TestForwardedInPlaceOfAReview: a list that is forwarded in any case is not reviewed. Its reason reveals nothing about memory
// unless the upstream's answer proves the right to list. A 200 counts as a yes to a review that was sent with the list, so
// the next list from memory needs no review.
func TestForwardedInPlaceOfAReview(t *testing.T) {
	const (
		consistent = "fwd=bypass; detail=consistent"
		history    = "fwd=miss; detail=history"
		notAllowed = "fwd=bypass; detail=not-allowed"
		unknown    = "fwd=bypass; detail=unknown-caller"
		tooOld     = "resourceVersionMatch=Exact&resourceVersion=3"
		rightTTL   = 10 * time.Second
	)
	for name, tt := range map[string]struct {
		query           string
		consistentLists policy.ConsistentLists // "": ConsistentLarge
		upstream        cannedUpstream
		unasked         bool           // the token is unknown
		denied          bool           // reviews say no
		change          func(*Handler) // between the two lists
		pause           time.Duration  // between the two lists

		wantFirst         string // Cache-Status of the first list, after "listproxy; "
		wantReviews       int    // for the first list
		wantSecondReviews int    // for the second list
	}{
		// A list of the newest state of a small collection is forwarded.
		"newest state": {wantFirst: consistent},
		"newest state, always proven": {
			consistentLists: policy.ConsistentAll, wantFirst: "hit; detail=consistent", wantReviews: 1,
		},
		"newest state, never from memory": {consistentLists: policy.ConsistentNone, wantFirst: consistent, wantSecondReviews: 1},
		"newest state, a new token":       {unasked: true, wantFirst: consistent, wantReviews: 1},
		"newest state, forbidden":         {upstream: cannedUpstream{code: 403}, wantFirst: notAllowed, wantSecondReviews: 1},
		"newest state, an invalid token":  {upstream: cannedUpstream{code: 401}, wantFirst: unknown, wantSecondReviews: 1},
		"newest state, overload":          {upstream: cannedUpstream{code: 429}, wantFirst: notAllowed, wantSecondReviews: 1},
		"newest state, with a warning": {
			upstream: cannedUpstream{warning: "299 - \"x\""}, wantFirst: consistent, wantSecondReviews: 1,
		},
		"newest state, the right expired": { // 11 s after it was asked
			upstream: cannedUpstream{delay: 6 * time.Second}, pause: 5 * time.Second, wantFirst: consistent, wantSecondReviews: 1,
		},
		"newest state, the right did not expire": { // 9 s after it was asked
			upstream: cannedUpstream{delay: 4 * time.Second}, pause: 5 * time.Second, wantFirst: consistent,
		},
		"newest state, rights are revoked": {
			change: func(h *Handler) { h.Authorizer.RecordRevocation("") }, pause: 2 * time.Second, wantFirst: consistent, wantSecondReviews: 1,
		},
		"not in memory": {query: tooOld, wantFirst: history},
		"not in memory, forbidden": {
			query: tooOld, upstream: cannedUpstream{code: 403}, wantFirst: notAllowed, wantSecondReviews: 1,
		},
		"a second page, not in memory yet": {
			query: "limit=1&continue=" + policy.EncodeContinue(999, "n/w"), wantFirst: "fwd=miss; detail=not-proven",
		},
		"too old for the upstream":              {query: tooOld, upstream: cannedUpstream{code: 410}, wantFirst: history, wantSecondReviews: 1},
		"a right of which memory does not know": {query: "resourceVersion=0", denied: true, wantFirst: notAllowed, wantReviews: 1},
		"a watch":                               {query: "watch=true&resourceVersion=5", wantFirst: history, wantReviews: 1, wantSecondReviews: 1},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newModelWorld(t)
			w.load(t)
			h, reviews, identity := w.handler, 0, proxytest.Identify(auth.NewAuthenticator(nil), "Bearer a")
			w.setReviews(t, rightTTL, func(r *http.Request) (*http.Response, error) {
				reviews++
				return proxytest.AnswerReview(r, authorizationv1.SubjectAccessReviewStatus{Allowed: !tt.denied})
			})
			h.Policy = policy.DefaultConfig().WithSwitches(policy.Switches{
				ConsistentLists: cmp.Or(tt.consistentLists, policy.ConsistentLarge), Watches: true,
			})
			tt.upstream.code = cmp.Or(tt.upstream.code, http.StatusOK)
			h.Forward = forward.New(tt.upstream, proxytest.DiscardLog())
			list := func(query string, verdict auth.Verdict) (cacheStatus string, newReviews int) {
				before := reviews
				out := httptest.NewRecorder()
				who := w.newCaller(t)
				who.verdict = verdict
				who.Identity = identity
				handler := kubehttp.WithRequest(h.Observer.Observe(http.HandlerFunc(h.respond), h.Log))
				handler.ServeHTTP(out, withCaller(w.request(t.Context(), query), who))
				return out.Header().Get(kubehttp.CacheStatusHeader), reviews - before
			}
			verdict := auth.Accepted
			if tt.unasked {
				verdict = auth.Unjudged
			}
			cacheStatus, newReviews := list(tt.query, verdict)
			expect.Same(t, "listproxy; "+tt.wantFirst, cacheStatus)
			expect.Same(t, tt.wantReviews, newReviews)
			if tt.change != nil {
				tt.change(h)
			}
			time.Sleep(tt.pause)
			cacheStatus, newReviews = list("resourceVersion=0", auth.Accepted)
			expect.Same(t, "listproxy; hit; detail=any", cacheStatus)
			expect.Same(t, tt.wantSecondReviews, newReviews)
		})
	}
}

// TestReviewsAskForTheRequest: the review has all attributes that the upstream would authorize, as the client wrote them.
func TestReviewsAskForTheRequest(t *testing.T) {
	const allNamespaces, oneNamespace = "/apis/example.com/v1/widgets", "/apis/example.com/v1/namespaces/n/widgets"
	for target, want := range map[string]authorizationv1.ResourceAttributes{
		allNamespaces + "?resourceVersion=0": {Verb: "list"},
		oneNamespace + "?resourceVersion=0":  {Verb: "list", Namespace: "n"},
		oneNamespace + "?resourceVersion=0&fieldSelector=metadata.name%3Dx": {
			Verb: "list", Namespace: "n", Name: "x",
			FieldSelector: &authorizationv1.FieldSelectorAttributes{RawSelector: "metadata.name=x"},
		},
		allNamespaces + "?watch=1&resourceVersion=7&labelSelector=a+in+(b)&fieldSelector=spec.nodeName%3Dy": {
			Verb:          "watch",
			LabelSelector: &authorizationv1.LabelSelectorAttributes{RawSelector: "a in (b)"},
			FieldSelector: &authorizationv1.FieldSelectorAttributes{RawSelector: "spec.nodeName=y"},
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newModelWorld(t)
			var asked authorizationv1.SelfSubjectAccessReviewSpec
			w.setReviews(t, 0, func(r *http.Request) (_ *http.Response, err error) {
				asked, err = proxytest.ReadReview(r)
				return proxytest.JSONResponse(r, http.StatusCreated, "{}"), err
			})
			r := w.request(t.Context(), "")
			r.URL, r.RequestURI = httptest.NewRequest(http.MethodGet, target, nil).URL, target
			w.handler.decide(withCaller(r, w.newCaller(t)))
			want.Group, want.Version, want.Resource = "example.com", "v1", "widgets"
			expect.Same(t, &want, asked.ResourceAttributes)
		})
	}
}

// TestNoRoom: an answer that gets no room for its bytes in time is refused with 429 and Retry-After. A watch that does not
// begin with the state needs no room.
func TestNoRoom(t *testing.T) {
	const room, wait = 10_000, 4800 * time.Millisecond
	for query, wantRefused := range map[string]bool{
		"resourceVersion=0":                                              true,
		newestStreamingList + "&resourceVersion=0":                       true,
		"watch=true&timeoutSeconds=60&resourceVersion=" + newestRevision: false,
	} {
		proxytest.Bubble(t, query, func(t *testing.T) {
			w := newModelWorld(t)
			w.setRoom(t, room, wait)
			w.load(t)
			defer w.takeRoom(t, room)()
			c := w.open(t, query)
			w.write()
			time.Sleep(wait + time.Second)
			synctest.Wait()
			expect.Same(t, reason.None, c.why)
			expect.Same(t, wantRefused, c.Code == http.StatusTooManyRequests)
			expect.Same(t, wantRefused, c.Header().Get("Retry-After") != "")
			if !wantRefused {
				expect.Same(t, 1, c.events(t))
			}
		})
	}
}

// seatRecorder records an answer, and the number of seats in use when it begins.
type seatRecorder struct {
	*httptest.ResponseRecorder
	seats *limits.Limiter
	inUse int64
}

// WriteHeader implements [http.ResponseWriter].
func (s *seatRecorder) WriteHeader(code int) {
	s.inUse = s.seats.Stats().InUse
	s.ResponseRecorder.WriteHeader(code)
}

// TestWaitingTakesNoSeat: a request holds no seat while it waits for memory or for the review of an unknown caller. It has a
// seat again while it is answered.
func TestWaitingTakesNoSeat(t *testing.T) {
	const delay = time.Second
	for name, tt := range map[string]struct {
		query   string
		verdict auth.Verdict
		begin   func(t *testing.T, w *modelWorld)
	}{
		"for a load": {query: "resourceVersion=0", verdict: auth.Accepted, begin: func(t *testing.T, w *modelWorld) {
			t.Helper()
			w.failing = true
			collection, _ := w.handler.Collections.Use(modelWidgets)
			const morePlaces = 100 // than there are for lists that are forwarded at once
			for range morePlaces {
				collection.TakeForwardSlot()
			}
			time.AfterFunc(delay, func() { w.changeAndCutFeeds(func() { w.failing = false }) })
		}},
		"for a proof": {query: "", verdict: auth.Accepted, begin: func(t *testing.T, w *modelWorld) {
			t.Helper()
			w.load(t)
			w.delayProbes(delay)
		}},
		"for a newcomer's review": {query: "resourceVersion=0", verdict: auth.Unjudged, begin: func(t *testing.T, w *modelWorld) {
			t.Helper()
			w.load(t)
			w.setReviews(t, time.Hour, func(r *http.Request) (*http.Response, error) {
				time.Sleep(delay)
				return proxytest.AnswerReview(r, authorizationv1.SubjectAccessReviewStatus{Allowed: true})
			})
		}},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newModelWorld(t)
			h := w.handler
			h.Observer, _ = observetest.New(nil)
			h.Forward = forward.New(cannedUpstream{code: http.StatusOK}, proxytest.DiscardLog())
			h.Limits = limits.New(limits.Config{Short: 1, Wait: 5 * time.Second})
			tt.begin(t, w)
			handler := kubehttp.WithRequest(h.Observer.Observe(h.withSeat(http.HandlerFunc(h.respond)), h.Log))
			var crowd sync.WaitGroup
			var answers [2]*seatRecorder
			for i := range answers {
				who := w.newCaller(t)
				who.verdict = tt.verdict
				answers[i] = &seatRecorder{ResponseRecorder: httptest.NewRecorder(), seats: h.Limits.Short}
				crowd.Go(func() { handler.ServeHTTP(answers[i], withCaller(w.request(t.Context(), tt.query), who)) })
			}
			synctest.Wait()
			waiting := limits.Stats{Waiting: 2, Refused: map[limits.Overload]uint64{}}
			expect.Same(t, waiting, h.Limits.Short.Stats())

			// Another caller is answered meanwhile.
			other := w.newCaller(t)
			other.Flow = limits.Flow{1} // of a caller who does not share their queue
			answer := httptest.NewRecorder()
			get := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/namespaces/a/pods/b", nil)
			handler.ServeHTTP(answer, withCaller(get, other))
			expect.Same(t, http.StatusOK, answer.Code)
			expect.Same(t, waiting, h.Limits.Short.Stats())

			// Then both are answered, one after the other.
			crowd.Wait()
			for _, a := range answers {
				expect.Says(t, a.Header().Get("Cache-Status"), "; hit")
				expect.Same(t, http.StatusOK, a.Code)
				expect.Same(t, int64(1), a.inUse)
			}
			expect.Same(t, limits.Stats{Refused: map[limits.Overload]uint64{}}, h.Limits.Short.Stats())
		})
	}
}

// TestProofOfWhoCameBefore: a probe proves the newest state for every request that came before it was sent, even if the request
// had no seat yet. A request that came later waits for another probe.
func TestProofOfWhoCameBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newModelWorld(t)
		w.load(t)
		before := w.newCaller(t)
		another := w.open(t, "")
		if <-another.done; another.why != "" {
			t.Fatalf("a list of the newest state is forwarded: %s", another.why)
		}
		w.delayProbes(time.Second)
		for name, tt := range map[string]struct {
			caller   *caller
			wantWait bool
		}{
			"came before": {caller: before, wantWait: false},
			"came later":  {caller: w.newCaller(t), wantWait: true},
		} {
			begun := time.Now()
			_, why := w.handler.decide(withCaller(w.request(t.Context(), ""), tt.caller))
			if took := time.Since(begun); why != reason.None || (took > 0) != tt.wantWait {
				t.Errorf("%s: got reason %q after %v, want an answer after a wait: %t", name, why, took, tt.wantWait)
			}
		}
	})
}

// TestNoAnswerToWhoLeft: refuse panics with ErrAbortHandler if the caller has closed its half of the connection. Otherwise
// net/http would send it an empty 200.
func TestNoAnswerToWhoLeft(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	leave()
	handler := &Handler{Collections: &snapshot.Collections{}, Log: slog.New(slog.DiscardHandler)}
	defer func() {
		if err, ok := recover().(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
			t.Errorf("got a panic with %v, want %v", err, http.ErrAbortHandler)
		}
	}()
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api", nil)
	handler.refuse(httptest.NewRecorder(), r, ctx.Err())
}

// TestBodyRoom: bodies are kept only for accepted callers, and never those of long-running requests, which may not end.
func TestBodyRoom(t *testing.T) {
	h := &Handler{Limits: limits.New(limits.Config{Bytes: 1 << 30})}
	for target, want := range map[string]bool{
		"/api/v1/namespaces/a/pods":                            true,
		"/api/v1/namespaces/a/pods/b/exec":                     false,
		"/api/v1/namespaces/a/services/grafana:80/proxy/login": false,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, target, nil)
		if got := h.bodyRoom(r, &caller{Caller: auth.Caller{Accepted: true}}) != nil; got != want {
			t.Errorf("the body to %s is kept: %t, want %t", target, got, want)
		}
		if h.bodyRoom(r, &caller{}) != nil {
			t.Errorf("the body to %s of an unknown caller is kept", target)
		}
	}
}
