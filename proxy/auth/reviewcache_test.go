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

// fakeUpstream is an upstream in memory whose answers take as long as they are told to, and what asks it.
type fakeUpstream struct {
	*Authorizer
	callers  *Authenticator
	requests atomic.Int32
	denies   atomic.Bool
	takes    time.Duration
}

func (u *fakeUpstream) RoundTrip(r *http.Request) (*http.Response, error) {
	u.requests.Add(1)
	status := authorizationv1.SubjectAccessReviewStatus{Allowed: !u.denies.Load()}
	if u.takes > 0 {
		select {
		case <-time.After(u.takes):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	return proxytest.AnswerReview(r, status)
}

// withUpstream runs a test in a bubble with an upstream whose answers take so long.
func withUpstream(t *testing.T, takes time.Duration, cfg ReviewConfig, test func(t *testing.T, u *fakeUpstream)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		u := &fakeUpstream{takes: takes, callers: NewAuthenticator(nil)}
		u.Authorizer = newAuthorizer(t, u.RoundTrip, cfg)
		test(t, u)
	})
}

// caller is the identity of a token of that name.
func (u *fakeUpstream) caller(name any) Identity {
	return proxytest.Identify(u.callers, fmt.Sprint("Bearer ", name))
}

// callerInFlow is a known caller of that name in a flow.
func (u *fakeUpstream) callerInFlow(name any, share byte) *Caller {
	return &Caller{Identity: u.caller(name), Accepted: true, Flow: limits.Flow{share}}
}

// wantReview asks once and compares.
func (u *fakeUpstream) wantReview(t *testing.T, name any, a *Attributes, want bool) {
	t.Helper()
	if got, err := u.allowed(t.Context(), u.caller(name), a); err != nil || got != want {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

func (u *fakeUpstream) wantRequests(t *testing.T, want int32) {
	t.Helper()
	expect.Same(t, want, u.requests.Load())
}

// wantAlone wants a review that somebody new asks for to take no longer than if there were nobody else.
func (u *fakeUpstream) wantAlone(t *testing.T, who *Caller) {
	t.Helper()
	began := time.Now()
	yes, err := u.Review(t.Context(), who, listPods())
	if waited := time.Since(began); waited != u.takes || err != nil || yes.Decision() != Yes {
		t.Errorf("it took %v, alone it is %v: %v, %v", waited, u.takes, yes, err)
	}
}

// wantNoTurns wants all places for questions to be free.
func wantNoTurns(t *testing.T, turns *limits.Limiter) {
	t.Helper()
	if s := turns.Stats(); s.InUse != 0 || s.Waiting != 0 {
		t.Errorf("places not given back: %+v", s)
	}
}

// TestReviewTTL: a yes, or a no, counts until the TTL is over, from when it was asked for.
func TestReviewTTL(t *testing.T) {
	const ttl, takes = 10 * time.Second, 4 * time.Second
	withUpstream(t, takes, ReviewConfig{TTL: ttl}, func(t *testing.T, u *fakeUpstream) {
		u.wantReview(t, "a", listPods(), true)
		// The right is taken away as soon as the answer is on its way. The age
		// of a decision counts from when it was asked for.
		u.denies.Store(true)
		time.Sleep(ttl - takes - time.Nanosecond)
		u.wantReview(t, "a", listPods(), true)
		u.wantRequests(t, 1)
		time.Sleep(time.Nanosecond)
		u.wantReview(t, "a", listPods(), false)
		u.wantReview(t, "a", listPods(), false)
		u.wantRequests(t, 2) // a no is remembered, too
	})
}

// TestReviewsInAnOutage: while nobody answers, a yes counts for a bounded time that was asked for within twice the TTL
// before somebody was last heard. One that is older does not.
func TestReviewsInAnOutage(t *testing.T) {
	const ttl, bound = 10 * time.Second, 90 * time.Second
	var outage clock.Outage
	cfg := ReviewConfig{TTL: ttl, MaxOutage: bound, AsOf: func(now time.Time) time.Time { return outage.AsOf(now, bound) }}
	withUpstream(t, 0, cfg, func(t *testing.T, u *fakeUpstream) {
		outage = clock.Outage{}
		u.wantReview(t, "old", listPods(), true)
		time.Sleep(time.Nanosecond)
		u.wantReview(t, "a", listPods(), true)
		time.Sleep(2*ttl - time.Nanosecond)
		u.denies.Store(true)
		outage = clock.Outage{Lasts: true, Heard: time.Now()}
		time.Sleep(bound - time.Nanosecond)
		u.wantReview(t, "a", listPods(), true)
		u.wantRequests(t, 2)
		u.wantReview(t, "old", listPods(), false)
		time.Sleep(time.Nanosecond)
		u.wantReview(t, "a", listPods(), false)
		u.wantRequests(t, 4)
	})
}

// TestReviewCutByAnOutage: a review without an answer, since an outage has begun, does not end a yes that counts in the
// outage.
func TestReviewCutByAnOutage(t *testing.T) {
	const ttl = 10 * time.Second
	var begins time.Time
	cfg := ReviewConfig{TTL: ttl, Timeout: 2 * time.Second, MaxOutage: time.Minute, AsOf: func(now time.Time) time.Time {
		if !begins.IsZero() && now.After(begins) {
			return begins
		}
		return now
	}}
	withUpstream(t, 0, cfg, func(t *testing.T, u *fakeUpstream) {
		u.wantReview(t, "a", listPods(), true)
		time.Sleep(ttl)
		u.takes, begins = time.Hour, time.Now().Add(time.Second)
		u.wantReview(t, "a", listPods(), true)
		u.wantRequests(t, 2)
	})
}

// TestRevocations: where a right is taken away on which a yes may rest, the yes counts for a second from its question;
// so does that to a question within another second, while authorizers may not know. All others count for the TTL.
func TestRevocations(t *testing.T) {
	pods := func(namespace string) *Attributes {
		return &Attributes{Verb: "list", Version: "v1", Resource: "pods", Namespace: namespace}
	}
	account := func(u *fakeUpstream) *Caller {
		return known(u.callers.OfUser(&user.DefaultInfo{Name: "system:serviceaccount:of-account:a"}))
	}
	token := func(u *fakeUpstream) *Caller { return known(u.caller("a")) }
	const ttl, later = 10 * time.Second, 5 * time.Second
	for name, tt := range map[string]struct {
		caller     func(*fakeUpstream) *Caller
		asked      string        // the namespace that the question is about; "": all
		revoked    string        // the namespace of the right; "": of all
		after      time.Duration // the question, or before it
		wantCounts time.Duration // for so long the answer counts
	}{
		"in the namespace":                  {caller: token, asked: "n", revoked: "n", after: later, wantCounts: later},
		"in the namespace, at once":         {caller: token, asked: "n", revoked: "n", wantCounts: time.Second},
		"in the namespace, soon":            {caller: token, asked: "n", revoked: "n", after: 300 * time.Millisecond, wantCounts: time.Second},
		"in the namespace, a moment before": {caller: token, asked: "n", revoked: "n", after: -authorizerLag, wantCounts: time.Second},
		"in the namespace, before":          {caller: token, asked: "n", revoked: "n", after: -authorizerLag - 1, wantCounts: ttl},
		"everywhere":                        {caller: token, asked: "n", after: later, wantCounts: later},
		"everywhere, of all namespaces":     {caller: token, after: later, wantCounts: later},
		"in another namespace":              {caller: token, asked: "n", revoked: "m", after: later, wantCounts: ttl},
		"in a namespace, of all namespaces": {caller: token, revoked: "m", after: later, wantCounts: ttl},
		"everywhere, for an account":        {caller: account, asked: "n", after: later, wantCounts: later},
		"in the namespace of the account": {
			caller: account, asked: "n", revoked: "of-account", after: later, wantCounts: later,
		},
		"in the namespace of an account, for a token": {
			caller: token, asked: "n", revoked: "of-account", after: later, wantCounts: ttl,
		},
		"in another namespace than the account's": {
			caller: account, asked: "n", revoked: "m", after: later, wantCounts: ttl,
		},
	} {
		t.Run(name, func(t *testing.T) {
			withUpstream(t, 0, ReviewConfig{TTL: ttl}, func(t *testing.T, u *fakeUpstream) {
				time.AfterFunc(time.Hour+tt.after, func() { u.RecordRevocation(tt.revoked) })
				time.Sleep(time.Hour)
				synctest.Wait()
				yes, err := u.Review(t.Context(), tt.caller(u), pods(tt.asked))
				expect.NoError(t, err)
				begun := time.Now()
				time.Sleep(max(0, tt.after))
				synctest.Wait()
				for u.ValidFor(&yes, time.Now()) > 0 {
					time.Sleep(u.ValidFor(&yes, time.Now()))
				}
				expect.Same(t, tt.wantCounts, time.Since(begun))
				_, err = u.Review(t.Context(), tt.caller(u), pods(tt.asked))
				expect.NoError(t, err)
				questions := int32(1)
				if tt.caller(u).Identity.Named() != nil { // whether listproxy may impersonate, too
					questions = 2
				}
				u.wantRequests(t, 2*questions)
			})
		})
	}
}

// TestRevokedAllDay: while rights of its own namespace are taken away all the time, an answer is asked for once a
// second, and one that takes longer than that cannot be used.
func TestRevokedAllDay(t *testing.T) {
	for takes, want := range map[time.Duration]error{
		0: nil, revokedTTL - 1: nil, revokedTTL: errOutdated, 2 * revokedTTL: errOutdated,
	} {
		for _, ttl := range []time.Duration{0, time.Hour} {
			withUpstream(t, takes, ReviewConfig{TTL: ttl}, func(t *testing.T, u *fakeUpstream) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				go func() {
					for clock.Sleep(ctx, 20*time.Millisecond) {
						u.RecordRevocation("ns")
					}
				}()
				time.Sleep(time.Second)
				begun, lists := time.Now(), 0
				for ; time.Since(begun) < 20*time.Second; time.Sleep(100 * time.Millisecond) {
					if yes, err := u.allowed(t.Context(), u.caller("a"), listPods()); yes != (want == nil) || !errors.Is(err, want) {
						t.Fatalf("reviews take %v, TTL %v: %v, %v", takes, ttl, yes, err)
					}
					lists++
				}
				if asked := int(u.requests.Load()); takes == 0 && ttl > 0 && asked > 20 {
					t.Errorf("%d reviews of %d lists", asked, lists)
				}
			})
		}
	}
}

// TestReviewFlights: who comes at the same moment with the same question shares an answer, with a TTL or
// without; no other caller does, nor another question.
func TestReviewFlights(t *testing.T) {
	for _, ttl := range []time.Duration{0, time.Minute} {
		withUpstream(t, time.Second, ReviewConfig{TTL: ttl}, func(t *testing.T, u *fakeUpstream) {
			other := listPods()
			other.Namespace = "other"
			var all sync.WaitGroup
			for range 50 {
				for _, name := range []string{"a", "b"} {
					all.Go(func() { u.wantReview(t, name, listPods(), true) })
					all.Go(func() { u.wantReview(t, name, other, true) })
				}
			}
			all.Wait()
			u.wantRequests(t, 4)
		})
	}
}

// TestReviewOutlivesTheCallerWhoWasFirst: the caller who was first and leaves takes nobody else's answer away, and the
// one who leaves does not wait.
func TestReviewOutlivesTheCallerWhoWasFirst(t *testing.T) {
	withUpstream(t, 5*time.Second, ReviewConfig{TTL: time.Minute}, func(t *testing.T, u *fakeUpstream) {
		first, leave := context.WithCancel(t.Context())
		began := time.Now()
		var all sync.WaitGroup
		all.Go(func() {
			yes, err := u.allowed(first, u.caller("a"), listPods())
			if waited := time.Since(began); yes || !errors.Is(err, context.Canceled) || waited != time.Second {
				t.Errorf("the first left after %v: %v, %v", waited, yes, err)
			}
		})
		synctest.Wait()
		all.Go(func() { u.wantReview(t, "a", listPods(), true) })
		time.Sleep(time.Second)
		leave()
		all.Wait()
		expect.Same(t, 5*time.Second, time.Since(began))
		u.wantRequests(t, 1)
	})
}

// TestReviewsAreBounded: however many ask at once, the upstream sees a bounded number at a time, the
// next wait their turn, and the rest is turned away. Nobody waits for longer than the timeout.
func TestReviewsAreBounded(t *testing.T) {
	config := ReviewConfig{TTL: time.Hour, Timeout: 30 * time.Second}
	withUpstream(t, time.Minute, config, func(t *testing.T, u *fakeUpstream) {
		const callers = acceptedSeats + acceptedQueue + 10
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
		u.wantRequests(t, acceptedSeats) // none is answered yet
		all.Wait()
		expect.Same(t, []int{10, callers - 10}, []int{int(full.Load()), int(late.Load())})
		expect.Same(t, 30*time.Second, time.Since(began))
		wantNoTurns(t, u.reviews.accepted)
	})
}

// TestReviewOfAnotherShare: whoever asks the same as somebody whose share is used up does not wait
// for that one's turn. So it is with what listproxy's own account is asked for, for all users alike.
func TestReviewOfAnotherShare(t *testing.T) {
	withUpstream(t, time.Second, ReviewConfig{TTL: time.Hour}, func(t *testing.T, u *fakeUpstream) {
		var others sync.WaitGroup
		for n := range acceptedSeats {
			others.Go(func() { _, _ = u.Review(t.Context(), u.callerInFlow(n, 1), listPods()) })
		}
		synctest.Wait()
		others.Go(func() { _, _ = u.Review(t.Context(), u.callerInFlow("all", 1), listPods()) })
		synctest.Wait()
		u.wantAlone(t, u.callerInFlow("all", 2))
		others.Wait()
	})
}

// TestReviewsCountUntilTheyEnd: the review of a caller who leaves goes on, and keeps its place.
func TestReviewsCountUntilTheyEnd(t *testing.T) {
	withUpstream(t, 5*time.Second, ReviewConfig{TTL: time.Hour}, func(t *testing.T, u *fakeUpstream) {
		for n := range acceptedSeats {
			ctx, leave := context.WithTimeout(t.Context(), 20*time.Millisecond)
			if _, err := u.Review(ctx, u.callerInFlow(n, 1), listPods()); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a caller who left got %v, want %v", err, context.DeadlineExceeded)
			}
			leave()
		}
		if s := u.reviews.accepted.Stats(); s.InUse != acceptedSeats/2 || s.Waiting != acceptedSeats/2 {
			t.Errorf("all have left, and %d places are held, %d wait", s.InUse, s.Waiting)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		wantNoTurns(t, u.reviews.accepted)
	})
}

// TestNewcomers: callers who are not known yet have places of their own. One address has half of them, and an eighth of
// those who may wait, for a second at most. Callers who are known do not notice.
func TestNewcomers(t *testing.T) {
	const ofOne, waitingOfOne = newcomerSeats / 2, newcomerQueue / 8
	for name, tt := range map[string]struct {
		callers                        int
		takes                          time.Duration // a review
		wantRefusedAtOnce, wantRefused int32
	}{
		"as after a restart": {callers: 500, takes: 100 * time.Millisecond},
		"too many": {
			callers: ofOne + waitingOfOne + 10, takes: 100 * time.Millisecond, wantRefusedAtOnce: 10, wantRefused: 10,
		},
		"too slow": {callers: ofOne + waitingOfOne, takes: newcomerWait + time.Second, wantRefused: waitingOfOne},
	} {
		t.Run(name, func(t *testing.T) {
			withUpstream(t, tt.takes, ReviewConfig{TTL: time.Hour}, func(t *testing.T, u *fakeUpstream) {
				var asked sync.WaitGroup
				var refused atomic.Int32
				for n := range tt.callers {
					asked.Go(func() {
						right, err := u.Review(t.Context(), &Caller{Identity: u.caller(n), Flow: limits.Flow{1}}, listPods())
						if errors.Is(err, ErrNoSeat) {
							refused.Add(1)
						} else if err != nil || right.Decision() != Yes {
							t.Errorf("got %v, %v", right, err)
						}
					})
				}
				synctest.Wait()
				expect.Same(t, tt.wantRefusedAtOnce, refused.Load())
				u.wantAlone(t, &Caller{Identity: u.caller("elsewhere"), Flow: limits.Flow{2}})
				u.wantAlone(t, known(u.caller("known")))
				asked.Wait()
				expect.Same(t, tt.wantRefused, refused.Load())
				wantNoTurns(t, u.reviews.newcomers)
			})
		})
	}
}

// TestLearned: that the upstream has done something for a caller counts as a yes for that caller, as that user, and to
// that question only, for the TTL from when it was sent. It replaces no later answer.
func TestLearned(t *testing.T) {
	const ttl = 10 * time.Second
	withUpstream(t, 0, ReviewConfig{TTL: ttl}, func(t *testing.T, u *fakeUpstream) {
		u.denies.Store(true)
		impersonating := func(name string) Identity {
			return proxytest.IdentifyAs(u.callers, http.Header{"Impersonate-User": {name}})
		}
		verified := func(name string) Identity { return u.callers.OfUser(&user.DefaultInfo{Name: name}) }
		want := func(want Decision, id Identity, a *Attributes) {
			t.Helper()
			got, err := u.Review(t.Context(), known(id), a)
			expect.NoError(t, err)
			if left := u.ValidFor(&got, time.Now()) > 0; got.Decision() != want || left != (want == AlreadyDone) {
				t.Errorf("%v, which counts: %t, want %v", got.Decision(), left, want)
			}
		}
		other := listPods()
		other.Namespace = "other"
		for jane, others := range map[Identity][]Identity{
			verified("jane"):      {verified("joe")},
			impersonating("jane"): {impersonating("joe"), impersonating("jane").Impersonator()},
			u.caller("jane"):      {u.caller("joe")},
		} {
			u.Learn(jane, listPods(), time.Now())
			time.Sleep(ttl - time.Nanosecond)
			want(AlreadyDone, jane, listPods())
			want(No, jane, other)
			for _, id := range others {
				want(No, id, listPods())
			}
			time.Sleep(time.Nanosecond)
			want(No, jane, listPods())
			u.Learn(jane, listPods(), time.Now().Add(-time.Nanosecond)) // sent before the review that has said no
			want(No, jane, listPods())
		}
	})
}

// TestRightEnds: a yes counts for its TTL from its question, and for a moment in any case for the caller who asked.
func TestRightEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		ttl, takes time.Duration
		wantCounts time.Duration
	}{
		"at once":                   {ttl: 10 * time.Second, takes: 0, wantCounts: 10 * time.Second},
		"after a while":             {ttl: 10 * time.Second, takes: 4 * time.Second, wantCounts: 6 * time.Second},
		"slower than the TTL":       {ttl: 3 * time.Second, takes: 4 * time.Second, wantCounts: ownAnswerTTL},
		"with next to nothing left": {ttl: 4*time.Second + 1, takes: 4 * time.Second, wantCounts: ownAnswerTTL},
		"without a TTL":             {ttl: 0, takes: 4 * time.Second, wantCounts: ownAnswerTTL},
	} {
		t.Run(name, func(t *testing.T) {
			withUpstream(t, tt.takes, ReviewConfig{TTL: tt.ttl}, func(t *testing.T, u *fakeUpstream) {
				who := known(u.caller("a"))
				yes, err := u.Review(t.Context(), who, listPods())
				expect.NoError(t, err)
				now := time.Now()
				for after, want := range map[time.Duration]time.Duration{0: tt.wantCounts, tt.wantCounts - 1: 1, tt.wantCounts + 1: 0} {
					if left := u.ValidFor(&yes, now.Add(after)); left != want {
						t.Errorf("after %v it counts for %v, want %v", after, left, want)
					}
				}
				if remembered, _ := u.Review(t.Context(), who, listPods()); tt.takes == 0 && remembered.answer != yes.answer {
					t.Errorf("remembered as %+v, it was %+v", remembered, yes)
				}
				if u.ValidFor(&Right{}, now) != 0 {
					t.Error("a no counts")
				}
			})
		})
	}
}

// TestLongQuestionsAreNotRemembered: what is remembered has a bound in bytes.
func TestLongQuestionsAreNotRemembered(t *testing.T) {
	withUpstream(t, 0, ReviewConfig{TTL: time.Hour}, func(t *testing.T, u *fakeUpstream) {
		asked := listPods()
		asked.LabelSelector = &authorizationv1.LabelSelectorAttributes{RawSelector: strings.Repeat("x", maxKey)}
		for range 2 {
			u.wantReview(t, "a", asked, true)
		}
		u.wantRequests(t, 2)
		expect.Same(t, 0, len(u.reviews.answers.Keys()))
	})
}

// TestDecisionKeys: no two questions have one key, wherever their words are cut, nor have two callers.
func TestDecisionKeys(t *testing.T) {
	var asked []Attributes
	attributes := func(words []string) Attributes {
		return Attributes{
			Verb: words[0], Group: words[1], Version: words[2], Resource: words[3], Subresource: words[4], Namespace: words[5], Name: words[6],
			LabelSelector: &authorizationv1.LabelSelectorAttributes{RawSelector: words[7]},
			FieldSelector: &authorizationv1.FieldSelectorAttributes{RawSelector: words[8]},
		}
	}
	for i := range reflect.TypeFor[Attributes]().NumField() {
		words := make([]string, reflect.TypeFor[Attributes]().NumField())
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
