package auth

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/listproxy/listproxy/proxy/limits"
	"github.com/listproxy/listproxy/snapshot/clock"
)

const (
	defaultTimeout = 10 * time.Second
	// maxKey is how long the key of a remembered answer may be, in bytes. The answer to a longer one (a
	// very long selector) serves those who wait for it only.
	maxKey = 4 << 10
	// maxRounds is how often somebody asks because the answer was out of date when it came.
	maxRounds = 3
	// ownAnswerCounts is the time for which an answer is valid, from when it came, for a request that waited for
	// it, even if it is older than the TTL by then: otherwise a TTL of 0, or a slow upstream, would
	// leave no time to use it.
	ownAnswerCounts = time.Second
	// revokedCounts is the time for which an answer is valid, from when it was asked for, once rights were taken away that
	// may be its own: under a stream of such changes it is asked for once a second.
	revokedCounts = time.Second
	// maxRevoked is the number of namespaces in which rights may be taken away while answers count. No etcd writes as many.
	maxRevoked = 256 << 10
	// authorizerLag is the time after a right was taken away in which the API servers may still decide by the old state:
	// their authorizers read through informers of their own.
	authorizerLag = time.Second

	// maxAtOnce is the number of seats for questions about accepted callers, and maxWaiting how many
	// questions may wait for one. The agents of a DaemonSet are one caller, each with a token and questions of
	// its own: an eighth of this is enough for two thousand nodes.
	maxAtOnce  = 128
	maxWaiting = 16 << 10
	// maxOfNewcomers is the number of seats for questions about all other callers, and newcomersWaiting how many
	// questions may wait for one, for newcomerWait: an eighth of these, of one address, is enough for the tokens that
	// come back after a restart.
	maxOfNewcomers   = 128
	newcomersWaiting = 4 << 10
	newcomerWait     = time.Second
)

// ErrNoSeat is the error of a question about a caller who is not known yet, when as many such
// questions are with the upstream, or wait, as may be.
var ErrNoSeat = errors.New("too many callers who are not known yet are being asked about")

// errOvertaken is the end of a wait for an answer that can still be used.
var errOvertaken = errors.New("what the upstream answered was out of date each time")

// ReviewConfig configures an Authorizer or a WhoAmI.
type ReviewConfig struct {
	// TTL is the time for which an answer may be used, counted from when it was asked for. Zero or less: each
	// request asks the upstream.
	TTL time.Duration
	// Timeout bounds one question, the wait for its turn included. Zero means ten seconds.
	Timeout time.Duration
	// AsOf returns the time at which to judge how old an answer is: now, or while nobody answers upstream, when
	// somebody was last heard, for KeptFor at most. Nil: now. An answer may be twice as old then: callers who come
	// again and again would else be without one if it has just become too old.
	AsOf    func(time.Time) time.Time
	KeptFor time.Duration
}

// Caller is who is asked about.
type Caller struct {
	Identity Identity
	// Accepted reports whether the upstream is known to accept the caller's credentials. Questions about all others have seats
	// of their own.
	Accepted bool
	// Flow is the flow that a question counts to.
	Flow limits.Flow
}

// answer is what the upstream said, and for how long that is valid.
type answer[V any] struct {
	value V
	scope scope
	// It counts for the ttl from when it was asked for.
	asked time.Time
	ttl   time.Duration
}

// questions puts questions to the upstream and remembers the answers. Those who want to know the
// same at the same time wait for one answer; it comes for the others even if the one who asked
// leaves. No answer is used longer than the TTL after it was asked for (see ownAnswerCounts), nor longer than
// revokedCounts if rights in its scope were taken away since then, or less than authorizerLag before. It is safe for
// concurrent use.
type questions[V any] struct {
	ttl, timeout, keptFor time.Duration
	asOf                  func(time.Time) time.Time // nil: now
	revoked               *cache.LRUExpireCache     // of time.Time, by namespace: when rights were last taken away there; "" is everywhere
	answers               *cache.LRUExpireCache     // of answer[V]
	flights               singleflight.Group
	// The seats. A question goes on when those who wait for it have gone. So it has a seat of its own, which counts
	// to its flow until the answer is there: callers who come and go cannot pile questions up.
	accepted, newcomers *limits.Limiter
	hits, misses        atomic.Uint64
}

// newQuestions remembers at most so many answers: those that were used last.
func newQuestions[V any](cfg ReviewConfig, answers int) *questions[V] {
	q := &questions[V]{
		ttl: cfg.TTL, timeout: cfg.Timeout, keptFor: cfg.KeptFor, asOf: cfg.AsOf,
		revoked: cache.NewLRUExpireCache(maxRevoked), answers: cache.NewLRUExpireCache(answers),
	}
	if q.timeout <= 0 {
		q.timeout = defaultTimeout
	}
	q.accepted = limits.NewLimiter(limits.LimiterConfig{Capacity: maxAtOnce, MaxWaiting: maxWaiting, MaxWait: q.timeout})
	q.newcomers = limits.NewLimiter(limits.LimiterConfig{Capacity: maxOfNewcomers, MaxWaiting: newcomersWaiting, MaxWait: newcomerWait})
	return q
}

// get returns the answer to the question that key stands for: a remembered one, or what ask gets
// from the upstream. The context of ask does not end with ctx. An error is that of ask or of ctx,
// [ErrNoSeat], an [limits.Overload], or errOvertaken.
func (q *questions[V]) get(
	ctx context.Context, who *Caller, key string, of scope, ask func(context.Context) (V, error),
) (answer[V], error) {
	began := time.Now()
	if known, ok := q.remembered(key, began); ok {
		q.hits.Add(1)
		return known, nil
	}
	q.misses.Add(1)
	for range maxRounds {
		// Only callers of one flow wait for one answer: it waits for the turn of the flow that asked first.
		flight := q.flights.DoChan(string(who.Flow[:])+key, func() (any, error) {
			return q.ask(context.WithoutCancel(ctx), who, key, of, ask)
		})
		select {
		case <-ctx.Done():
			return answer[V]{}, fmt.Errorf("the caller left before the upstream had answered: %w", ctx.Err())
		case result := <-flight:
			if result.Err != nil {
				// It may have got no answer since an outage has begun, in which what is remembered counts for longer.
				if known, ok := q.remembered(key, time.Now()); ok {
					return known, nil
				}
				return answer[V]{}, result.Err
			}
			got, _ := result.Val.(answer[V])
			now := time.Now()
			if !got.asked.Before(began) {
				got.ttl = max(got.ttl, clock.Age(got.asked, now)+ownAnswerCounts)
			}
			if q.valid(&got, now) {
				return got, nil
			}
		}
	}
	return answer[V]{}, errOvertaken
}

// remembered returns the remembered answer for key, if it is valid at now.
func (q *questions[V]) remembered(key string, now time.Time) (answer[V], bool) {
	value, _ := q.answers.Get(key)
	known, ok := value.(answer[V])
	return known, ok && q.valid(&known, now)
}

// valid reports whether an answer may be used at now.
func (q *questions[V]) valid(a *answer[V], now time.Time) bool { return q.left(a, now) > 0 }

// left returns the time that an answer may still be used.
func (q *questions[V]) left(a *answer[V], now time.Time) time.Duration {
	counts := a.ttl
	for _, namespace := range a.scope {
		at, _ := q.revoked.Get(namespace)
		if at, revoked := at.(time.Time); revoked && !at.Before(a.asked.Add(-authorizerLag)) {
			counts = min(counts, revokedCounts)
		}
	}
	if q.asOf != nil {
		if heard := q.asOf(now); heard.Before(now) {
			counts, now = 2*counts, heard
		}
	}
	return max(0, counts-clock.Age(a.asked, now))
}

// revoke says that rights were taken away in a namespace; "": in all.
func (q *questions[V]) revoke(namespace string) {
	q.revoked.Add(namespace, time.Now(), 2*q.ttl+q.timeout+q.keptFor+ownAnswerCounts+authorizerLag) // longer than answers count
}

// ask puts a question when its turn comes, and remembers the answer.
func (q *questions[V]) ask(
	ctx context.Context, who *Caller, key string, of scope, ask func(context.Context) (V, error),
) (answer[V], error) {
	ctx, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	seat, err := q.seat(ctx, who)
	if err != nil {
		return answer[V]{}, err
	}
	defer seat.Release()
	asked := time.Now()
	value, err := ask(ctx)
	if err != nil {
		return answer[V]{}, err
	}
	return q.remember(key, answer[V]{value: value, scope: of, asked: asked, ttl: q.ttl}), nil
}

// remember keeps an answer for who asks next, unless a later one is known.
func (q *questions[V]) remember(key string, got answer[V]) answer[V] {
	known, _ := q.remembered(key, got.asked)
	if q.ttl > 0 && len(key) <= maxKey && !known.asked.After(got.asked) {
		q.answers.Add(key, got, 2*q.ttl+q.keptFor)
	}
	return got
}

// seat waits for the caller's turn to have a question asked; a caller who is not accepted does not wait for long.
func (q *questions[V]) seat(ctx context.Context, who *Caller) (limits.Grant, error) {
	if !who.Accepted {
		seat, err := q.newcomers.Acquire(ctx, who.Flow, 1)
		if err != nil {
			err = ErrNoSeat
		}
		return seat, err
	}
	seat, err := q.accepted.Acquire(ctx, who.Flow, 1)
	if err != nil {
		err = fmt.Errorf("the turn to ask the upstream did not come: %w", err)
	}
	return seat, err
}
