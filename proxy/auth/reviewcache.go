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
	// maxKey is the length in bytes of the longest key under which an answer is remembered. The answer to a question
	// with a longer one (a very long selector) is only for those who wait for it.
	maxKey = 4 << 10
	// maxRounds is the number of times that a caller asks while each answer is out of date when it comes.
	maxRounds = 3
	// ownAnswerCounts is the time for which an answer is valid, from when it came, for a request that waited for it,
	// even beyond the TTL. Otherwise a TTL of 0, or a slow upstream, would leave no time to use it.
	ownAnswerCounts = time.Second
	// revokedCounts is the time for which an answer is valid, from when it was asked for, once rights were taken away
	// that it may depend on. So under a stream of such changes a question is asked once a second.
	revokedCounts = time.Second
	// maxRevoked is the number of namespaces in which rights may be taken away while answers count. No etcd writes as
	// many.
	maxRevoked = 256 << 10
	// authorizerLag is the time after a right was taken away in which the API servers may still decide by the old
	// state: their authorizers read through informers of their own.
	authorizerLag = time.Second

	// maxAtOnce is the number of seats for questions about accepted callers, and maxWaiting the number of questions
	// that may wait for one. The agents of a DaemonSet are one flow, each with a token and questions of its own: an
	// eighth of this is enough for two thousand nodes.
	maxAtOnce  = 128
	maxWaiting = 16 << 10
	// maxOfNewcomers is the number of seats for questions about all other callers, and newcomersWaiting the number of
	// questions that may wait for one, for newcomerWait. An eighth of this, which one address may have, is enough for
	// the tokens that come back after a restart.
	maxOfNewcomers   = 128
	newcomersWaiting = 4 << 10
	newcomerWait     = time.Second
)

// ErrNoSeat is the error of a question about a caller whom the upstream has not accepted yet, if all seats for such
// questions are taken.
var ErrNoSeat = errors.New("too many callers who are not known yet are being asked about")

// errOvertaken is the error of a caller who has asked maxRounds times, and got no answer that is still valid.
var errOvertaken = errors.New("what the upstream answered was out of date each time")

// ReviewConfig configures an Authorizer or a WhoAmI.
type ReviewConfig struct {
	// TTL is the time for which an answer is valid, counted from when it was asked for. At zero each request asks the
	// upstream.
	TTL time.Duration
	// Timeout bounds one question, with the wait for a seat. Zero means ten seconds.
	Timeout time.Duration
	// AsOf returns the time at which the age of an answer is judged. That is now, or during an outage the time at which
	// the upstream was last heard, for KeptFor at most. An answer may then be twice as old as the TTL, so that a caller
	// who comes regularly is not without one because it has just become too old. Nil stands for now.
	AsOf    func(time.Time) time.Time
	KeptFor time.Duration
}

// Caller is the caller whom a question is about.
type Caller struct {
	Identity Identity
	// Accepted reports whether the upstream is known to accept the caller's credentials. Questions about other callers
	// have separate seats.
	Accepted bool
	// Flow is the flow in whose turn the question is asked.
	Flow limits.Flow
}

// answer is an answer of the upstream with its time of validity: the ttl, from when it was asked for.
type answer[V any] struct {
	value V
	scope scope
	asked time.Time
	ttl   time.Duration
}

// questions asks the upstream, and remembers the answers. Callers with the same question at the same time wait for one
// answer, which comes even if the caller who was first leaves. No answer is used longer than the TTL after it was asked
// for (but see ownAnswerCounts), nor longer than revokedCounts if rights in its scope were taken away since, or less
// than authorizerLag before. It is safe for concurrent use.
type questions[V any] struct {
	ttl, timeout, keptFor time.Duration
	asOf                  func(time.Time) time.Time // nil: now
	// revoked has the time.Time at which rights were last taken away, by namespace; "" stands for all namespaces.
	revoked *cache.LRUExpireCache
	answers *cache.LRUExpireCache // of answer[V]
	flights singleflight.Group
	// accepted and newcomers have the seats. A question has its seat until the answer is there, even if nobody waits
	// for it any more: callers who come and go cannot pile questions up.
	accepted, newcomers *limits.Limiter
	hits, misses        atomic.Uint64
}

// newQuestions returns questions that remember the maxAnswers answers that were used last.
func newQuestions[V any](cfg ReviewConfig, maxAnswers int) *questions[V] {
	q := &questions[V]{
		ttl: cfg.TTL, timeout: cfg.Timeout, keptFor: cfg.KeptFor, asOf: cfg.AsOf,
		revoked: cache.NewLRUExpireCache(maxRevoked), answers: cache.NewLRUExpireCache(maxAnswers),
	}
	if q.timeout <= 0 {
		q.timeout = defaultTimeout
	}
	q.accepted = limits.NewLimiter(limits.LimiterConfig{Capacity: maxAtOnce, MaxWaiting: maxWaiting, MaxWait: q.timeout})
	q.newcomers = limits.NewLimiter(limits.LimiterConfig{Capacity: maxOfNewcomers, MaxWaiting: newcomersWaiting, MaxWait: newcomerWait})
	return q
}

// get returns the remembered answer for key, or the one that ask gets from the upstream. The context of ask does not
// end with ctx. An error is that of ask or of ctx, [ErrNoSeat], an [limits.Overload], or errOvertaken.
func (q *questions[V]) get(
	ctx context.Context, who *Caller, key string, scope scope, ask func(context.Context) (V, error),
) (answer[V], error) {
	began := time.Now()
	if known, ok := q.remembered(key, began); ok {
		q.hits.Add(1)
		return known, nil
	}
	q.misses.Add(1)
	for range maxRounds {
		// Callers share an answer only within a flow, since the question waits for that flow's turn.
		flight := q.flights.DoChan(string(who.Flow[:])+key, func() (any, error) {
			return q.ask(context.WithoutCancel(ctx), who, key, scope, ask)
		})
		select {
		case <-ctx.Done():
			return answer[V]{}, fmt.Errorf("the caller left before the upstream had answered: %w", ctx.Err())
		case result := <-flight:
			if result.Err != nil {
				// There may be no answer because an outage has begun, in which remembered answers are valid for longer.
				if known, ok := q.remembered(key, time.Now()); ok {
					return known, nil
				}
				return answer[V]{}, result.Err
			}
			answered, _ := result.Val.(answer[V])
			now := time.Now()
			if !answered.asked.Before(began) {
				answered.ttl = max(answered.ttl, clock.Age(answered.asked, now)+ownAnswerCounts)
			}
			if q.left(&answered, now) > 0 {
				return answered, nil
			}
		}
	}
	return answer[V]{}, errOvertaken
}

// remembered returns the remembered answer for key, and whether it is valid.
func (q *questions[V]) remembered(key string, now time.Time) (answer[V], bool) {
	value, _ := q.answers.Get(key)
	known, ok := value.(answer[V])
	return known, ok && q.left(&known, now) > 0
}

// left returns the time for which an answer is still valid, 0 if it is not.
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

// revoke notes that rights were taken away in a namespace, or in all if it is "".
func (q *questions[V]) revoke(namespace string) {
	longerThanAnswers := 2*q.ttl + q.timeout + q.keptFor + ownAnswerCounts + authorizerLag
	q.revoked.Add(namespace, time.Now(), longerThanAnswers)
}

// ask waits for a seat, calls ask, and remembers the answer.
func (q *questions[V]) ask(
	ctx context.Context, who *Caller, key string, scope scope, ask func(context.Context) (V, error),
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
	return q.remember(key, answer[V]{value: value, scope: scope, asked: asked, ttl: q.ttl}), nil
}

// remember remembers an answer, unless a later one is remembered, and returns it.
func (q *questions[V]) remember(key string, answered answer[V]) answer[V] {
	known, _ := q.remembered(key, answered.asked)
	if q.ttl > 0 && len(key) <= maxKey && !known.asked.After(answered.asked) {
		q.answers.Add(key, answered, 2*q.ttl+q.keptFor)
	}
	return answered
}

// seat waits for a seat in the turn of the caller's flow. It does not wait long for a caller who is not accepted.
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
