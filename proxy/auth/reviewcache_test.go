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
	callers *Authenticator

	// The upstream.
	requests atomic.Int32  // the number of reviews received
	denies   atomic.Bool   // whether the upstream answers no
	delay    time.Duration // from a review to its answer
}

// RoundTrip answers a review as the upstream.
func (u *reviewRig) RoundTrip(r *http.Request) (*http.Response, error) {
	u.requests.Add(1)
	status := authorizationv1.SubjectAccessReviewStatus{Allowed: !u.denies.Load()}
	if !clock.Sleep(r.Context(), u.delay) {
		return nil, r.Context().Err()
	}
	return proxytest.AnswerReview(r, status)
}

// withUpstream runs test in a bubble, with a rig whose upstream answers after delay.
func withUpstream(t *testing.T, delay time.Duration, cfg ReviewConfig, test func(t *testing.T, u *reviewRig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		u := &reviewRig{delay: delay, callers: NewAuthenticator(nil)}
		u.Authorizer = newAuthorizer(t, u.RoundTrip, cfg)
		test(t, u)
	})
}

// caller returns the identity of the token name.
func (u *reviewRig) caller(name any) Identity {
	return proxytest.Identify(u.callers, fmt.Sprint("Bearer ", name))
}

// callerInFlow returns an accepted caller with the token name, in the given flow.
func (u *reviewRig) callerInFlow(name any, flow byte) *Caller {
	return &Caller{Identity: u.caller(name), Accepted: true, Flow: limits.Flow{flow}}
}

// wantYes asks whether the caller name has a right, and requires a yes.
func (u *reviewRig) wantYes(t *testing.T, name any, a *Attributes) {
	t.Helper()
	if yes, err := u.allowed(t.Context(), u.caller(name), a); err != nil || !yes {
		t.Errorf("got allowed %t and error %v, want a yes", yes, err)
	}
}

// wantNo asks whether the caller name may list pods, and requires a no.
func (u *reviewRig) wantNo(t *testing.T, name any) {
	t.Helper()
	if yes, err := u.allowed(t.Context(), u.caller(name), listPods()); err != nil || yes {
		t.Errorf("got allowed %t and error %v, want a no", yes, err)
	}
}

// wantRequests requires the number of reviews that the upstream got.
func (u *reviewRig) wantRequests(t *testing.T, want int32) {
	t.Helper()
	expect.Same(t, want, u.requests.Load())
}

// wantNoWait requires a yes for a caller, after the upstream's delay and no other wait.
func (u *reviewRig) wantNoWait(t *testing.T, who *Caller) {
	t.Helper()
	began := time.Now()
	yes, err := u.Review(t.Context(), who, listPods())
	if waited := time.Since(began); waited != u.delay || err != nil || yes.Decision() != Yes {
		t.Errorf("got %v and error %v after %v, want a yes after %v", yes, err, waited, u.delay)
	}
}

// wantAllFree requires that no seat is in use.
func wantAllFree(t *testing.T, seats *limits.Limiter) {
	t.Helper()
	if s := seats.Stats(); s.InUse != 0 || s.Waiting != 0 {
		t.Errorf("got %+v, want all seats free", s)
	}
}

// TestReviewTTL: an answer is valid for the TTL, counted from the question.
func TestReviewTTL(t *testing.T) {
	const ttl, delay = 10 * time.Second, 4 * time.Second
	withUpstream(t, delay, ReviewConfig{TTL: ttl}, func(t *testing.T, u *reviewRig) {
		u.wantYes(t, "a", listPods())
		u.denies.Store(true)
		time.Sleep(ttl - delay - time.Nanosecond)
		u.wantYes(t, "a", listPods())
		u.wantRequests(t, 1)
		time.Sleep(time.Nanosecond)
		u.wantNo(t, "a")
		u.wantNo(t, "a")
		u.wantRequests(t, 2) // a no is remembered, too
	})
}

// TestReviewsInAnOutage: in an outage, an answer stays valid up to MaxOutage if its question was sent within twice the TTL
// before the outage. An older answer is invalid from the beginning of the outage.
func TestReviewsInAnOutage(t *testing.T) {
	const ttl, bound = 10 * time.Second, 90 * time.Second
	var outage clock.Outage
	cfg := ReviewConfig{TTL: ttl, MaxOutage: bound, AsOf: func(now time.Time) time.Time { return outage.AsOf(now, bound) }}
	withUpstream(t, 0, cfg, func(t *testing.T, u *reviewRig) {
		u.wantYes(t, "old", listPods())
		time.Sleep(time.Nanosecond)
		u.wantYes(t, "recent", listPods())
		time.Sleep(2*ttl - time.Nanosecond)
		u.denies.Store(true)
		// The question about "recent" was sent within 2*ttl before the outage, that about "old" exactly 2*ttl before.
		outage = clock.Outage{Ongoing: true, LastHeard: time.Now()}
		time.Sleep(bound - time.Nanosecond) // the last moment of MaxOutage
		u.wantYes(t, "recent", listPods())
		u.wantRequests(t, 2) // none in the outage
		u.wantNo(t, "old")
		time.Sleep(time.Nanosecond)
		u.wantNo(t, "recent")
		u.wantRequests(t, 4)
	})
}

// TestReviewCutByAnOutage: an expired answer is used again if the review that should replace it gets no answer because an outage
// has begun.
func TestReviewCutByAnOutage(t *testing.T) {
	const ttl = 10 * time.Second
	var outageBegins time.Time
	cfg := ReviewConfig{TTL: ttl, Timeout: 2 * time.Second, MaxOutage: time.Minute, AsOf: func(now time.Time) time.Time {
		if !outageBegins.IsZero() && now.After(outageBegins) {
			return outageBegins
		}
		return now
	}}
	withUpstream(t, 0, cfg, func(t *testing.T, u *reviewRig) {
		u.wantYes(t, "a", listPods())
		time.Sleep(ttl)
		u.delay = time.Hour
		outageBegins = time.Now().Add(time.Second)
		u.wantYes(t, "a", listPods())
		u.wantRequests(t, 2)
	})
}

// TestRevocations: an answer is valid for revokedTTL from its question if rights on which it may depend were revoked later, or up
// to authorizerLag before. All other answers are valid for the TTL.
func TestRevocations(t *testing.T) {
	pods := func(namespace string) *Attributes {
		return &Attributes{Verb: "list", Version: "v1", Resource: "pods", Namespace: namespace}
	}
	account := func(u *reviewRig) *Caller {
		return known(u.callers.NewVerifiedIdentity(&user.DefaultInfo{Name: "system:serviceaccount:of-account:a"}))
	}
	token := func(u *reviewRig) *Caller { return known(u.caller("a")) }
	const ttl, later = 10 * time.Second, 5 * time.Second
	const untilRevoked = later
	const everywhere = "" // in all namespaces
	for name, tt := range map[string]struct {
		caller       func(*reviewRig) *Caller
		asked        string        // the namespace of the question
		revoked      string        // the namespace of the revocation
		after        time.Duration // from the question to the revocation; may be negative
		wantValidFor time.Duration // from the question
	}{
		"in the namespace":              {caller: token, asked: "n", revoked: "n", after: later, wantValidFor: untilRevoked},
		"in the namespace, at once":     {caller: token, asked: "n", revoked: "n", wantValidFor: revokedTTL},
		"in the namespace, soon":        {caller: token, asked: "n", revoked: "n", after: 300 * time.Millisecond, wantValidFor: revokedTTL},
		"in the namespace, just before": {caller: token, asked: "n", revoked: "n", after: -authorizerLag, wantValidFor: revokedTTL},
		"in the namespace, long before": {
			caller: token, asked: "n", revoked: "n", after: -authorizerLag - time.Nanosecond, wantValidFor: ttl,
		},
		"in another namespace": {caller: token, asked: "n", revoked: "m", after: later, wantValidFor: ttl},
		"everywhere":           {caller: token, asked: "n", revoked: everywhere, after: later, wantValidFor: untilRevoked},

		"a right everywhere, revoked everywhere": {
			caller: token, asked: everywhere, revoked: everywhere, after: later, wantValidFor: untilRevoked,
		},
		"a right everywhere, revoked in a namespace": {caller: token, asked: everywhere, revoked: "m", after: later, wantValidFor: ttl},

		"in the namespace of the service account": {
			caller: account, asked: "n", revoked: "of-account", after: later, wantValidFor: untilRevoked,
		},
		"in another namespace than the account's":     {caller: account, asked: "n", revoked: "m", after: later, wantValidFor: ttl},
		"in the namespace of an account, for a token": {caller: token, asked: "n", revoked: "of-account", after: later, wantValidFor: ttl},
	} {
		t.Run(name, func(t *testing.T) {
			withUpstream(t, 0, ReviewConfig{TTL: ttl}, func(t *testing.T, u *reviewRig) {
				const start = time.Hour // at which the question is sent, so that the revocation can come before it
				time.AfterFunc(start+tt.after, func() { u.RecordRevocation(tt.revoked) })
				time.Sleep(start)
				synctest.Wait()
				right, err := u.Review(t.Context(), tt.caller(u), pods(tt.asked))
				expect.NoError(t, err)
				asked := time.Now()
				time.Sleep(max(0, tt.after))
				synctest.Wait()
				time.Sleep(u.ValidFor(&right, time.Now()))
				expect.Same(t, tt.wantValidFor, time.Since(asked))
				before := u.requests.Load()
				_, err = u.Review(t.Context(), tt.caller(u), pods(tt.asked))
				expect.NoError(t, err)
				u.wantRequests(t, 2*before) // each question is asked again
			})
		})
	}
}

// revokeAllTheTime records a revocation in the namespace of listPods every 20 ms, until the test ends.
func (u *reviewRig) revokeAllTheTime(t *testing.T) {
	t.Helper()
	proxytest.RunInBubble(t, func(ctx context.Context) {
		for clock.Sleep(ctx, 20*time.Millisecond) {
			u.RecordRevocation("ns")
		}
	})
}

// TestRevokedAllDay: while rights in its namespace are revoked all the time, an answer is used for revokedTTL. So at most one
// question a second is sent.
func TestRevokedAllDay(t *testing.T) {
	const runs = 20 * time.Second
	withUpstream(t, 0, ReviewConfig{TTL: time.Hour}, func(t *testing.T, u *reviewRig) {
		u.revokeAllTheTime(t)
		for begun := time.Now(); time.Since(begun) < runs; time.Sleep(100 * time.Millisecond) {
			u.wantYes(t, "a", listPods())
		}
		if got, most := u.requests.Load(), int32(runs/revokedTTL); got > most {
			t.Errorf("got %d reviews in %v, want at most %d", got, runs, most)
		}
	})
}

// TestRevokedBeforeTheAnswer: while rights in its namespace are revoked all the time, an answer that comes within revokedTTL is
// used, with a TTL or without. If each answer comes later, the error is errOutdated.
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
				withUpstream(t, tt.delay, ReviewConfig{TTL: ttl}, func(t *testing.T, u *reviewRig) {
					u.revokeAllTheTime(t)
					if _, err := u.allowed(t.Context(), u.caller("a"), listPods()); !errors.Is(err, tt.wantErr) {
						t.Errorf("got error %v, want %v", err, tt.wantErr)
					}
				})
			})
		}
	}
}

// TestReviewFlights: equal questions of one caller at the same time share an answer, with a TTL or without. Other questions, and
// those of other callers, do not.
func TestReviewFlights(t *testing.T) {
	for _, ttl := range []time.Duration{0, time.Minute} {
		withUpstream(t, time.Second, ReviewConfig{TTL: ttl}, func(t *testing.T, u *reviewRig) {
			other := listPods()
			other.Namespace = "other"
			var all sync.WaitGroup
			for range 50 {
				for _, name := range []string{"a", "b"} {
					all.Go(func() { u.wantYes(t, name, listPods()) })
					all.Go(func() { u.wantYes(t, name, other) })
				}
			}
			all.Wait()
			u.wantRequests(t, 4)
		})
	}
}

// TestReviewOutlivesTheRequestThatSentIt: a request that leaves does not wait for its review, and another request with the same
// question still gets the answer.
func TestReviewOutlivesTheRequestThatSentIt(t *testing.T) {
	const delay, leavesAfter = 5 * time.Second, time.Second
	withUpstream(t, delay, ReviewConfig{TTL: time.Minute}, func(t *testing.T, u *reviewRig) {
		first, leave := context.WithTimeout(t.Context(), leavesAfter)
		defer leave()
		began := time.Now()
		var all sync.WaitGroup
		all.Go(func() {
			_, err := u.allowed(first, u.caller("a"), listPods())
			if waited := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || waited != leavesAfter {
				t.Errorf("the first request got error %v after %v, want %v after %v",
					err, waited, context.DeadlineExceeded, leavesAfter)
			}
		})
		synctest.Wait()
		u.wantYes(t, "a", listPods())
		expect.Same(t, delay, time.Since(began))
		all.Wait()
		u.wantRequests(t, 1)
	})
}

// TestReviewsAreBounded: of any number of questions, acceptedSeats are in flight, acceptedQueue wait for at most the timeout,
// and the others fail at once.
func TestReviewsAreBounded(t *testing.T) {
	const timeout = 30 * time.Second
	withUpstream(t, time.Minute, ReviewConfig{TTL: time.Hour, Timeout: timeout}, func(t *testing.T, u *reviewRig) {
		const tooMany = 10
		const callers = acceptedSeats + acceptedQueue + tooMany
		began := time.Now()
		var full, late atomic.Int32
		var all sync.WaitGroup
		for n := range callers {
			all.Go(func() {
				_, err := u.allowed(t.Context(), u.caller(n), listPods())
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
		u.wantRequests(t, acceptedSeats) // the first are not answered yet
		all.Wait()
		expect.Same(t, int32(tooMany), full.Load())
		expect.Same(t, int32(callers-tooMany), late.Load())
		expect.Same(t, timeout, time.Since(began))
		wantAllFree(t, u.reviews.accepted)
	})
}

// TestReviewInAnotherFlow: a question does not wait for an equal question that is queued in another flow. (For example, the
// questions of listproxy's own account are equal for all users.)
func TestReviewInAnotherFlow(t *testing.T) {
	withUpstream(t, time.Second, ReviewConfig{TTL: time.Hour}, func(t *testing.T, u *reviewRig) {
		var others sync.WaitGroup
		for n := range acceptedSeats {
			others.Go(func() { _, _ = u.Review(t.Context(), u.callerInFlow(n, 1), listPods()) })
		}
		synctest.Wait()
		others.Go(func() { _, _ = u.Review(t.Context(), u.callerInFlow("shared", 1), listPods()) })
		synctest.Wait()
		u.wantNoWait(t, u.callerInFlow("shared", 2))
		others.Wait()
	})
}

// TestReviewsCountUntilTheyEnd: the question of a caller who leaves keeps its seat, or its place in the queue, until it is
// answered. A flow has half of the seats.
func TestReviewsCountUntilTheyEnd(t *testing.T) {
	withUpstream(t, 5*time.Second, ReviewConfig{TTL: time.Hour}, func(t *testing.T, u *reviewRig) {
		for n := range acceptedSeats {
			ctx, leave := context.WithTimeout(t.Context(), 20*time.Millisecond)
			if _, err := u.Review(ctx, u.callerInFlow(n, 1), listPods()); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a caller who left got error %v, want %v", err, context.DeadlineExceeded)
			}
			leave()
		}
		if s := u.reviews.accepted.Stats(); s.InUse != acceptedSeats/2 || s.Waiting != acceptedSeats/2 {
			t.Errorf("after all callers left: got %d seats in use and %d waiting, want %d each", s.InUse, s.Waiting, acceptedSeats/2)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		wantAllFree(t, u.reviews.accepted)
	})
}

// TestNewcomers: callers who are not accepted yet have separate seats. An address has half of the seats and an eighth of the
// queue, in which questions wait for at most newcomerWait. Callers of other addresses and accepted callers do not wait.
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
			withUpstream(t, tt.delay, ReviewConfig{TTL: time.Hour}, func(t *testing.T, u *reviewRig) {
				var asked sync.WaitGroup
				var refused atomic.Int32
				for n := range tt.callers {
					asked.Go(func() {
						_, err := u.Review(t.Context(), &Caller{Identity: u.caller(n), Flow: limits.Flow{1}}, listPods())
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
				u.wantNoWait(t, &Caller{Identity: u.caller("elsewhere"), Flow: limits.Flow{2}})
				u.wantNoWait(t, known(u.caller("known")))
				asked.Wait()
				expect.Same(t, tt.wantRefused, refused.Load())
				wantAllFree(t, u.reviews.newcomers)
			})
		})
	}
}

// TestLearned: Learn gives a caller the right to repeat a request for the TTL, counted from when the request was sent. No other
// caller, impersonated user or question has the right, and Learn replaces no answer to a later question.
func TestLearned(t *testing.T) {
	const ttl = 10 * time.Second
	token := func(u *reviewRig, name string) Identity { return u.caller(name) }
	verified := func(u *reviewRig, name string) Identity {
		return u.callers.NewVerifiedIdentity(&user.DefaultInfo{Name: name})
	}
	impersonated := func(u *reviewRig, name string) Identity {
		return proxytest.IdentifyAs(u.callers, http.Header{"Impersonate-User": {name}})
	}
	impersonator := func(u *reviewRig, name string) Identity { return impersonated(u, name).Impersonator() }
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
			withUpstream(t, 0, ReviewConfig{TTL: ttl}, func(t *testing.T, u *reviewRig) {
				u.denies.Store(true)
				jane, joe := tt.jane(u, "jane"), tt.joe(u, "joe")
				// wantDecision requires YesByRequest, the decision of a learnt right, or No, which the upstream answers.
				wantDecision := func(want Decision, id Identity, a *Attributes) {
					t.Helper()
					got, err := u.Review(t.Context(), known(id), a)
					expect.NoError(t, err)
					expect.Same(t, want, got.Decision())
					expect.Same(t, want == YesByRequest, u.ValidFor(&got, time.Now()) > 0)
				}
				u.Learn(jane, listPods(), time.Now())
				time.Sleep(ttl - time.Nanosecond)
				wantDecision(YesByRequest, jane, listPods())
				wantDecision(No, jane, other)
				wantDecision(No, joe, listPods())
				time.Sleep(time.Nanosecond)
				wantDecision(No, jane, listPods())
				u.Learn(jane, listPods(), time.Now().Add(-time.Nanosecond)) // sent before the review that has said no
				wantDecision(No, jane, listPods())
			})
		})
	}
}

// TestRightEnds: a yes is valid for the TTL from its question. For the request that asked, it is valid for at least ownAnswerTTL
// from the answer.
func TestRightEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		ttl          time.Duration
		delay        time.Duration // of the answer
		wantValidFor time.Duration // from the answer
	}{
		"answer after a while":       {ttl: 10 * time.Second, delay: 4 * time.Second, wantValidFor: 6 * time.Second},
		"answer just before the TTL": {ttl: 4*time.Second + 1, delay: 4 * time.Second, wantValidFor: ownAnswerTTL},
		"answer after the TTL":       {ttl: 3 * time.Second, delay: 4 * time.Second, wantValidFor: ownAnswerTTL},
		"no TTL":                     {ttl: 0, delay: 4 * time.Second, wantValidFor: ownAnswerTTL},
	} {
		t.Run(name, func(t *testing.T) {
			withUpstream(t, tt.delay, ReviewConfig{TTL: tt.ttl}, func(t *testing.T, u *reviewRig) {
				right, err := u.Review(t.Context(), known(u.caller("a")), listPods())
				expect.NoError(t, err)
				expect.Same(t, tt.wantValidFor, u.ValidFor(&right, time.Now()))
			})
		})
	}
}

// TestLongQuestionsAreNotRemembered: the answer to a question with a key of more than maxKey bytes is not remembered.
func TestLongQuestionsAreNotRemembered(t *testing.T) {
	withUpstream(t, 0, ReviewConfig{TTL: time.Hour}, func(t *testing.T, u *reviewRig) {
		asked := listPods()
		asked.LabelSelector = &authorizationv1.LabelSelectorAttributes{RawSelector: strings.Repeat("x", maxKey)}
		u.wantYes(t, "a", asked)
		u.wantYes(t, "a", asked)
		u.wantRequests(t, 2)
	})
}

// TestDecisionKeys: no two questions have the same key, however their words are divided among the attributes, and no two callers
// have the same key for a question.
func TestDecisionKeys(t *testing.T) {
	var asked []Attributes
	fields := reflect.TypeFor[Attributes]().NumField()
	attributes := func(words []string) Attributes { // with a word for each field
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
			both := slices.Clone(words)
			both[j] += "y" // "xy" in one field, or "x" and "y" in two
			asked = append(asked, attributes(both))
		}
	}
	callers, seen := NewAuthenticator(nil), map[string]string{}
	for _, caller := range []string{"Bearer a", "Bearer b"} {
		for _, a := range asked {
			key, question := decisionKey(proxytest.Identify(callers, caller), &a), fmt.Sprintf("%s: %+v", caller, a)
			if other, ok := seen[key]; ok {
				t.Errorf("%s has the key of %s", question, other)
			}
			seen[key] = question
		}
	}
}
