package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
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

// asking runs a test in a bubble with an upstream whose answers take so long.
func asking(t *testing.T, takes time.Duration, cfg ReviewConfig, test func(t *testing.T, u *fakeUpstream)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		u := &fakeUpstream{takes: takes, callers: NewAuthenticator(nil)}
		u.Authorizer = newAuthorizer(t, u.RoundTrip, cfg, proxytest.DiscardLog())
		test(t, u)
	})
}

// caller is somebody of that name.
func (u *fakeUpstream) caller(name any) Identity {
	return proxytest.Identify(u.callers, fmt.Sprint("Bearer ", name))
}

// of is a known caller of that name who has that share.
func (u *fakeUpstream) of(name any, share byte) *Caller {
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
	asking(t, takes, ReviewConfig{TTL: ttl}, func(t *testing.T, u *fakeUpstream) {
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
	cfg := ReviewConfig{TTL: ttl, KeptFor: bound, AsOf: func(now time.Time) time.Time { return outage.AsOf(now, bound) }}
	asking(t, 0, cfg, func(t *testing.T, u *fakeUpstream) {
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

// TestReviewCutByAnOutage: a review that gets no answer since an outage has begun is no reason to forget a yes that counts
// in the outage.
func TestReviewCutByAnOutage(t *testing.T) {
	const ttl = 10 * time.Second
	var begins time.Time
	cfg := ReviewConfig{TTL: ttl, Timeout: 2 * time.Second, KeptFor: time.Minute, AsOf: func(now time.Time) time.Time {
		if !begins.IsZero() && now.After(begins) {
			return begins
		}
		return now
	}}
	asking(t, 0, cfg, func(t *testing.T, u *fakeUpstream) {
		u.wantReview(t, "a", listPods(), true)
		time.Sleep(ttl)
		u.takes, begins = time.Hour, time.Now().Add(time.Second)
		u.wantReview(t, "a", listPods(), true)
		u.wantRequests(t, 2)
	})
}

// TestReviewSlowerThanItsTTL: an answer that took longer than the TTL is old when it comes.
func TestReviewSlowerThanItsTTL(t *testing.T) {
	asking(t, 4*time.Second, ReviewConfig{TTL: 3 * time.Second}, func(t *testing.T, u *fakeUpstream) {
		var all sync.WaitGroup
		all.Go(func() { u.wantReview(t, "a", listPods(), true) }) // asked by itself: as fresh as can be
		time.Sleep(2 * time.Second)
		u.denies.Store(true)
		// This caller joins the review, whose yes is four seconds old when it
		// comes; so it asks again.
		all.Go(func() { u.wantReview(t, "a", listPods(), false) })
		all.Wait()
		u.wantRequests(t, 2)
	})
}

// TestRevocations: once rights are taken away that may be its own, an answer counts for a second from when it was
// asked for; so does what is asked for within another second, while authorizers may not know. What is asked
// for later counts for its TTL, and so does what other namespaces' rights have decided.
func TestRevocations(t *testing.T) {
	pods := func(namespace string) *Attributes {
		return &Attributes{Verb: "list", Version: "v1", Resource: "pods", Namespace: namespace}
	}
	account := func(u *fakeUpstream) *Caller {
		return known(u.callers.OfUser(&user.DefaultInfo{Name: "system:serviceaccount:of-account:a"}))
	}
	ofA := func(u *fakeUpstream) *Caller { return known(u.caller("a")) }
	const ttl = 10 * time.Second
	for name, tt := range map[string]struct {
		who     func(*fakeUpstream) *Caller
		asked   string        // about this namespace
		revoked string        // in this namespace
		after   time.Duration // since the question
		counts  time.Duration
	}{
		"in the namespace":                    {who: ofA, asked: "n", revoked: "n", after: 5 * time.Second, counts: 5 * time.Second},
		"in the namespace, at once":           {who: ofA, asked: "n", revoked: "n", counts: time.Second},
		"in the namespace, soon":              {who: ofA, asked: "n", revoked: "n", after: 300 * time.Millisecond, counts: time.Second},
		"in the namespace, a moment before":   {who: ofA, asked: "n", revoked: "n", after: -authorizerLag, counts: time.Second},
		"in the namespace, before":            {who: ofA, asked: "n", revoked: "n", after: -authorizerLag - 1, counts: ttl},
		"everywhere":                          {who: ofA, asked: "n", after: 5 * time.Second, counts: 5 * time.Second},
		"everywhere, of all namespaces":       {who: ofA, after: 5 * time.Second, counts: 5 * time.Second},
		"in another namespace":                {who: ofA, asked: "n", revoked: "m", after: 5 * time.Second, counts: ttl},
		"in a namespace, of all namespaces":   {who: ofA, revoked: "m", after: 5 * time.Second, counts: ttl},
		"everywhere, of who is named":         {who: account, asked: "n", after: 5 * time.Second, counts: 5 * time.Second},
		"in the namespace of who is named":    {who: account, asked: "n", revoked: "of-account", after: 5 * time.Second, counts: 5 * time.Second},
		"in a namespace of who is not named":  {who: ofA, asked: "n", revoked: "of-account", after: 5 * time.Second, counts: ttl},
		"in another namespace than of who is": {who: account, asked: "n", revoked: "m", after: 5 * time.Second, counts: ttl},
	} {
		t.Run(name, func(t *testing.T) {
			asking(t, 0, ReviewConfig{TTL: ttl}, func(t *testing.T, u *fakeUpstream) {
				time.AfterFunc(time.Hour+tt.after, func() { u.Revoked(tt.revoked) })
				time.Sleep(time.Hour)
				synctest.Wait()
				yes, err := u.Review(t.Context(), tt.who(u), pods(tt.asked))
				expect.NoError(t, err)
				begun := time.Now()
				time.Sleep(max(0, tt.after))
				synctest.Wait()
				for u.Left(&yes, time.Now()) > 0 {
					time.Sleep(u.Left(&yes, time.Now()))
				}
				expect.Same(t, tt.counts, time.Since(begun))
				_, err = u.Review(t.Context(), tt.who(u), pods(tt.asked))
				expect.NoError(t, err)
				questions := int32(1)
				if tt.who(u).Identity.Named() != nil { // whether listproxy may impersonate, too
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
	for takes, want := range map[time.Duration]error{0: nil, revokedCounts - 1: nil, revokedCounts: errOvertaken, 2 * revokedCounts: errOvertaken} {
		for _, ttl := range []time.Duration{0, time.Hour} {
			asking(t, takes, ReviewConfig{TTL: ttl}, func(t *testing.T, u *fakeUpstream) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				go func() {
					for clock.Sleep(ctx, 20*time.Millisecond) {
						u.Revoked("ns")
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
		asking(t, time.Second, ReviewConfig{TTL: ttl}, func(t *testing.T, u *fakeUpstream) {
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
	asking(t, 5*time.Second, ReviewConfig{TTL: time.Minute}, func(t *testing.T, u *fakeUpstream) {
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
	asking(t, time.Minute, ReviewConfig{TTL: time.Hour, Timeout: 30 * time.Second}, func(t *testing.T, u *fakeUpstream) {
		const callers = maxAtOnce + maxWaiting + 10
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
		u.wantRequests(t, maxAtOnce) // none is answered yet
		all.Wait()
		expect.Same(t, []int{10, callers - 10}, []int{int(full.Load()), int(late.Load())})
		expect.Same(t, 30*time.Second, time.Since(began))
		wantNoTurns(t, u.reviews.accepted)
	})
}

// TestReviewOfAnotherShare: whoever asks the same as somebody whose share is used up does not wait
// for that one's turn. So it is with what listproxy's own account is asked for, for all users alike.
func TestReviewOfAnotherShare(t *testing.T) {
	asking(t, time.Second, ReviewConfig{TTL: time.Hour}, func(t *testing.T, u *fakeUpstream) {
		var others sync.WaitGroup
		for n := range maxAtOnce {
			others.Go(func() { _, _ = u.Review(t.Context(), u.of(n, 1), listPods()) })
		}
		synctest.Wait()
		others.Go(func() { _, _ = u.Review(t.Context(), u.of("all", 1), listPods()) })
		synctest.Wait()
		u.wantAlone(t, u.of("all", 2))
		others.Wait()
	})
}

// TestReviewsCountUntilTheyEnd: who leaves has its review go on, and its place held.
func TestReviewsCountUntilTheyEnd(t *testing.T) {
	asking(t, 5*time.Second, ReviewConfig{TTL: time.Hour}, func(t *testing.T, u *fakeUpstream) {
		for n := range maxAtOnce {
			ctx, leave := context.WithTimeout(t.Context(), 20*time.Millisecond)
			if _, err := u.Review(ctx, u.of(n, 1), listPods()); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("who left got %v", err)
			}
			leave()
		}
		if s := u.reviews.accepted.Stats(); s.InUse != maxAtOnce/2 || s.Waiting != maxAtOnce/2 {
			t.Errorf("all have left, and %d places are held, %d wait", s.InUse, s.Waiting)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		wantNoTurns(t, u.reviews.accepted)
	})
}

// TestNewcomers: callers who are not known yet have places of their own, of which one address has half, and wait for one
// for a second at most, an eighth of all who may from one address. Those who are known do not notice.
func TestNewcomers(t *testing.T) {
	const ofOne, waitingOfOne = maxOfNewcomers / 2, newcomersWaiting / 8
	for name, tt := range map[string]struct {
		come                   int
		takes                  time.Duration
		refusedAtOnce, refused int32
	}{
		"as after a restart": {come: 500, takes: 100 * time.Millisecond},
		"too many":           {come: ofOne + waitingOfOne + 10, takes: 100 * time.Millisecond, refusedAtOnce: 10, refused: 10},
		"too slow":           {come: ofOne + waitingOfOne, takes: newcomerWait + time.Second, refused: waitingOfOne},
	} {
		t.Run(name, func(t *testing.T) {
			asking(t, tt.takes, ReviewConfig{TTL: time.Hour}, func(t *testing.T, u *fakeUpstream) {
				var asked sync.WaitGroup
				var refused atomic.Int32
				for n := range tt.come {
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
				expect.Same(t, tt.refusedAtOnce, refused.Load())
				u.wantAlone(t, &Caller{Identity: u.caller("elsewhere"), Flow: limits.Flow{2}})
				u.wantAlone(t, known(u.caller("known")))
				asked.Wait()
				expect.Same(t, tt.refused, refused.Load())
				wantNoTurns(t, u.reviews.newcomers)
			})
		})
	}
}

// TestLearned: what the upstream has done for a caller, as a user perhaps, is remembered of both and of that question
// only, for the TTL from when it was sent. It takes no later answer's place.
func TestLearned(t *testing.T) {
	const ttl = 10 * time.Second
	asking(t, 0, ReviewConfig{TTL: ttl}, func(t *testing.T, u *fakeUpstream) {
		u.denies.Store(true)
		impersonating := func(name string) Identity {
			return proxytest.IdentifyAs(u.callers, http.Header{"Impersonate-User": {name}})
		}
		verified := func(name string) Identity { return u.callers.OfUser(&user.DefaultInfo{Name: name}) }
		want := func(want Decision, id Identity, a *Attributes) {
			t.Helper()
			got, err := u.Review(t.Context(), known(id), a)
			expect.NoError(t, err)
			if left := u.Left(&got, time.Now()) > 0; got.Decision() != want || left != (want == Done) {
				t.Errorf("%v, which counts: %t, want %v", got.Decision(), left, want)
			}
		}
		other := listPods()
		other.Namespace = "other"
		for jane, others := range map[Identity][]Identity{
			verified("jane"): {verified("joe")}, impersonating("jane"): {impersonating("joe"), impersonating("jane").Impersonator()}, u.caller("jane"): {u.caller("joe")},
		} {
			u.Learn(jane, listPods(), time.Now())
			time.Sleep(ttl - time.Nanosecond)
			want(Done, jane, listPods())
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

// TestRightEnds: a yes counts for its TTL from when it was sent for, for who asked a moment in any
// case, and never after a flush.
func TestRightEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		ttl, takes, counts time.Duration
	}{
		"at once":                   {10 * time.Second, 0, 10 * time.Second},
		"after a while":             {10 * time.Second, 4 * time.Second, 6 * time.Second},
		"slower than the TTL":       {3 * time.Second, 4 * time.Second, ownAnswerCounts},
		"with next to nothing left": {4*time.Second + 1, 4 * time.Second, ownAnswerCounts},
		"without a TTL":             {0, 4 * time.Second, ownAnswerCounts},
	} {
		t.Run(name, func(t *testing.T) {
			asking(t, tt.takes, ReviewConfig{TTL: tt.ttl}, func(t *testing.T, u *fakeUpstream) {
				who := known(u.caller("a"))
				yes, err := u.Review(t.Context(), who, listPods())
				expect.NoError(t, err)
				now := time.Now()
				if u.Left(&yes, now) != tt.counts || u.Left(&yes, now.Add(tt.counts-1)) != 1 || u.Left(&yes, now.Add(tt.counts+1)) != 0 {
					t.Errorf("it does not count for %v: %+v", tt.counts, yes)
				}
				if remembered, _ := u.Review(t.Context(), who, listPods()); tt.takes == 0 && remembered.answer != yes.answer {
					t.Errorf("remembered as %+v, it was %+v", remembered, yes)
				}
				if u.Left(&Right{}, now) != 0 {
					t.Error("a no counts")
				}
			})
		})
	}
}

// TestLongQuestionsAreNotRemembered: what is remembered has a bound in bytes.
func TestLongQuestionsAreNotRemembered(t *testing.T) {
	asking(t, 0, ReviewConfig{TTL: time.Hour}, func(t *testing.T, u *fakeUpstream) {
		asked := listPods()
		asked.LabelSelector = strings.Repeat("x", maxKey)
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
	for i := range reflect.TypeFor[Attributes]().NumField() {
		var one Attributes
		reflect.ValueOf(&one).Elem().Field(i).SetString("x")
		asked = append(asked, one)
		for j := range reflect.TypeFor[Attributes]().NumField() {
			two := one
			field := reflect.ValueOf(&two).Elem().Field(j)
			field.SetString(field.String() + "y") // which is "xy" in one field
			asked = append(asked, two)
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
