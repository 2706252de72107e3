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
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/policy"
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

// saying is an upstream that gives everybody the same answer, with a warning unless that is empty, after so long.
type saying struct {
	code    int
	body    string
	warning string
	takes   time.Duration
}

func (saying) URL() *url.URL { return &url.URL{Scheme: "https", Host: "upstream.example"} }

func (s saying) RoundTripper(auth.Identity, *kubehttp.Request) http.RoundTripper {
	return proxytest.Transport(func(r *http.Request) (*http.Response, error) {
		time.Sleep(s.takes)
		res := proxytest.JSONResponse(r, s.code, s.body)
		if s.warning != "" {
			res.Header.Set("Warning", s.warning)
		}
		return res, nil
	})
}

func (saying) Answered(auth.Identity, bool, string, int) {}

// TestWhoAnswers: each answer says where it came from, and whatever memory or a review lacks, it is the
// upstream that says no. Whom it refuses, or does not know, learns nothing of memory; who has not been asked about
// yet is, and has a list from memory.
func TestWhoAnswers(t *testing.T) {
	const fromUpstream = "of the upstream"
	exactly := "resourceVersion=%s&resourceVersionMatch=Exact"
	restAt999 := "limit=1&continue=" + policy.EncodeContinue(999, "n/w")
	for _, tt := range []struct {
		query     string
		verdict   *auth.Verdict // nil: Accepted
		refused   bool          // by the review
		unaudited bool          // the audit log cannot be written
		draining  bool          // the process ends: watches are forwarded, and lists are not
		slow      bool          // the proof takes longer than a list waits for it
		atOnce    bool          // it does not wait, though its caller is known to have the right
		code      int           // the upstream's; 0: it is not asked
		want      string
	}{
		{query: "resourceVersion=0", want: "listproxy; hit; detail=any"},
		{query: fmt.Sprintf(exactly, now), want: "listproxy; hit; detail=exact"},
		{query: "watch=true&timeoutSeconds=1&resourceVersion=" + now, want: "listproxy; hit; detail=after"},
		{query: fmt.Sprintf(exactly, "3"), code: http.StatusOK, want: "listproxy; fwd=miss; detail=history"},
		{query: fmt.Sprintf(exactly, "3"), code: http.StatusGone, want: "listproxy; fwd=miss; detail=history"},
		{query: fmt.Sprintf(exactly, "999"), code: http.StatusOK, want: "listproxy; fwd=miss; detail=not-proven"},
		{query: restAt999, atOnce: true, code: http.StatusOK, want: "listproxy; fwd=miss; detail=not-proven"},
		{query: "resourceVersion=0", refused: true, code: http.StatusOK, want: "listproxy; fwd=bypass; detail=not-allowed"},
		{query: "resourceVersion=0", refused: true, code: http.StatusForbidden, want: "listproxy; fwd=bypass; detail=not-allowed"},
		{query: "resourceVersion=0", unaudited: true, code: http.StatusOK, want: "listproxy; fwd=bypass; detail=audit"},
		{query: "watch=true&resourceVersion=" + now, draining: true, code: http.StatusOK, want: "listproxy; fwd=bypass; detail=watch"},
		{query: "watch=true&resourceVersion=0", draining: true, code: http.StatusOK, want: "listproxy; fwd=bypass; detail=watch"},
		{query: "resourceVersion=0", draining: true, want: "listproxy; hit; detail=any"},
		{slow: true, code: http.StatusOK, want: "listproxy; fwd=miss; detail=not-proven"},
		{query: "limit=x", code: http.StatusBadRequest, want: "listproxy; fwd=bypass; detail=not-canonical"},
		{query: "nobody=knows", code: http.StatusOK, want: "listproxy; fwd=bypass; detail=not-canonical"},
		{query: "resourceVersion=0", verdict: new(auth.Refused), code: http.StatusUnauthorized, want: "listproxy; fwd=bypass; detail=unknown-caller"},
		{query: "resourceVersion=0", verdict: new(auth.Anonymous), code: http.StatusForbidden, want: "listproxy; fwd=bypass; detail=unknown-caller"},
		{query: "resourceVersion=0", verdict: new(auth.Unasked), want: "listproxy; hit; detail=any"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newModelWorld(t)
			w.load(t)
			h := w.handler
			h.Observer, _ = observetest.New(nil)
			h.Forward = forward.New(saying{code: cmp.Or(tt.code, http.StatusOK), body: fromUpstream}, proxytest.DiscardLog())
			if tt.refused {
				w.review(t, 0, func(r *http.Request) (*http.Response, error) {
					return proxytest.AnswerReview(r, authorizationv1.SubjectAccessReviewStatus{})
				})
			}
			h.Draining = func() bool { return tt.draining }
			if tt.slow {
				w.mu.Lock() // its feed is running
				w.probeTakes = 2 * h.ConsistentWait
				w.mu.Unlock()
			}
			who := w.caller(t)
			if tt.verdict != nil {
				who.verdict = *tt.verdict
			}
			if tt.unaudited {
				h.AuditLog = observe.NewAuditLog(fullDisk{}, proxytest.DiscardLog())
				who.Identity = auth.NewAuthenticator(nil).OfUser(&user.DefaultInfo{Name: "jane"})
			}
			answer := func(query string) *httptest.ResponseRecorder {
				out := httptest.NewRecorder()
				r := withCaller(w.request(t.Context(), query), who)
				through(http.HandlerFunc(h.respond), kubehttp.WithRequestInfo, h.withRecord).ServeHTTP(out, r)
				return out
			}
			if tt.atOnce {
				answer("resourceVersion=0")
			}
			begun := time.Now()
			out := answer(tt.query)
			if waited := time.Since(begun); tt.atOnce && waited > 0 {
				t.Errorf("%s: it waited for %v", tt.query, waited)
			}
			expect.Same(t, []string{tt.want}, out.Header()[kubehttp.CacheStatusHeader])
			if tt.code != 0 && (out.Code != tt.code || out.Body.String() != fromUpstream) {
				t.Errorf("%s: %d %s, the upstream says %d", tt.query, out.Code, out.Body, tt.code)
			}
		})
	}
}

// TestForwardedInPlaceOfAReview: what is forwarded in any case is not reviewed, and its reason tells nothing of memory
// unless the answer shows that the caller may list. A 200 is then a yes, as if it were of a review that was sent
// at the same time: the next list from memory needs none.
func TestForwardedInPlaceOfAReview(t *testing.T) {
	const mostRecent, history, notAllowed = "fwd=bypass; detail=consistent", "fwd=miss; detail=history", "fwd=bypass; detail=not-allowed"
	tooOld := "resourceVersionMatch=Exact&resourceVersion=3"
	for name, tt := range map[string]struct {
		query        string
		switches     policy.ConsistentLists // "": true
		upstream     saying
		unasked      bool           // kube-apiserver has not been asked about the caller yet
		refuses      bool           // reviews say no
		happens      func(*Handler) // between the two lists
		later        time.Duration  // the second list
		told         string         // of the first list
		reviews      int            // before the first list is answered
		reviewsAfter int            // that the second list needs
	}{
		"small":                          {told: mostRecent},
		"small, always proven":           {switches: policy.ConsistentAlways, told: "hit; detail=consistent", reviews: 1},
		"small, never from memory":       {switches: policy.ConsistentNever, told: mostRecent, reviewsAfter: 1},
		"small, a new token":             {unasked: true, told: mostRecent, reviews: 1},
		"small, forbidden":               {upstream: saying{code: 403}, told: notAllowed, reviewsAfter: 1},
		"small, a token that is none":    {upstream: saying{code: 401}, told: "fwd=bypass; detail=unknown-caller", reviewsAfter: 1},
		"small, before it is authorized": {upstream: saying{code: 429}, told: notAllowed, reviewsAfter: 1},
		"small, with a warning":          {upstream: saying{warning: "299 - \"x\""}, told: mostRecent, reviewsAfter: 1},
		"small, the yes is too old":      {upstream: saying{takes: 6 * time.Second}, later: 5 * time.Second, told: mostRecent, reviewsAfter: 1},
		"small, the yes is not too old":  {upstream: saying{takes: 4 * time.Second}, later: 5 * time.Second, told: mostRecent},
		"small, and rights are taken away": {
			happens: func(h *Handler) { h.Authorizer.Revoked("") }, later: 2 * time.Second, told: mostRecent, reviewsAfter: 1,
		},
		"not in memory":             {query: tooOld, told: history},
		"not in memory, forbidden":  {query: tooOld, upstream: saying{code: 403}, told: notAllowed, reviewsAfter: 1},
		"a rest, not in memory yet": {query: "limit=1&continue=" + policy.EncodeContinue(999, "n/w"), told: "fwd=miss; detail=not-proven"},
		"nowhere":                   {query: tooOld, upstream: saying{code: 410}, told: history, reviewsAfter: 1},
		"a new right":               {query: "resourceVersion=0", refuses: true, told: notAllowed, reviews: 1},
		"a watch":                   {query: "watch=true&resourceVersion=5", told: history, reviews: 1, reviewsAfter: 1},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newModelWorld(t)
			w.load(t)
			h, reviews, identity := w.handler, 0, proxytest.Identify(auth.NewAuthenticator(nil), "Bearer a")
			w.review(t, 10*time.Second, func(r *http.Request) (*http.Response, error) {
				reviews++
				return proxytest.AnswerReview(r, authorizationv1.SubjectAccessReviewStatus{Allowed: !tt.refuses})
			})
			h.Policy = policy.DefaultConfig().With(policy.Switches{Consistent: cmp.Or(tt.switches, policy.ConsistentOn), Watches: true})
			tt.upstream.code = cmp.Or(tt.upstream.code, http.StatusOK)
			h.Forward = forward.New(tt.upstream, proxytest.DiscardLog())
			list := func(query string, verdict auth.Verdict) (told string, reviewed int) {
				who, before, out := w.caller(t), reviews, httptest.NewRecorder()
				who.verdict, who.Identity = verdict, identity
				through(http.HandlerFunc(h.respond), kubehttp.WithRequestInfo, h.withRecord).ServeHTTP(out, withCaller(w.request(t.Context(), query), who))
				return out.Header().Get(kubehttp.CacheStatusHeader), reviews - before
			}
			verdict := auth.Accepted
			if tt.unasked {
				verdict = auth.Unasked
			}
			told, reviewed := list(tt.query, verdict)
			expect.Same(t, []any{"listproxy; " + tt.told, tt.reviews}, []any{told, reviewed})
			if tt.happens != nil {
				tt.happens(h)
			}
			time.Sleep(tt.later)
			told, reviewed = list("resourceVersion=0", auth.Accepted)
			expect.Same(t, []any{"listproxy; hit; detail=any", tt.reviewsAfter}, []any{told, reviewed})
		})
	}
}

// TestReviewsAskForTheRequest: all that the upstream would authorize is in the review, as the client
// wrote it.
func TestReviewsAskForTheRequest(t *testing.T) {
	const all, one = "/apis/example.com/v1/widgets", "/apis/example.com/v1/namespaces/n/widgets"
	for target, want := range map[string]authorizationv1.ResourceAttributes{
		all + "?resourceVersion=0": {Verb: "list"},
		one + "?resourceVersion=0": {Verb: "list", Namespace: "n"},
		one + "?resourceVersion=0&fieldSelector=metadata.name%3Dx": {
			Verb: "list", Namespace: "n", Name: "x", FieldSelector: &authorizationv1.FieldSelectorAttributes{RawSelector: "metadata.name=x"},
		},
		all + "?watch=1&resourceVersion=7&labelSelector=a+in+(b)&fieldSelector=spec.nodeName%3Dy": {
			Verb:          "watch",
			LabelSelector: &authorizationv1.LabelSelectorAttributes{RawSelector: "a in (b)"},
			FieldSelector: &authorizationv1.FieldSelectorAttributes{RawSelector: "spec.nodeName=y"},
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newModelWorld(t)
			var asked authorizationv1.SelfSubjectAccessReviewSpec
			w.review(t, 0, func(r *http.Request) (_ *http.Response, err error) {
				asked, err = proxytest.ReviewAsked(r)
				return proxytest.JSONResponse(r, http.StatusCreated, "{}"), err
			})
			r := w.request(t.Context(), "")
			r.URL, r.RequestURI = httptest.NewRequest(http.MethodGet, target, nil).URL, target
			w.handler.decide(r, w.caller(t))
			want.Group, want.Version, want.Resource = "example.com", "v1", "widgets"
			expect.Same(t, &want, asked.ResourceAttributes)
		})
	}
}

// TestNoRoom: what could be answered from memory, but for the bytes of other answers, is refused when
// it has waited in vain, so that its client comes again. A watch that does not begin with the state
// needs no room.
func TestNoRoom(t *testing.T) {
	for query, refused := range map[string]bool{
		"resourceVersion=0":                                   true,
		streaming + "&resourceVersion=0":                      true,
		"watch=true&timeoutSeconds=60&resourceVersion=" + now: false,
	} {
		proxytest.Bubble(t, query, func(t *testing.T) {
			w := newModelWorld(t)
			w.bound(t, 10_000, 4800*time.Millisecond)
			w.load(t)
			defer w.takeRoom(t, 10_000)()
			c := w.open(t, query)
			w.write()
			time.Sleep(5 * time.Second)
			synctest.Wait()
			if again := c.Header().Get("Retry-After") != ""; c.why != "" || again != refused || (c.Code == http.StatusTooManyRequests) != refused {
				t.Errorf("%q, %d, %v: %s", c.why, c.Code, c.Header(), c.told(t))
			}
			if !refused {
				expect.Same(t, 1, c.events(t))
			}
		})
	}
}

// seated is the answer to a request. It notes how many seats are held when it begins.
type seated struct {
	*httptest.ResponseRecorder
	seats *limits.Limiter
	held  int64
}

// WriteHeader implements [http.ResponseWriter].
func (s *seated) WriteHeader(code int) {
	s.held = s.seats.Stats().InUse
	s.ResponseRecorder.WriteHeader(code)
}

// TestWaitingTakesNoSeat: who waits for memory, or for a newcomer's review, holds up nobody, and has a seat again to be
// answered.
func TestWaitingTakesNoSeat(t *testing.T) {
	const takes = time.Second
	for name, tt := range map[string]struct {
		query   string
		verdict auth.Verdict
		begin   func(t *testing.T, w *modelWorld)
	}{
		"for a load": {"resourceVersion=0", auth.Accepted, func(t *testing.T, w *modelWorld) {
			t.Helper()
			w.failing = true
			collection, _ := w.handler.Collections.Use(modelWidgets)
			for range 100 { // a few lists are forwarded
				collection.TakeForwardSlot()
			}
			time.AfterFunc(takes, func() { w.cut(func() { w.failing = false }) })
		}},
		"for a proof": {"", auth.Accepted, func(t *testing.T, w *modelWorld) {
			t.Helper()
			w.load(t)
			w.mu.Lock() // its feed is running
			w.probeTakes = takes
			w.mu.Unlock()
		}},
		"for the review of a newcomer": {"resourceVersion=0", auth.Unasked, func(t *testing.T, w *modelWorld) {
			t.Helper()
			w.load(t)
			w.review(t, time.Hour, func(r *http.Request) (*http.Response, error) {
				time.Sleep(takes)
				return proxytest.AnswerReview(r, authorizationv1.SubjectAccessReviewStatus{Allowed: true})
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newModelWorld(t)
				h := w.handler
				h.Observer, _ = observetest.New(nil)
				h.Forward = forward.New(saying{code: http.StatusOK}, proxytest.DiscardLog())
				h.Limits = limits.New(limits.Config{Requests: 1, Wait: 5 * time.Second})
				tt.begin(t, w)
				handler := through(http.HandlerFunc(h.respond), kubehttp.WithRequestInfo, h.withRecord, h.withSeat)
				var crowd sync.WaitGroup
				var answers [2]*seated
				for i := range answers {
					who := w.caller(t)
					who.verdict, answers[i] = tt.verdict, &seated{ResponseRecorder: httptest.NewRecorder(), seats: h.Limits.Requests}
					crowd.Go(func() { handler.ServeHTTP(answers[i], withCaller(w.request(t.Context(), tt.query), who)) })
				}
				synctest.Wait()
				waiting := limits.Stats{Waiting: 2, Refused: map[limits.Overload]uint64{}}
				expect.Same(t, waiting, h.Limits.Requests.Stats())
				beside, other := httptest.NewRecorder(), w.caller(t)
				other.Flow = limits.Flow{1}
				handler.ServeHTTP(beside, withCaller(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/namespaces/a/pods/b", nil), other))
				expect.Same(t, http.StatusOK, beside.Code)
				expect.Same(t, waiting, h.Limits.Requests.Stats())
				crowd.Wait()
				for _, a := range answers {
					if a.Code != http.StatusOK || !strings.Contains(a.Header().Get("Cache-Status"), "; hit") || a.held != 1 {
						t.Errorf("one of the crowd gets %d, %v, with %d seats", a.Code, a.Header(), a.held)
					}
				}
				expect.Same(t, limits.Stats{Refused: map[limits.Overload]uint64{}}, h.Limits.Requests.Stats())
			})
		})
	}
}

// TestProofOfWhoCameBefore: a proof counts for a request that came before the proof's probe was
// sent, even if the request had no turn yet. One that came later waits for a proof of its own.
func TestProofOfWhoCameBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newModelWorld(t)
		w.load(t)
		before := w.caller(t)
		another := w.open(t, "")
		if <-another.done; another.why != "" {
			t.Fatalf("another is not proven: %s", another.why)
		}
		w.mu.Lock() // its feed is running
		w.probeTakes = time.Second
		w.mu.Unlock()
		for name, tt := range map[string]struct {
			who   *caller
			waits bool
		}{"came before": {before, false}, "came later": {w.caller(t), true}} {
			begun := time.Now()
			_, why := w.handler.decide(w.request(t.Context(), ""), tt.who)
			if took := time.Since(begun); why != "" || (took > 0) != tt.waits {
				t.Errorf("%s: %q after %v", name, why, took)
			}
		}
	})
}

// TestNoAnswerToWhoLeft: a caller who has shut down its half of the connection, and reads on, must
// not get the empty 200 that net/http makes of a handler that writes nothing.
func TestNoAnswerToWhoLeft(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	leave()
	handler := &Handler{Collections: &snapshot.Collections{}, Log: slog.New(slog.DiscardHandler)}
	defer func() {
		if err, ok := recover().(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
			t.Errorf("ended with %v", err)
		}
	}()
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api", nil)
	handler.refuse(httptest.NewRecorder(), r, ctx.Err())
}

// TestKeep: a body is kept whole only of who is known, and never that of a stream, which may not end.
func TestKeep(t *testing.T) {
	h := &Handler{Limits: limits.New(limits.Config{Bytes: 1 << 30})}
	for target, want := range map[string]bool{
		"/api/v1/namespaces/a/pods":                            true,
		"/api/v1/namespaces/a/pods/b/exec":                     false,
		"/api/v1/namespaces/a/services/grafana:80/proxy/login": false,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, target, nil)
		if got := h.keep(r, &caller{Caller: auth.Caller{Accepted: true}}) != nil; got != want {
			t.Errorf("%s: %t", target, got)
		}
		if h.keep(r, &caller{}) != nil {
			t.Errorf("%s of who is not known is kept", target)
		}
	}
}
