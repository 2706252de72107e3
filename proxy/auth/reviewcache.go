package auth

import (
	"cmp"
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
	// maxKey bounds the length, in bytes, of a key under which an answer is remembered. Only the key of a question with a
	// very long selector is longer.
	maxKey = 4 << 10
	// maxAttempts bounds how often a request asks until it gets an answer that is still valid.
	maxAttempts = 3
	// ownAnswerTTL is how long after its arrival an answer may be used by a request for which the question was sent, even if the
	// TTL is over. Otherwise a TTL of 0, or a slow upstream, would leave no time.
	ownAnswerTTL = time.Second
	// revokedTTL bounds the TTL of an answer if rights on which it may depend were revoked. So while revocations go on and on, a
	// question is asked once a second.
	revokedTTL = time.Second
	// maxRevoked bounds the number of namespaces whose last revocation is remembered. etcd cannot write as many while answers
	// are valid.
	maxRevoked = 256 << 10
	// authorizerLag is the time after a revocation in which an API server may still decide by the old state, since its
	// authorizers read from informers.
	authorizerLag = time.Second

	// acceptedSeats is the number of questions about accepted callers that may be in flight, and acceptedQueue the number
	// that may wait. A flow may take an eighth of the queue. The agents of a DaemonSet are one flow, each with its own token
	// and questions: an eighth is enough for two thousand nodes.
	acceptedSeats = 128
	acceptedQueue = 16 << 10
	// newcomerSeats, newcomerQueue and newcomerWait are the bounds for questions about all other callers. An address may
	// take an eighth of the queue, which is enough for the tokens that come back after a restart.
	newcomerSeats = 128
	newcomerQueue = 4 << 10
	newcomerWait  = time.Second
)

// ErrNoSeat means that a question about a caller whom the upstream has not accepted yet got no seat within newcomerWait.
var ErrNoSeat = errors.New("too many callers who are not known yet are being asked about")

// errOutdated means that a request has asked maxAttempts times, and got no answer that was still valid.
var errOutdated = errors.New("what the upstream answered was out of date each time")

// ReviewConfig configures an Authorizer or a WhoAmI.
type ReviewConfig struct {
	// TTL is the time for which an answer is valid, counted from the question. If it is 0, every request asks the upstream.
	TTL time.Duration
	// Timeout bounds the time for one question, including the wait for a seat. Zero means ten seconds.
	Timeout time.Duration
	// AsOf returns the time at which the age of answers is measured: now; or, for the first MaxOutage of an outage, the time
	// at which the upstream last answered. If AsOf is nil, answers always age.
	AsOf      func(now time.Time) time.Time
	MaxOutage time.Duration
}

// Caller is the caller whom a question is about.
type Caller struct {
	Identity Identity
	// Accepted reports whether the upstream is known to accept the caller's credentials. Questions about other callers
	// have separate seats.
	Accepted bool
	// Flow is the flow that pays for the question's seat.
	Flow limits.Flow
}

// answer is an answer of the upstream to a question that was sent at the time asked. See validFor.
type answer[V any] struct {
	value V
	scope scope
	asked time.Time
	ttl   time.Duration
}

// question is a question to the upstream about a caller.
type question[V any] struct {
	who *Caller
	// key is the key under which the answer is remembered.
	key   string
	scope scope
	// send asks the upstream.
	send func(context.Context) (V, error)
}

// reviewCache asks the upstream, and remembers the answers. Requests of one flow that ask the same question at the same time
// share one question to the upstream, which goes on even if the request that began it is over. A reviewCache is safe for
// concurrent use.
type reviewCache[V any] struct {
	ReviewConfig
	// revoked has the time.Time of the last revocation by namespace; "" stands for all namespaces.
	revoked *cache.LRUExpireCache
	// answers has each answer[V] by its key.
	answers *cache.LRUExpireCache
	flights singleflight.Group
	// accepted and newcomers have the seats. A question keeps its seat until its answer comes, even if no request waits for
	// the answer any more. Otherwise callers who come and go could have any number of questions in flight.
	accepted, newcomers *limits.Limiter
	hits, misses        atomic.Uint64
}

// newReviewCache returns a reviewCache that remembers the maxAnswers answers that were used last.
func newReviewCache[V any](cfg ReviewConfig, maxAnswers int) *reviewCache[V] {
	cfg.Timeout = cmp.Or(cfg.Timeout, defaultTimeout)
	return &reviewCache[V]{
		ReviewConfig: cfg,
		revoked:      cache.NewLRUExpireCache(maxRevoked),
		answers:      cache.NewLRUExpireCache(maxAnswers),
		accepted:     limits.NewLimiter(limits.LimiterConfig{Capacity: acceptedSeats, MaxWaiting: acceptedQueue, MaxWait: cfg.Timeout}),
		newcomers:    limits.NewLimiter(limits.LimiterConfig{Capacity: newcomerSeats, MaxWaiting: newcomerQueue, MaxWait: newcomerWait}),
	}
}

// get returns the remembered answer to a question, or asks the upstream. The context of q.send does not end with ctx. The
// error is from q.send or ctx, or is [ErrNoSeat], a [limits.Overload] or errOutdated.
func (c *reviewCache[V]) get(ctx context.Context, q question[V]) (answer[V], error) {
	began := time.Now()
	if known, ok := c.remembered(q.key, began); ok {
		c.hits.Add(1)
		return known, nil
	}
	c.misses.Add(1)
	for range maxAttempts {
		fresh, err := c.await(ctx, q)
		now := time.Now()
		if err != nil {
			// Perhaps an outage has begun, in which remembered answers are valid for longer.
			if known, ok := c.remembered(q.key, now); ok {
				return known, nil
			}
			return answer[V]{}, err
		}
		if !fresh.asked.Before(began) { // the question was sent for this request
			fresh.ttl = max(fresh.ttl, clock.Age(fresh.asked, now)+ownAnswerTTL)
		}
		if c.validFor(&fresh, now) > 0 {
			return fresh, nil
		}
	}
	return answer[V]{}, errOutdated
}

// await waits for the upstream's answer to a question, and asks it unless it is in flight.
func (c *reviewCache[V]) await(ctx context.Context, q question[V]) (answer[V], error) {
	// Only requests of one flow share a question, since the question waits for a seat in that flow's turn.
	flight := c.flights.DoChan(string(q.who.Flow[:])+q.key, func() (any, error) {
		return c.ask(context.WithoutCancel(ctx), q)
	})
	select {
	case <-ctx.Done():
		return answer[V]{}, fmt.Errorf("the caller left before the upstream had answered: %w", ctx.Err())
	case result := <-flight:
		fresh, _ := result.Val.(answer[V])
		return fresh, result.Err
	}
}

// ask waits for a seat, asks the upstream, and remembers the answer.
func (c *reviewCache[V]) ask(ctx context.Context, q question[V]) (answer[V], error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	seat, err := c.acquireSeat(ctx, q.who)
	if err != nil {
		return answer[V]{}, err
	}
	defer seat.Release()
	asked := time.Now()
	value, err := q.send(ctx)
	if err != nil {
		return answer[V]{}, err
	}
	a := answer[V]{value: value, scope: q.scope, asked: asked, ttl: c.TTL}
	c.remember(q.key, a)
	return a, nil
}

// acquireSeat waits for a seat in the turn of the caller's flow. For a caller who is not accepted, every error is ErrNoSeat.
func (c *reviewCache[V]) acquireSeat(ctx context.Context, who *Caller) (limits.Grant, error) {
	if !who.Accepted {
		seat, err := c.newcomers.Acquire(ctx, who.Flow, 1)
		if err != nil {
			err = ErrNoSeat
		}
		return seat, err
	}
	seat, err := c.accepted.Acquire(ctx, who.Flow, 1)
	if err != nil {
		err = fmt.Errorf("the turn to ask the upstream did not come: %w", err)
	}
	return seat, err
}

// cached returns the answer that is kept for key, valid or not.
func (c *reviewCache[V]) cached(key string) (a answer[V], ok bool) {
	value, _ := c.answers.Get(key)
	a, ok = value.(answer[V])
	return a, ok
}

// remembered returns the answer that is kept for key, if it is still valid.
func (c *reviewCache[V]) remembered(key string, now time.Time) (known answer[V], ok bool) {
	known, ok = c.cached(key)
	return known, ok && c.validFor(&known, now) > 0
}

// remember keeps an answer for later requests, unless the TTL is 0, the key is too long, or the answer to a later question
// is kept.
func (c *reviewCache[V]) remember(key string, a answer[V]) {
	if c.TTL <= 0 || len(key) > maxKey {
		return
	}
	if later, ok := c.cached(key); ok && later.asked.After(a.asked) {
		return
	}
	c.answers.Add(key, a, 2*c.TTL+c.MaxOutage)
}

// validFor returns the time for which an answer is still valid, or 0 if it is not valid:
//
//   - An answer is valid for its ttl, counted from the question.
//   - If rights in its scope were revoked after the question, or at most authorizerLag before it, revokedTTL bounds the ttl.
//   - In an outage the ttl is doubled, and the answer does not age ([ReviewConfig].AsOf). Without the doubling, a caller who
//     comes regularly would have no answer if the last one had just expired when the outage began.
func (c *reviewCache[V]) validFor(a *answer[V], now time.Time) time.Duration {
	ttl := a.ttl
	isRevoked := func(namespace string) bool {
		value, _ := c.revoked.Get(namespace)
		revokedAt, found := value.(time.Time)
		return found && !revokedAt.Before(a.asked.Add(-authorizerLag))
	}
	const everywhere = "" // the key of revocations that concern all namespaces
	requested, account := a.scope.requested, a.scope.account
	if isRevoked(everywhere) || requested != "" && isRevoked(requested) || account != "" && isRevoked(account) {
		ttl = min(ttl, revokedTTL)
	}
	if c.AsOf != nil {
		if asOf := c.AsOf(now); asOf.Before(now) { // in an outage
			ttl *= 2
			now = asOf
		}
	}
	return max(0, ttl-clock.Age(a.asked, now))
}

// recordRevocation notes that rights were revoked in a namespace, or in all namespaces if it is "". It is remembered for as long
// as an answer can be in use that it concerns: one whose question was sent before it, or at most authorizerLag after it.
func (c *reviewCache[V]) recordRevocation(namespace string) {
	latestArrival := authorizerLag + c.Timeout           // of such an answer, from now on
	longestUse := max(2*c.TTL+c.MaxOutage, ownAnswerTTL) // of an answer, from its arrival on
	c.revoked.Add(namespace, time.Now(), latestArrival+longestUse)
}
