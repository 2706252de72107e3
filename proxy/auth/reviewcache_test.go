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

// reviewRig is an Authorizer with the upstream that it asks.
type reviewRig struct {
	*Authorizer
	callers *Authenticator

	// The upstream.
	requests atomic.Int32  // reviews that came
	denies   atomic.Bool   // reviews are answered with a no
	delay    time.Duration // from a review to its answer
}

// RoundTrip answers a review as the upstream.
func (u *reviewRig) RoundTrip(r *http.Request) (*http.Response, error) {
	u.requests.Add(1)
	status := authorizationv1.SubjectAccessReviewStatus{Allowed: !u.denies.Load()}
	if u.delay > 0 {
		select {
		case <-time.After(u.delay):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
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

// callerInFlow returns an accepted caller with the token name in a flow.
func (u *reviewRig) callerInFlow(name any, flow byte) *Caller {
	return &Caller{Identity: u.caller(name), Accepted: true, Flow: limits.Flow{flow}}
}

// wantYes asks once, and requires that the answer is a yes.
func (u *reviewRig) wantYes(t *testing.T, name any, a *Attributes) {
	t.Helper()
	if yes, err := u.allowed(t.Context(), u.caller(name), a); err != nil || !yes {
		t.Errorf("got allowed %t and error %v, want a yes", yes, err)
	}
}

// wantNo asks once, and requires that the answer is not a yes.
func (u *reviewRig) wantNo(t *testing.T, name any, a *Attributes) {
	t.Helper()
	if yes, err := u.allowed(t.Context(), u.caller(name), a); err != nil || yes {
		t.Errorf("got allowed %t and error %v, want a no", yes, err)
	}
}

func (u *reviewRig) wantRequests(t *testing.T, want int32) {
	t.Helper()
	expect.Same(t, want, u.requests.Load())
}

// wantNoWait requires that the review for a caller takes no longer than without other callers.
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
		u.wantNo(t, "a", listPods())
		u.wantNo(t, "a", listPods())
		u.wantRequests(t, 2) // a no is remembered, too
	})
}

// TestReviewsInAnOutage: in an outage, an answer stays valid up to MaxOutage if its question was sent within twice the TTL
// before the outage. An older answer becomes invalid with the outage.
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
		u.wantNo(t, "old", listPods())
		time.Sleep(time.Nanosecond)
		u.wantNo(t, "recent", listPods())
		u.wantRequests(t, 4)
	})
}

// TestReviewCutByAnOutage: if a review gets no answer because an outage begins, the remembered answer, which is valid in the
// outage, is used.
func TestReviewCutByAnOutage(t *testing.T) {
	const ttl = 10 * time.Second
	var begins time.Time
	cfg := ReviewConfig{TTL: ttl, Timeout: 2 * time.Second, MaxOutage: time.Minute, AsOf: func(now time.Time) time.Time {
		if !begins.IsZero() && now.After(begins) {
			return begins
		}
		return now
	}}
	withUpstream(t, 0, cfg, func(t *testing.T, u *reviewRig) {
		u.wantYes(t, "a", listPods())
		time.Sleep(ttl)
		u.delay = time.Hour
		begins = time.Now().Add(time.Second)
		u.wantYes(t, "a", listPods())
		u.wantRequests(t, 2)
	})
}

// TestRevocations: after a revocation of rights on which an answer may depend, the answer is valid for revokedTTL from its
// question, even if the question was sent up to authorizerLag later. All other answers are valid for the TTL.
func TestRevocations(t *testing.T) {
	pods := func(namespace string) *Attributes {
		return &Attributes{Verb: "list", Version: "v1", Resource: "pods", Namespace: namespace}
	}
	account := func(u *reviewRig) *Caller {
		return known(u.callers.NewVerifiedIdentity(&user.DefaultInfo{Name: "system:serviceaccount:of-account:a"}))
	}
	token := func(u *reviewRig) *Caller { return known(u.caller("a")) }
	const ttl, later = 10 * time.Second, 5 * time.Second
	const untilRevoked = later // the answer is valid until the revocation
	for name, tt := range map[string]struct {
		caller       func(*reviewRig) *Caller
		asked        string        // the namespace of the question; "": all
		revoked      string        // the namespace of the revocation; "": all
		after        time.Duration // from the question to the revocation; may be negative
		wantValidFor time.Duration // how long the answer is valid
	}{
		"in the namespace":                  {caller: token, asked: "n", revoked: "n", after: later, wantValidFor: untilRevoked},
		"in the namespace, at once":         {caller: token, asked: "n", revoked: "n", wantValidFor: revokedTTL},
		"in the namespace, soon":            {caller: token, asked: "n", revoked: "n", after: 300 * time.Millisecond, wantValidFor: revokedTTL},
		"in the namespace, a moment before": {caller: token, asked: "n", revoked: "n", after: -authorizerLag, wantValidFor: revokedTTL},
		"in the namespace, before":          {caller: token, asked: "n", revoked: "n", after: -authorizerLag - time.Nanosecond, wantValidFor: ttl},
		"everywhere":                        {caller: token, asked: "n", after: later, wantValidFor: untilRevoked},
		"everywhere, of all namespaces":     {caller: token, after: later, wantValidFor: untilRevoked},
		"in another namespace":              {caller: token, asked: "n", revoked: "m", after: later, wantValidFor: ttl},
		"in a namespace, of all namespaces": {caller: token, revoked: "m", after: later, wantValidFor: ttl},
		"everywhere, for an account":        {caller: account, asked: "n", after: later, wantValidFor: untilRevoked},
		"in the namespace of the account": {
			caller: account, asked: "n", revoked: "of-account", after: later, wantValidFor: untilRevoked,
		},
		"in the namespace of an account, for a token": {
			caller: token, asked: "n", revoked: "of-account", after: later, wantValidFor: ttl,
		},
		"in another namespace than the account's": {
			caller: account, asked: "n", revoked: "m", after: later, wantValidFor: ttl,
		},
	} {
		t.Run(name, func(t *testing.T) {
			withUpstream(t, 0, ReviewConfig{TTL: ttl}, func(t *testing.T, u *reviewRig) {
				const start = time.Hour // at which the question is sent, so that the revocation can come before it
				time.AfterFunc(start+tt.after, func() { u.RecordRevocation(tt.revoked) })
				time.Sleep(start)
				synctest.Wait()
				yes, err := u.Review(t.Context(), tt.caller(u), pods(tt.asked))
				expect.NoError(t, err)
				asked := time.Now()
				time.Sleep(max(0, tt.after))
				synctest.Wait()
				for u.ValidFor(&yes, time.Now()) > 0 {
					time.Sleep(u.ValidFor(&yes, time.Now())) // a revocation may shorten it meanwhile
				}
				expect.Same(t, tt.wantValidFor, time.Since(asked))
				_, err = u.Review(t.Context(), tt.caller(u), pods(tt.asked))
				expect.NoError(t, err)
				questions := int32(1)
				if tt.caller(u).Identity.ImpersonatedUser() != nil { // also whether listproxy may impersonate
					questions = 2
				}
				u.wantRequests(t, 2*questions) // once before the revocation, once after
			})
		})
	}
}

// TestRevokedAllDay: while rights of its namespace are revoked all the time, an answer is used for revokedTTL (if there is a
// TTL), so that at most one question a second is sent. An answer that takes revokedTTL or longer is errOutdated.
func TestRevokedAllDay(t *testing.T) {
	const runs = 20 * time.Second
	for name, tt := range map[string]struct {
		delay   time.Duration // of an answer
		wantErr error
	}{
		"at once":                {delay: 0},
		"just before revokedTTL": {delay: revokedTTL - time.Nanosecond},
		"after revokedTTL":       {delay: revokedTTL, wantErr: errOutdated},
		"after twice revokedTTL": {delay: 2 * revokedTTL, wantErr: errOutdated},
	} {
		for _, ttl := range []time.Duration{0, time.Hour} {
			withUpstream(t, tt.delay, ReviewConfig{TTL: ttl}, func(t *testing.T, u *reviewRig) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				go func() {
					for clock.Sleep(ctx, 20*time.Millisecond) {
						u.RecordRevocation("ns")
					}
				}()
				time.Sleep(time.Second)
				begun, lists := time.Now(), 0
				for ; time.Since(begun) < runs; time.Sleep(100 * time.Millisecond) {
					if yes, err := u.allowed(t.Context(), u.caller("a"), listPods()); yes != (tt.wantErr == nil) || !errors.Is(err, tt.wantErr) {
						t.Fatalf("%s, TTL %v: got allowed %t and error %v, want error %v", name, ttl, yes, err, tt.wantErr)
					}
					lists++
				}
				most := int(runs / revokedTTL)
				if got := int(u.requests.Load()); tt.delay == 0 && ttl > 0 && got > most {
					t.Errorf("got %d reviews for %d lists in %v, want at most %d", got, lists, runs, most)
				}
			})
		}
	}
}

// TestReviewFlights: equal questions of a caller at the same time share an answer, with a TTL or without. Questions of another
// caller, and other questions, do not.
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

// TestReviewOutlivesTheCallerWhoWasFirst: if the first of two callers with the same question leaves, it does not wait, and the
// other still gets the answer.
func TestReviewOutlivesTheCallerWhoWasFirst(t *testing.T) {
	withUpstream(t, 5*time.Second, ReviewConfig{TTL: time.Minute}, func(t *testing.T, u *reviewRig) {
		first, leave := context.WithCancel(t.Context())
		began := time.Now()
		var all sync.WaitGroup
		all.Go(func() {
			yes, err := u.allowed(first, u.caller("a"), listPods())
			if waited := time.Since(began); yes || !errors.Is(err, context.Canceled) || waited != time.Second {
				t.Errorf("the first caller got allowed %t and error %v after %v, want %v after a second",
					yes, err, waited, context.Canceled)
			}
		})
		synctest.Wait()
		all.Go(func() { u.wantYes(t, "a", listPods()) })
		time.Sleep(time.Second)
		leave()
		all.Wait()
		expect.Same(t, 5*time.Second, time.Since(began))
		u.wantRequests(t, 1)
	})
}

// TestReviewsAreBounded: of any number of questions, acceptedSeats are in flight, acceptedQueue wait for at most the timeout,
// and the others fail at once.
func TestReviewsAreBounded(t *testing.T) {
	config := ReviewConfig{TTL: time.Hour, Timeout: 30 * time.Second}
	withUpstream(t, time.Minute, config, func(t *testing.T, u *reviewRig) {
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
		expect.Same(t, []int{tooMany, callers - tooMany}, []int{int(full.Load()), int(late.Load())})
		expect.Same(t, 30*time.Second, time.Since(began))
		wantAllFree(t, u.reviews.accepted)
	})
}

// TestReviewInAnotherFlow: a question does not wait for an equal question that waits in the queue of another flow. (For
// example, the questions of listproxy's own account are equal for all users.)
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
		callers                        int
		delay                          time.Duration // of an answer
		wantRefusedAtOnce, wantRefused int32
	}{
		"after a restart": {callers: 500, delay: 100 * time.Millisecond},
		"too many": {
			callers: seats + queue + 10, delay: 100 * time.Millisecond, wantRefusedAtOnce: 10, wantRefused: 10,
		},
		"too slow": {callers: seats + queue, delay: newcomerWait + time.Second, wantRefused: queue},
	} {
		t.Run(name, func(t *testing.T) {
			withUpstream(t, tt.delay, ReviewConfig{TTL: time.Hour}, func(t *testing.T, u *reviewRig) {
				var asked sync.WaitGroup
				var refused atomic.Int32
				for n := range tt.callers {
					asked.Go(func() {
						right, err := u.Review(t.Context(), &Caller{Identity: u.caller(n), Flow: limits.Flow{1}}, listPods())
						if errors.Is(err, ErrNoSeat) {
							refused.Add(1)
						} else if err != nil || right.Decision() != Yes {
							t.Errorf("got %v and error %v, want a yes or ErrNoSeat", right, err)
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

// TestLearned: after Learn, the caller, as that user, has the right for the TTL, counted from when the request was sent. No
// other caller, user or question has it, and it replaces no answer to a later question.
func TestLearned(t *testing.T) {
	const ttl = 10 * time.Second
	withUpstream(t, 0, ReviewConfig{TTL: ttl}, func(t *testing.T, u *reviewRig) {
		u.denies.Store(true)
		impersonating := func(name string) Identity {
			return proxytest.IdentifyAs(u.callers, http.Header{"Impersonate-User": {name}})
		}
		verified := func(name string) Identity { return u.callers.NewVerifiedIdentity(&user.DefaultInfo{Name: name}) }
		// wantDecision requires YesByRequest, the decision of a learnt right, or No, which the upstream answers.
		wantDecision := func(want Decision, id Identity, a *Attributes) {
			t.Helper()
			got, err := u.Review(t.Context(), known(id), a)
			expect.NoError(t, err)
			expect.Same(t, want, got.Decision())
			expect.Same(t, want == YesByRequest, u.ValidFor(&got, time.Now()) > 0)
		}
		other := listPods()
		other.Namespace = "other"
		for _, tt := range []struct {
			jane   Identity
			others []Identity
		}{
			{jane: verified("jane"), others: []Identity{verified("joe")}},
			{jane: impersonating("jane"), others: []Identity{impersonating("joe"), impersonating("jane").Impersonator()}},
			{jane: u.caller("jane"), others: []Identity{u.caller("joe")}},
		} {
			u.Learn(tt.jane, listPods(), time.Now())
			time.Sleep(ttl - time.Nanosecond)
			wantDecision(YesByRequest, tt.jane, listPods())
			wantDecision(No, tt.jane, other)
			for _, id := range tt.others {
				wantDecision(No, id, listPods())
			}
			time.Sleep(time.Nanosecond)
			wantDecision(No, tt.jane, listPods())
			u.Learn(tt.jane, listPods(), time.Now().Add(-time.Nanosecond)) // sent before the review that has said no
			wantDecision(No, tt.jane, listPods())
		}
	})
}

// TestRightEnds: a yes is valid for the TTL from its question, and at least for ownAnswerTTL for the request that asked.
func TestRightEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		ttl          time.Duration
		delay        time.Duration // of the answer
		wantValidFor time.Duration
	}{
		"answer at once":             {ttl: 10 * time.Second, delay: 0, wantValidFor: 10 * time.Second},
		"answer after a while":       {ttl: 10 * time.Second, delay: 4 * time.Second, wantValidFor: 6 * time.Second},
		"answer after the TTL":       {ttl: 3 * time.Second, delay: 4 * time.Second, wantValidFor: ownAnswerTTL},
		"answer just before the TTL": {ttl: 4*time.Second + 1, delay: 4 * time.Second, wantValidFor: ownAnswerTTL},
		"no TTL":                     {ttl: 0, delay: 4 * time.Second, wantValidFor: ownAnswerTTL},
	} {
		t.Run(name, func(t *testing.T) {
			withUpstream(t, tt.delay, ReviewConfig{TTL: tt.ttl}, func(t *testing.T, u *reviewRig) {
				who := known(u.caller("a"))
				yes, err := u.Review(t.Context(), who, listPods())
				expect.NoError(t, err)
				now := time.Now()
				for after, want := range map[time.Duration]time.Duration{
					0: tt.wantValidFor, tt.wantValidFor - 1: 1, tt.wantValidFor + 1: 0,
				} {
					if got := u.ValidFor(&yes, now.Add(after)); got != want {
						t.Errorf("after %v: valid for %v, want %v", after, got, want)
					}
				}
			})
		})
	}
}

// TestLongQuestionsAreNotRemembered: the answer to a question with a key of more than maxKey bytes is not remembered.
func TestLongQuestionsAreNotRemembered(t *testing.T) {
	withUpstream(t, 0, ReviewConfig{TTL: time.Hour}, func(t *testing.T, u *reviewRig) {
		asked := listPods()
		asked.LabelSelector = &authorizationv1.LabelSelectorAttributes{RawSelector: strings.Repeat("x", maxKey)}
		for range 2 {
			u.wantYes(t, "a", asked)
		}
		u.wantRequests(t, 2)
		expect.Same(t, 0, len(u.reviews.answers.Keys()))
	})
}

// TestDecisionKeys: no two questions have the same key, wherever their words are divided, nor have two callers.
func TestDecisionKeys(t *testing.T) {
	var asked []Attributes
	fields := reflect.TypeFor[Attributes]().NumField()
	attributes := func(words []string) Attributes { // a new field needs a word here
		return Attributes{
			Verb: words[0], Group: words[1], Version: words[2], Resource: words[3], Subresource: words[4], Namespace: words[5], Name: words[6],
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
