package proxy

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"syscall"
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
	"github.com/listproxy/listproxy/test/inmemory"
	"github.com/listproxy/listproxy/test/observetest"
	"github.com/listproxy/listproxy/test/proxytest"
)

// cannedUpstream answers every request with the same answer. The zero value answers 200 without a body.
type cannedUpstream struct {
	code    int // 0 stands for 200
	body    string
	warning string        // a header, unless empty
	delay   time.Duration // before the answer
}

func (cannedUpstream) URL() *url.URL { return &url.URL{Scheme: "https", Host: "upstream.example"} }

func (u cannedUpstream) RoundTripper(auth.Identity, *kubehttp.Request) http.RoundTripper {
	return proxytest.Transport(func(r *http.Request) (*http.Response, error) {
		time.Sleep(u.delay)
		res := inmemory.Answer(r, cmp.Or(u.code, http.StatusOK), u.body)
		if u.warning != "" {
			res.Header.Set("Warning", u.warning)
		}
		return res, nil
	})
}

func (cannedUpstream) RecordAnswer(auth.Identity, bool, string, int) {}

// fullDisk is a disk without room for the audit log.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }
func (fullDisk) Close() error              { return nil }

// anyState is the query of a list of any state. Memory answers it without a proof that its state is the newest.
const anyState = "resourceVersion=0"

// notRemembered is the TTL of reviews whose answers are used for one request only.
const notRemembered = 0

// TestWhoAnswers: a request that memory may not or cannot answer is forwarded, never refused. Cache-Status says who has
// answered, and why memory has not. A caller whom the upstream has refused, or who is anonymous, learns only "unknown-caller".
func TestWhoAnswers(t *testing.T) {
	const upstreamBody = "of the upstream"
	const exactly, anyWatch = "resourceVersionMatch=Exact&resourceVersion=", "watch=true&resourceVersion=0"
	// The next functions change the world or the caller. Each case calls one of them before its request, or none.
	deny := func(w *modelWorld, _ *caller) { w.setReviews(notRemembered, func() bool { return false }) }
	drain := func(w *modelWorld, _ *caller) { w.handler.Draining = func() bool { return true } }
	delayProof := func(w *modelWorld, _ *caller) { w.delayProbes(2 * w.handler.ConsistentWait) }
	failAuditing := func(w *modelWorld, who *caller) {
		w.handler.AuditLog = observe.NewAuditLog(fullDisk{})
		who.Identity = auth.NewAuthenticator(nil).NewVerifiedIdentity(&user.DefaultInfo{Name: "jane"})
	}
	setVerdict := func(verdict auth.Verdict) func(*modelWorld, *caller) {
		return func(_ *modelWorld, who *caller) { who.verdict = verdict }
	}
	const memoryAnswers = 0 // in place of the upstream's code
	for name, tt := range map[string]struct {
		query        string
		change       func(*modelWorld, *caller) // before the request; may be nil
		upstreamCode int                        // of the upstream's answer, or memoryAnswers
		want         string                     // Cache-Status, after "listproxy; "
	}{
		// By the state that is asked for. The revisions in memory are above 3 and below 999.
		"any revision":        {query: anyState, upstreamCode: memoryAnswers, want: "hit; detail=any"},
		"the newest revision": {query: exactly + newestRevision, upstreamCode: memoryAnswers, want: "hit; detail=exact"},
		"a watch": {
			query: "watch=true&timeoutSeconds=1&resourceVersion=" + newestRevision, upstreamCode: memoryAnswers, want: "hit; detail=after",
		},
		"a revision before memory's":          {query: exactly + "3", upstreamCode: 200, want: "fwd=miss; detail=history"},
		"a revision that nobody has any more": {query: exactly + "3", upstreamCode: 410, want: "fwd=miss; detail=history"},
		"a revision after memory's":           {query: exactly + "999", upstreamCode: 200, want: "fwd=miss; detail=not-proven"},
		"the newest state, and a slow proof":  {query: "", change: delayProof, upstreamCode: 200, want: "fwd=miss; detail=not-proven"},

		// By the parameters.
		"a bad limit":          {query: "limit=x", upstreamCode: 400, want: "fwd=bypass; detail=not-canonical"},
		"an unknown parameter": {query: "nobody=knows", upstreamCode: 200, want: "fwd=bypass; detail=not-canonical"},

		// By what listproxy can do now.
		"a list while the process ends":  {query: anyState, change: drain, upstreamCode: memoryAnswers, want: "hit; detail=any"},
		"a watch while the process ends": {query: anyWatch, change: drain, upstreamCode: 200, want: "fwd=bypass; detail=watch"},
		"no room for the audit log":      {query: anyState, change: failAuditing, upstreamCode: 200, want: "fwd=bypass; detail=audit"},

		// By the caller.
		"the review says no, the upstream answers": {query: anyState, change: deny, upstreamCode: 200, want: "fwd=bypass; detail=not-allowed"},
		"the review says no, the upstream refuses": {query: anyState, change: deny, upstreamCode: 403, want: "fwd=bypass; detail=not-allowed"},
		"a token that the upstream has refused": {
			query: anyState, change: setVerdict(auth.Refused), upstreamCode: 401, want: "fwd=bypass; detail=unknown-caller",
		},
		"no credentials": {
			query: anyState, change: setVerdict(auth.NoToken), upstreamCode: 403, want: "fwd=bypass; detail=unknown-caller",
		},
		"an unknown token, whose review says yes": {
			query: anyState, change: setVerdict(auth.Unjudged), upstreamCode: memoryAnswers, want: "hit; detail=any",
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newModelWorld(t)
			w.load(t)
			w.handler.Forward = forward.New(cannedUpstream{code: tt.upstreamCode, body: upstreamBody}, proxytest.DiscardLog())
			who := w.newCaller(t)
			if tt.change != nil {
				tt.change(w, who)
			}
			out := w.respond(t, tt.query, who)
			expect.Same(t, []string{"listproxy; " + tt.want}, out.Header()[kubehttp.CacheStatusHeader])
			if tt.upstreamCode != memoryAnswers {
				expect.Same(t, tt.upstreamCode, out.Code)
				expect.Same(t, upstreamBody, out.Body.String())
			}
		})
	}
}

// pageToCome is the query of a page at revision 999, which memory has not reached.
var pageToCome = "limit=1&continue=" + policy.EncodeContinue(999, "n/w")

// TestPageToComeIsForwardedAtOnce: a page of a revision that memory has not reached is forwarded without a wait, even if the
// right to list is remembered.
func TestPageToComeIsForwardedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newModelWorld(t)
		w.load(t)
		w.handler.Forward = forward.New(cannedUpstream{}, proxytest.DiscardLog())
		who := w.newCaller(t)
		w.respond(t, anyState, who) // remembers the right
		begun := time.Now()
		out := w.respond(t, pageToCome, who)
		expect.Same(t, time.Duration(0), time.Since(begun))
		expect.Same(t, "listproxy; fwd=miss; detail=not-proven", out.Header().Get(kubehttp.CacheStatusHeader))
	})
}

// TestForwardedInPlaceOfAReview: a list that memory cannot answer is forwarded without a review. If the upstream answers 200,
// the caller has the right to list. So Cache-Status may tell what memory has, and a second list is answered from memory without
// a review, unless the answer had a Warning, or the right has expired or was revoked since. If the upstream refuses the first
// list, Cache-Status says only "not-allowed" or "unknown-caller", and the second list is reviewed.
func TestForwardedInPlaceOfAReview(t *testing.T) {
	const (
		consistent = "fwd=bypass; detail=consistent"
		history    = "fwd=miss; detail=history"
		notAllowed = "fwd=bypass; detail=not-allowed"
		unknown    = "fwd=bypass; detail=unknown-caller"
		newest     = "" // the query of a list of the newest state, which is forwarded since the collection is small
		tooOld     = "resourceVersionMatch=Exact&resourceVersion=3"
		rightTTL   = 10 * time.Second // the time for which a right is remembered
	)
	for name, tt := range map[string]struct {
		query           string                 // of the first list
		consistentLists policy.ConsistentLists // "": ConsistentLarge
		upstream        cannedUpstream         // answers the first list if it is forwarded
		newToken        bool                   // the upstream has not judged the token before the first list
		denied          bool                   // reviews say no
		change          func(*Handler)         // between the two lists
		pause           time.Duration          // between the two lists

		wantFirst         string // Cache-Status of the first list, after "listproxy; "
		wantFirstReviews  int    // the number of reviews for the first list
		wantSecondReviews int    // the number of reviews for the second list, which memory answers
	}{
		"newest state": {query: newest, wantFirst: consistent},
		"newest state, always proven": {
			query: newest, consistentLists: policy.ConsistentAll, wantFirst: "hit; detail=consistent", wantFirstReviews: 1,
		},
		"newest state, never from memory": {
			query: newest, consistentLists: policy.ConsistentNone, wantFirst: consistent, wantSecondReviews: 1,
		},
		"newest state, a new token": {query: newest, newToken: true, wantFirst: consistent, wantFirstReviews: 1},
		"newest state, forbidden": {
			query: newest, upstream: cannedUpstream{code: 403}, wantFirst: notAllowed, wantSecondReviews: 1,
		},
		"newest state, an invalid token": {
			query: newest, upstream: cannedUpstream{code: 401}, wantFirst: unknown, wantSecondReviews: 1,
		},
		"newest state, overload": {
			query: newest, upstream: cannedUpstream{code: 429}, wantFirst: notAllowed, wantSecondReviews: 1,
		},
		"newest state, with a warning": {
			query: newest, upstream: cannedUpstream{warning: "299 - \"x\""}, wantFirst: consistent, wantSecondReviews: 1,
		},
		"newest state, the right expired": { // the second list comes 6 s + 5 s after the first was sent
			query: newest, upstream: cannedUpstream{delay: 6 * time.Second}, pause: 5 * time.Second,
			wantFirst: consistent, wantSecondReviews: 1,
		},
		"newest state, the right did not expire": { // the second list comes 4 s + 5 s after the first was sent
			query: newest, upstream: cannedUpstream{delay: 4 * time.Second}, pause: 5 * time.Second, wantFirst: consistent,
		},
		"newest state, rights are revoked": {
			query: newest, change: func(h *Handler) { h.Authorizer.RecordRevocation("") }, pause: 2 * time.Second,
			wantFirst: consistent, wantSecondReviews: 1,
		},
		"too old for memory": {query: tooOld, wantFirst: history},
		"too old for memory, forbidden": {
			query: tooOld, upstream: cannedUpstream{code: 403}, wantFirst: notAllowed, wantSecondReviews: 1,
		},
		"too old for the upstream": {
			query: tooOld, upstream: cannedUpstream{code: 410}, wantFirst: history, wantSecondReviews: 1,
		},
		"a page to come":                       {query: pageToCome, wantFirst: "fwd=miss; detail=not-proven"},
		"a right that only the upstream knows": {query: anyState, denied: true, wantFirst: notAllowed, wantFirstReviews: 1},
		"a watch": {
			query: "watch=true&resourceVersion=5", wantFirst: history, wantFirstReviews: 1, wantSecondReviews: 1,
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newModelWorld(t)
			w.load(t)
			reviews := 0
			w.setReviews(rightTTL, func() bool {
				reviews++
				return !tt.denied
			})
			w.handler.Policy = new(policy.File).Config(policy.Switches{
				ConsistentLists: cmp.Or(tt.consistentLists, policy.ConsistentLarge), Watches: true,
			})
			w.handler.Forward = forward.New(tt.upstream, proxytest.DiscardLog())
			// The first list.
			who := w.newCaller(t)
			if tt.newToken {
				who.verdict = auth.Unjudged
			}
			first := w.respond(t, tt.query, who)
			expect.Same(t, "listproxy; "+tt.wantFirst, first.Header().Get(kubehttp.CacheStatusHeader))
			expect.Same(t, tt.wantFirstReviews, reviews)

			// The second list, of the same caller.
			if tt.change != nil {
				tt.change(w.handler)
			}
			time.Sleep(tt.pause)
			reviews = 0
			later := w.newCaller(t)
			later.Identity = who.Identity
			second := w.respond(t, anyState, later)
			expect.Same(t, "listproxy; hit; detail=any", second.Header().Get(kubehttp.CacheStatusHeader))
			expect.Same(t, tt.wantSecondReviews, reviews)
		})
	}
}

// TestReviewsAskForTheRequest: the review of a request has all attributes by which the upstream would authorize the request, as
// the client wrote them.
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
			w.sendReviews(notRemembered, func(r *http.Request) (_ *http.Response, err error) {
				asked, err = proxytest.ReadReview(r)
				return inmemory.Answer(r, http.StatusCreated, "{}"), err
			})
			r := w.request(t.Context(), "")
			r.URL = httptest.NewRequest(http.MethodGet, target, nil).URL
			r.RequestURI = target
			w.handler.decide(withCaller(r, w.newCaller(t)))
			// These are the same in all cases.
			want.Group = "example.com"
			want.Version = "v1"
			want.Resource = "widgets"
			expect.Same(t, &want, asked.ResourceAttributes)
		})
	}
}

// TestNoRoom: an answer waits for room for its bytes in memory. If it gets none in time, it is refused with 429 and
// Retry-After, and the refusal is counted with its reason. A watch that does not begin with the state needs no room.
func TestNoRoom(t *testing.T) {
	const wait = 5 * time.Second // the time for which an answer waits for room
	for name, tt := range map[string]struct {
		query    string
		wantCode int
	}{
		"a list":                    {query: anyState, wantCode: http.StatusTooManyRequests},
		"a streaming list":          {query: newestStreamingList + "&resourceVersion=0", wantCode: http.StatusTooManyRequests},
		"a watch without the state": {query: "watch=true&timeoutSeconds=60&resourceVersion=" + newestRevision, wantCode: http.StatusOK},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newModelWorld(t)
			observer, metrics := observetest.New(nil)
			w.handler.Observer = observer
			w.setRoom(modelRoom, wait)
			w.load(t)
			releaseRoom := w.takeRoom(t, modelRoom) // all of it
			defer releaseRoom()
			c := w.open(t, tt.query)
			w.write() // an event for the watch
			time.Sleep(wait + time.Second)
			synctest.Wait()
			expect.Same(t, reason.None, c.why) // the request is not forwarded
			expect.Same(t, tt.wantCode, c.Code)
			if tt.wantCode == http.StatusOK {
				expect.Same(t, "", c.Header().Get("Retry-After"))
				expect.Same(t, 1, c.events(t))
				return
			}
			expect.Same(t, "1", c.Header().Get("Retry-After"))
			counted := strings.Join(proxytest.Series(proxytest.Gather(t, metrics)["listproxy_requests_total"]), " ")
			expect.Says(t, counted, "code=429,decision=refuse,reason=time-out,")
		})
	}
}

// seatRecorder records an answer, and the number of seats in use when the answer begins.
type seatRecorder struct {
	*httptest.ResponseRecorder
	seats      *limits.Limiter
	seatsInUse int64
}

// WriteHeader implements [http.ResponseWriter].
func (s *seatRecorder) WriteHeader(code int) {
	s.seatsInUse = s.seats.Stats().InUse
	s.ResponseRecorder.WriteHeader(code)
}

// TestWaitingTakesNoSeat: a request holds no seat while it waits for memory or for the review of an unknown caller. It has a
// seat again while it is answered.
func TestWaitingTakesNoSeat(t *testing.T) {
	const delay = time.Second
	for name, tt := range map[string]struct {
		query   string
		verdict auth.Verdict
		begin   func(t *testing.T, w *modelWorld) // makes each request wait for delay
	}{
		"for a load": {query: anyState, verdict: auth.Accepted, begin: func(t *testing.T, w *modelWorld) {
			t.Helper()
			w.loadsFail = true
			collection, _ := w.handler.Collections.Use(modelWidgets)
			const moreThanAllSlots = 100 // with a free slot, a list would be forwarded at once
			for range moreThanAllSlots {
				collection.TakeForwardSlot()
			}
			time.AfterFunc(delay, func() { w.changeAndCutFeeds(func() { w.loadsFail = false }) })
		}},
		"for a proof": {query: "", verdict: auth.Accepted, begin: func(t *testing.T, w *modelWorld) {
			t.Helper()
			w.load(t)
			w.delayProbes(delay)
		}},
		"for the review of an unknown caller": {query: anyState, verdict: auth.Unjudged, begin: func(t *testing.T, w *modelWorld) {
			t.Helper()
			w.load(t)
			w.setReviews(time.Hour, func() bool {
				time.Sleep(delay)
				return true
			})
		}},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newModelWorld(t)
			h := w.handler
			h.Forward = forward.New(cannedUpstream{code: http.StatusOK}, proxytest.DiscardLog())
			h.Limits = limits.New(limits.Config{Short: 1, MaxWait: 5 * time.Second})
			tt.begin(t, w)
			// Two requests wait, although there is only one seat.
			handler := kubehttp.WithRequest(h.Observer.Observe(h.withSeat(http.HandlerFunc(h.respond)), h.Log))
			var requests sync.WaitGroup
			var answers [2]*seatRecorder
			for i := range answers {
				who := w.newCaller(t)
				who.verdict = tt.verdict
				answers[i] = &seatRecorder{ResponseRecorder: httptest.NewRecorder(), seats: h.Limits.Short}
				requests.Go(func() { handler.ServeHTTP(answers[i], withCaller(w.request(t.Context(), tt.query), who)) })
			}
			synctest.Wait()
			waiting := limits.Stats{Waiting: 2}
			expect.Same(t, waiting, h.Limits.Short.Stats())

			// Another caller has a queue of its own, and is answered meanwhile.
			other := w.newCaller(t)
			other.Flow = limits.Flow{1}
			answer := httptest.NewRecorder()
			get := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/namespaces/a/pods/b", nil)
			handler.ServeHTTP(answer, withCaller(get, other))
			expect.Same(t, http.StatusOK, answer.Code)
			expect.Same(t, waiting, h.Limits.Short.Stats())

			// Then both are answered, one after the other.
			requests.Wait()
			for _, a := range answers {
				expect.Says(t, a.Header().Get("Cache-Status"), "; hit")
				expect.Same(t, http.StatusOK, a.Code)
				expect.Same(t, int64(1), a.seatsInUse)
			}
			expect.Same(t, limits.Stats{}, h.Limits.Short.Stats())
		})
	}
}

// TestProofOfWhoCameBefore: a probe asks the upstream for its current revision. It proves the newest state for every request
// that came before the probe was sent, even if the request had no seat yet. A request that came later waits for another probe.
func TestProofOfWhoCameBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newModelWorld(t)
		w.load(t)
		// One request comes, but is not decided yet. Another one then makes listproxy send a probe.
		before := w.newCaller(t)
		another := w.open(t, "")
		if <-another.done; another.why != "" {
			t.Fatalf("a list of the newest state is forwarded: %s", another.why)
		}
		// Now probes take a second: a request that needs another probe waits for it.
		const probeDelay = time.Second
		w.delayProbes(probeDelay)
		timeToDecide := func(who *caller) time.Duration {
			begun := time.Now()
			_, why := w.handler.decide(withCaller(w.request(t.Context(), ""), who))
			expect.Same(t, reason.None, why)
			return time.Since(begun)
		}
		expect.Same(t, time.Duration(0), timeToDecide(before))
		if got := timeToDecide(w.newCaller(t)); got < probeDelay {
			t.Errorf("a request that came after the probe waited for %v, want at least %v", got, probeDelay)
		}
	})
}

// TestNoAnswerAfterTheCallerLeft: refuse panics with ErrAbortHandler if the caller has closed its half of the connection. If
// refuse returned, net/http would send an empty 200.
func TestNoAnswerAfterTheCallerLeft(t *testing.T) {
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

// TestBodyReserve: bodies are kept only for accepted callers, and never those of long-running requests, which may not end.
func TestBodyReserve(t *testing.T) {
	h := &Handler{Limits: limits.New(limits.Config{Bytes: 1 << 30})}
	for target, wantKept := range map[string]bool{
		"/api/v1/namespaces/a/pods":                            true,
		"/api/v1/namespaces/a/pods/b/exec":                     false,
		"/api/v1/namespaces/a/services/grafana:80/proxy/login": false,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, target, nil)
		accepted := &caller{Caller: auth.Caller{Accepted: true}}
		if isKept := h.bodyReserve(r, accepted) != nil; isKept != wantKept {
			t.Errorf("the body to %s is kept: %t, want %t", target, isKept, wantKept)
		}
		if h.bodyReserve(r, &caller{}) != nil {
			t.Errorf("the body to %s of an unknown caller is kept", target)
		}
	}
}
