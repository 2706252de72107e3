package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/proxy/limits"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// reviewRig is an Authorizer and the upstream that it asks.
type reviewRig struct {
	*Authorizer
	authenticator *Authenticator

	// The upstream.
	requests  atomic.Int32  // the number of reviews received
	answersNo atomic.Bool   // to all reviews
	delay     time.Duration // from a review to its answer
}

// RoundTrip answers a review as the upstream does.
func (rig *reviewRig) RoundTrip(r *http.Request) (*http.Response, error) {
	rig.requests.Add(1)
	status := authorizationv1.SubjectAccessReviewStatus{Allowed: !rig.answersNo.Load()}
	if !clock.Sleep(r.Context(), rig.delay) {
		return nil, r.Context().Err()
	}
	return proxytest.AnswerReview(r, status)
}

// withUpstream runs test in a bubble of synctest, with a rig whose upstream answers after delay.
func withUpstream(t *testing.T, delay time.Duration, cfg ReviewConfig, test func(t *testing.T, rig *reviewRig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		rig := &reviewRig{delay: delay, authenticator: NewAuthenticator(nil)}
		rig.Authorizer = newAuthorizer(t, rig.RoundTrip, cfg)
		test(t, rig)
	})
}

// identity returns the identity of a caller with this token.
func (rig *reviewRig) identity(token any) Identity {
	return proxytest.Identify(rig.authenticator, fmt.Sprint("Bearer ", token))
}

// callerInFlow returns an accepted caller with this token, in this flow.
func (rig *reviewRig) callerInFlow(token any, flow byte) *Caller {
	return &Caller{Identity: rig.identity(token), Accepted: true, Flow: limits.Flow{flow}}
}

// expectYes asks whether the caller with this token has a right, and requires a yes.
func (rig *reviewRig) expectYes(t *testing.T, token any, a *Attributes) {
	t.Helper()
	if yes, err := rig.allowed(t.Context(), rig.identity(token), a); err != nil || !yes {
		t.Errorf("got allowed %t and error %v, want a yes", yes, err)
	}
}

// expectNo asks whether the caller with this token may list pods, and requires a no.
func (rig *reviewRig) expectNo(t *testing.T, token any) {
	t.Helper()
	if yes, err := rig.allowed(t.Context(), rig.identity(token), listPods()); err != nil || yes {
		t.Errorf("got allowed %t and error %v, want a no", yes, err)
	}
}

// expectRequests requires the number of reviews that the upstream has received.
func (rig *reviewRig) expectRequests(t *testing.T, want int32) {
	t.Helper()
	expect.Same(t, want, rig.requests.Load())
}

// expectYesAtOnce requires a yes for a caller, after the delay of the upstream and no other wait.
func (rig *reviewRig) expectYesAtOnce(t *testing.T, who *Caller) {
	t.Helper()
	began := time.Now()
	yes, err := rig.Review(t.Context(), who, listPods())
	if waited := time.Since(began); waited != rig.delay || err != nil || yes.Decision() != Yes {
		t.Errorf("got %v and error %v after %v, want a yes after %v", yes, err, waited, rig.delay)
	}
}

// expectAllFree requires that no seat is in use.
func expectAllFree(t *testing.T, seats *limits.Limiter) {
	t.Helper()
	if s := seats.Stats(); s.InUse != 0 || s.Waiting != 0 {
		t.Errorf("got %+v, want all seats free", s)
	}
}

// TestReviewTTL: an answer is valid for the TTL, counted from the question. This holds for a yes and for a no.
func TestReviewTTL(t *testing.T) {
	const ttl, delay = 10 * time.Second, 4 * time.Second
	withUpstream(t, delay, ReviewConfig{TTL: ttl}, func(t *testing.T, rig *reviewRig) {
		rig.expectYes(t, "a", listPods()) // the answer comes after delay, when 6 s of the TTL are left
		rig.answersNo.Store(true)
		time.Sleep(ttl - delay - time.Nanosecond) // the last moment of the ttl
		rig.expectYes(t, "a", listPods())
		rig.expectRequests(t, 1)
		time.Sleep(time.Nanosecond) // the yes has expired
		rig.expectNo(t, "a")
		rig.expectNo(t, "a") // remembered
		rig.expectRequests(t, 2)
	})
}

// TestReviewsInAnOutage: in an outage, an answer stays valid up to MaxOutage if its question was sent within twice the TTL
// before the outage. An older answer is invalid from the beginning of the outage.
func TestReviewsInAnOutage(t *testing.T) {
	const ttl, maxOutage = 10 * time.Second, 90 * time.Second
	var outage clock.Outage
	asOf := func(now time.Time) time.Time { return outage.AsOf(now, maxOutage) }
	withUpstream(t, 0, ReviewConfig{TTL: ttl, MaxOutage: maxOutage, AsOf: asOf}, func(t *testing.T, rig *reviewRig) {
		// When the outage begins, the answer about "old" is exactly 2*ttl old, and that about "recent" a nanosecond younger.
		rig.expectYes(t, "old", listPods())
		time.Sleep(time.Nanosecond)
		rig.expectYes(t, "recent", listPods())
		time.Sleep(2*ttl - time.Nanosecond)
		outage = clock.Outage{Ongoing: true, LastHeard: time.Now()}
		// From now on the upstream answers no. So a yes is one that is remembered.
		rig.answersNo.Store(true)

		time.Sleep(maxOutage - time.Nanosecond) // the last moment of MaxOutage
		rig.expectYes(t, "recent", listPods())
		rig.expectRequests(t, 2) // those before the outage
		rig.expectNo(t, "old")
		rig.expectRequests(t, 3)

		time.Sleep(time.Nanosecond) // MaxOutage is over
		rig.expectNo(t, "recent")
		rig.expectRequests(t, 4)
	})
}

// TestReviewCutByAnOutage: an expired answer is used again if the review that should replace it gets no answer because an
// outage has begun.
func TestReviewCutByAnOutage(t *testing.T) {
	const ttl = 10 * time.Second
	var outageBegins time.Time
	cfg := ReviewConfig{TTL: ttl, Timeout: 2 * time.Second, MaxOutage: time.Minute, AsOf: func(now time.Time) time.Time {
		if !outageBegins.IsZero() && now.After(outageBegins) {
			return outageBegins
		}
		return now
	}}
	withUpstream(t, 0, cfg, func(t *testing.T, rig *reviewRig) {
		rig.expectYes(t, "a", listPods())
		time.Sleep(ttl) // the answer has expired
		rig.delay = time.Hour
		outageBegins = time.Now().Add(time.Second) // while the next review waits for its answer, for up to two seconds
		rig.expectYes(t, "a", listPods())
		rig.expectRequests(t, 2)
	})
}

// TestRevocations: an answer is valid for the TTL, here 10 s, unless rights on which it may depend are revoked after the
// question, or at most a second (authorizerLag) before it. Then it is valid for one second (revokedTTL) from the question. If
// the revocation comes later than that, the answer is valid until the revocation.
func TestRevocations(t *testing.T) {
	serviceAccount := func(rig *reviewRig) *Caller {
		return acceptedCaller(rig.authenticator.NewVerifiedIdentity(&user.DefaultInfo{Name: "system:serviceaccount:of-account:a"}))
	}
	token := func(rig *reviewRig) *Caller { return acceptedCaller(rig.identity("a")) }
	const ttl = 10 * time.Second
	const soon, later = 300 * time.Millisecond, 5 * time.Second
	const untilRevoked = later
	const everywhere = "" // in all namespaces
	for name, tt := range map[string]struct {
		caller       func(*reviewRig) *Caller
		right        string        // the namespace of the right
		revoked      string        // the namespace of the revocation
		after        time.Duration // from the question to the revocation; negative: the revocation comes first
		wantValidFor time.Duration // from the question
	}{
		"in the namespace":              {caller: token, right: "n", revoked: "n", after: later, wantValidFor: untilRevoked},
		"in the namespace, soon":        {caller: token, right: "n", revoked: "n", after: soon, wantValidFor: revokedTTL},
		"in the namespace, at once":     {caller: token, right: "n", revoked: "n", after: 0, wantValidFor: revokedTTL},
		"in the namespace, just before": {caller: token, right: "n", revoked: "n", after: -authorizerLag, wantValidFor: revokedTTL},
		"in the namespace, long before": {caller: token, right: "n", revoked: "n", after: -authorizerLag - time.Nanosecond, wantValidFor: ttl},
		"in another namespace":          {caller: token, right: "n", revoked: "m", after: later, wantValidFor: ttl},
		"everywhere":                    {caller: token, right: "n", revoked: everywhere, after: later, wantValidFor: untilRevoked},

		"a right everywhere, revoked everywhere":     {caller: token, right: everywhere, revoked: everywhere, after: later, wantValidFor: untilRevoked},
		"a right everywhere, revoked in a namespace": {caller: token, right: everywhere, revoked: "m", after: later, wantValidFor: ttl},

		"in the namespace of the service account":     {caller: serviceAccount, right: "n", revoked: "of-account", after: later, wantValidFor: untilRevoked},
		"in another namespace than the account's":     {caller: serviceAccount, right: "n", revoked: "m", after: later, wantValidFor: ttl},
		"in the namespace of an account, for a token": {caller: token, right: "n", revoked: "of-account", after: later, wantValidFor: ttl},
	} {
		t.Run(name, func(t *testing.T) {
			withUpstream(t, 0, ReviewConfig{TTL: ttl}, func(t *testing.T, rig *reviewRig) {
				question := listPods()
				question.Namespace = tt.right
				// The question is sent after an hour, so that the revocation can come before it.
				const start = time.Hour
				time.AfterFunc(start+tt.after, func() { rig.RecordRevocation(tt.revoked) })
				time.Sleep(start)
				synctest.Wait()
				ruling, err := rig.Review(t.Context(), tt.caller(rig), question)
				expect.NoError(t, err)
				asked := time.Now()
				// Once the revocation is recorded, the answer is valid until wantValidFor is over.
				time.Sleep(max(0, tt.after))
				synctest.Wait()
				time.Sleep(rig.ValidFor(&ruling, time.Now()))
				expect.Same(t, tt.wantValidFor, time.Since(asked))
				// Then the same reviews are sent again.
				before := rig.requests.Load()
				_, err = rig.Review(t.Context(), tt.caller(rig), question)
				expect.NoError(t, err)
				rig.expectRequests(t, 2*before)
			})
		})
	}
}

// revokeAllTheTime begins to record a revocation in the namespace of listPods every 20 ms, until the test ends.
func (rig *reviewRig) revokeAllTheTime(t *testing.T) {
	t.Helper()
	proxytest.RunInBubble(t, func(ctx context.Context) {
		for clock.Sleep(ctx, 20*time.Millisecond) {
			rig.RecordRevocation("ns")
		}
	})
}

// TestRevokedAllDay: while rights in its namespace are revoked all the time, an answer is used for one second (revokedTTL). So
// at most one question a second is sent.
func TestRevokedAllDay(t *testing.T) {
	const period = 20 * time.Second
	withUpstream(t, 0, ReviewConfig{TTL: time.Hour}, func(t *testing.T, rig *reviewRig) {
		rig.revokeAllTheTime(t)
		for begun := time.Now(); time.Since(begun) < period; time.Sleep(100 * time.Millisecond) {
			rig.expectYes(t, "a", listPods())
		}
		if got, most := rig.requests.Load(), int32(period/revokedTTL); got > most {
			t.Errorf("got %d reviews in %v, want at most %d", got, period, most)
		}
	})
}

// TestRevokedBeforeTheAnswer: while rights in its namespace are revoked all the time, an answer that comes within a second
// (revokedTTL) is used, with a TTL or without. If every answer comes later, Review gives up with errOutdated.
func TestRevokedBeforeTheAnswer(t *testing.T) {
	for name, tt := range map[string]struct {
		delay   time.Duration // of the answer
		wantErr error
	}{
		"in time":  {delay: revokedTTL - time.Nanosecond},
		"too late": {delay: revokedTTL, wantErr: errOutdated},
	} {
		for _, ttl := range []time.Duration{0, time.Hour} {
			t.Run(fmt.Sprintf("%s, TTL %v", name, ttl), func(t *testing.T) {
				withUpstream(t, tt.delay, ReviewConfig{TTL: ttl}, func(t *testing.T, rig *reviewRig) {
					rig.revokeAllTheTime(t)
					if _, err := rig.allowed(t.Context(), rig.identity("a"), listPods()); !errors.Is(err, tt.wantErr) {
						t.Errorf("got error %v, want %v", err, tt.wantErr)
					}
				})
			})
		}
	}
}

// TestReviewFlights: equal questions of one caller at the same time share an answer, with a TTL or without. Other questions,
// and those of other callers, do not.
func TestReviewFlights(t *testing.T) {
	for _, ttl := range []time.Duration{0, time.Minute} {
		withUpstream(t, time.Second, ReviewConfig{TTL: ttl}, func(t *testing.T, rig *reviewRig) {
			other := listPods()
			other.Namespace = "other"
			var all sync.WaitGroup
			for range 50 {
				for _, name := range []string{"a", "b"} {
					all.Go(func() { rig.expectYes(t, name, listPods()) })
					all.Go(func() { rig.expectYes(t, name, other) })
				}
			}
			all.Wait()
			rig.expectRequests(t, 4)
		})
	}
}

// TestReviewOutlivesTheRequestThatSentIt: a request that leaves does not wait for its review, and another request with the same
// question still gets the answer.
func TestReviewOutlivesTheRequestThatSentIt(t *testing.T) {
	const delay, leavesAfter = 5 * time.Second, time.Second
	withUpstream(t, delay, ReviewConfig{TTL: time.Minute}, func(t *testing.T, rig *reviewRig) {
		first, leave := context.WithTimeout(t.Context(), leavesAfter)
		defer leave()
		began := time.Now()
		var all sync.WaitGroup
		all.Go(func() {
			_, err := rig.allowed(first, rig.identity("a"), listPods())
			if waited := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || waited != leavesAfter {
				t.Errorf("the first request got error %v after %v, want %v after %v",
					err, waited, context.DeadlineExceeded, leavesAfter)
			}
		})
		synctest.Wait()
		rig.expectYes(t, "a", listPods())
		expect.Same(t, delay, time.Since(began))
		all.Wait()
		rig.expectRequests(t, 1)
	})
}

// TestReviewsAreBounded: of any number of questions about accepted callers, 128 are in flight (acceptedSeats). Another 16,384
// (acceptedQueue) wait for at most the timeout. All further ones fail at once.
func TestReviewsAreBounded(t *testing.T) {
	const timeout = 30 * time.Second
	withUpstream(t, time.Minute, ReviewConfig{TTL: time.Hour, Timeout: timeout}, func(t *testing.T, rig *reviewRig) {
		const tooMany = 10
		const callers = acceptedSeats + acceptedQueue + tooMany
		began := time.Now()
		var full, late atomic.Int32
		var all sync.WaitGroup
		for n := range callers {
			all.Go(func() {
				_, err := rig.allowed(t.Context(), rig.identity(n), listPods())
				switch {
				case errors.Is(err, limits.OverloadQueueFull):
					full.Add(1)
				case errors.Is(err, context.DeadlineExceeded), errors.Is(err, limits.OverloadTimeOut):
					late.Add(1)
				default:
					t.Errorf("got error %v", err)
				}
			})
		}
		synctest.Wait()
		rig.expectRequests(t, acceptedSeats) // the first are not answered yet
		all.Wait()
		expect.Same(t, int32(tooMany), full.Load())
		expect.Same(t, int32(callers-tooMany), late.Load())
		expect.Same(t, timeout, time.Since(began))
		expectAllFree(t, rig.cache.accepted)
	})
}

// TestReviewInAnotherFlow: a question does not wait for an equal question that is queued in another flow. (Questions of
// listproxy's own account, for example, are the same for all users.)
func TestReviewInAnotherFlow(t *testing.T) {
	const busyFlow, freeFlow = 1, 2
	withUpstream(t, time.Second, ReviewConfig{TTL: time.Hour}, func(t *testing.T, rig *reviewRig) {
		var others sync.WaitGroup
		// The busy flow has as many questions in flight as one flow may have, and a queue.
		for n := range acceptedSeats {
			others.Go(func() { _, _ = rig.Review(t.Context(), rig.callerInFlow(n, busyFlow), listPods()) })
		}
		synctest.Wait()
		// The same question comes in both flows.
		others.Go(func() { _, _ = rig.Review(t.Context(), rig.callerInFlow("shared", busyFlow), listPods()) })
		synctest.Wait()
		rig.expectYesAtOnce(t, rig.callerInFlow("shared", freeFlow))
		others.Wait()
	})
}

// TestReviewsCountUntilTheyEnd: the question of a caller who leaves keeps its seat, or its place in the queue, until it is
// answered. A flow has half of the seats.
func TestReviewsCountUntilTheyEnd(t *testing.T) {
	const flow = 1
	withUpstream(t, 5*time.Second, ReviewConfig{TTL: time.Hour}, func(t *testing.T, rig *reviewRig) {
		for n := range acceptedSeats {
			ctx, leave := context.WithTimeout(t.Context(), 20*time.Millisecond)
			if _, err := rig.Review(ctx, rig.callerInFlow(n, flow), listPods()); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a caller who left got error %v, want %v", err, context.DeadlineExceeded)
			}
			leave()
		}
		if s := rig.cache.accepted.Stats(); s.InUse != acceptedSeats/2 || s.Waiting != acceptedSeats/2 {
			t.Errorf("after all callers left: got %d seats in use and %d waiting, want %d each", s.InUse, s.Waiting, acceptedSeats/2)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		expectAllFree(t, rig.cache.accepted)
	})
}

// TestNewcomers: callers who are not accepted yet have separate seats. An address has half of the seats, and an eighth of the
// queue. A question waits in the queue for at most a second (newcomerWait). Callers of other addresses and accepted callers do
// not wait.
func TestNewcomers(t *testing.T) {
	const seats, queue = newcomerSeats / 2, newcomerQueue / 8 // of an address
	for name, tt := range map[string]struct {
		callers           int           // of one address
		delay             time.Duration // of an answer
		wantRefusedAtOnce int32
		wantRefused       int32 // in the end
	}{
		"after a restart": {callers: 500, delay: 100 * time.Millisecond},
		"too many":        {callers: seats + queue + 10, delay: 100 * time.Millisecond, wantRefusedAtOnce: 10, wantRefused: 10},
		"too slow":        {callers: seats + queue, delay: newcomerWait + time.Second, wantRefused: queue},
	} {
		t.Run(name, func(t *testing.T) {
			withUpstream(t, tt.delay, ReviewConfig{TTL: time.Hour}, func(t *testing.T, rig *reviewRig) {
				var asked sync.WaitGroup
				var refused atomic.Int32
				for n := range tt.callers {
					asked.Go(func() {
						_, err := rig.Review(t.Context(), &Caller{Identity: rig.identity(n), Flow: limits.Flow{1}}, listPods())
						switch {
						case errors.Is(err, ErrNoSeat):
							refused.Add(1)
						case err != nil:
							t.Errorf("got error %v, want none or ErrNoSeat", err)
						}
					})
				}
				synctest.Wait()
				expect.Same(t, tt.wantRefusedAtOnce, refused.Load())
				rig.expectYesAtOnce(t, &Caller{Identity: rig.identity("elsewhere"), Flow: limits.Flow{2}})
				rig.expectYesAtOnce(t, acceptedCaller(rig.identity("known")))
				asked.Wait()
				expect.Same(t, tt.wantRefused, refused.Load())
				expectAllFree(t, rig.cache.newcomers)
			})
		})
	}
}

// TestLearned: Learn gives a caller the right to repeat a request for the TTL, counted from when the request was sent. No other
// caller, impersonated user or question has the right, and Learn replaces no answer to a later question.
func TestLearned(t *testing.T) {
	const ttl = 10 * time.Second
	token := func(rig *reviewRig, name string) Identity { return rig.identity(name) }
	verified := func(rig *reviewRig, name string) Identity {
		return rig.authenticator.NewVerifiedIdentity(&user.DefaultInfo{Name: name})
	}
	impersonated := func(rig *reviewRig, name string) Identity {
		return proxytest.IdentifyAs(rig.authenticator, http.Header{"Impersonate-User": {name}})
	}
	impersonator := func(rig *reviewRig, name string) Identity { return impersonated(rig, name).Impersonator() }
	other := listPods()
	other.Namespace = "other"
	for name, tt := range map[string]struct {
		jane, joe func(*reviewRig, string) Identity
	}{
		"tokens":                             {jane: token, joe: token},
		"verified users":                     {jane: verified, joe: verified},
		"impersonated users":                 {jane: impersonated, joe: impersonated},
		"a user and the user's impersonator": {jane: impersonated, joe: impersonator},
	} {
		t.Run(name, func(t *testing.T) {
			withUpstream(t, 0, ReviewConfig{TTL: ttl}, func(t *testing.T, rig *reviewRig) {
				rig.answersNo.Store(true)
				jane, joe := tt.jane(rig, "jane"), tt.joe(rig, "joe")
				// expectDecision requires YesByRequest, the decision of a learnt right, or No, which the upstream answers.
				expectDecision := func(want Decision, id Identity, a *Attributes) {
					t.Helper()
					got, err := rig.Review(t.Context(), acceptedCaller(id), a)
					expect.NoError(t, err)
					expect.Same(t, want, got.Decision())
					expect.Same(t, want == YesByRequest, rig.ValidFor(&got, time.Now()) > 0)
				}
				// In the last moment of the TTL, jane has the right, for this question only.
				rig.Learn(jane, listPods(), time.Now())
				time.Sleep(ttl - time.Nanosecond)
				expectDecision(YesByRequest, jane, listPods())
				expectDecision(No, jane, other)
				expectDecision(No, joe, listPods())
				// Then the right expires.
				time.Sleep(time.Nanosecond)
				expectDecision(No, jane, listPods())
				// A request that was sent before the review that has just said no proves nothing.
				rig.Learn(jane, listPods(), time.Now().Add(-time.Nanosecond))
				expectDecision(No, jane, listPods())
			})
		})
	}
}

// TestRightEnds: a yes is valid for the TTL from its question. For the request that asked, it is valid for at least a second
// (ownAnswerTTL) from the answer.
func TestRightEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		ttl          time.Duration
		delay        time.Duration // of the answer
		wantValidFor time.Duration // from the answer
	}{
		"answer after a while":       {ttl: 10 * time.Second, delay: 4 * time.Second, wantValidFor: 6 * time.Second},
		"answer just before the TTL": {ttl: 4*time.Second + time.Nanosecond, delay: 4 * time.Second, wantValidFor: ownAnswerTTL},
		"answer after the TTL":       {ttl: 3 * time.Second, delay: 4 * time.Second, wantValidFor: ownAnswerTTL},
		"no TTL":                     {ttl: 0, delay: 4 * time.Second, wantValidFor: ownAnswerTTL},
	} {
		t.Run(name, func(t *testing.T) {
			withUpstream(t, tt.delay, ReviewConfig{TTL: tt.ttl}, func(t *testing.T, rig *reviewRig) {
				right, err := rig.Review(t.Context(), acceptedCaller(rig.identity("a")), listPods())
				expect.NoError(t, err)
				expect.Same(t, tt.wantValidFor, rig.ValidFor(&right, time.Now()))
			})
		})
	}
}

// TestLongQuestionsAreNotRemembered: the answer to a question with a key of more than 4 KiB (maxKey) is not remembered.
func TestLongQuestionsAreNotRemembered(t *testing.T) {
	withUpstream(t, 0, ReviewConfig{TTL: time.Hour}, func(t *testing.T, rig *reviewRig) {
		asked := listPods()
		asked.LabelSelector = &authorizationv1.LabelSelectorAttributes{RawSelector: strings.Repeat("x", maxKey)}
		rig.expectYes(t, "a", asked)
		rig.expectYes(t, "a", asked)
		rig.expectRequests(t, 2)
	})
}

// TestDecisionKeys: no two questions have the same key, however their words are divided among the attributes, and no two
// callers have the same key for a question.
func TestDecisionKeys(t *testing.T) {
	var asked []Attributes
	fields := reflect.TypeFor[Attributes]().NumField()
	attributes := func(words []string) Attributes { // with one word in each field
		return Attributes{
			Verb: words[0], Group: words[1], Version: words[2], Resource: words[3], Subresource: words[4],
			Namespace: words[5], Name: words[6],
			LabelSelector: &authorizationv1.LabelSelectorAttributes{RawSelector: words[7]},
			FieldSelector: &authorizationv1.FieldSelectorAttributes{RawSelector: words[8]},
		}
	}
	for i := range fields {
		words := make([]string, fields)
		words[i] = "x"
		asked = append(asked, attributes(words))
		for j := range words {
			withY := slices.Clone(words)
			withY[j] += "y" // "xy" in one field, or "x" and "y" in two
			asked = append(asked, attributes(withY))
		}
	}
	authenticator := NewAuthenticator(nil)
	seen := map[string]string{} // the question that has each key
	for _, caller := range []string{"Bearer a", "Bearer b"} {
		for _, a := range asked {
			key := decisionKey(proxytest.Identify(authenticator, caller), &a)
			question := fmt.Sprintf("%s: %+v", caller, a)
			if other, ok := seen[key]; ok {
				t.Errorf("%s has the key of %s", question, other)
			}
			seen[key] = question
		}
	}
}
