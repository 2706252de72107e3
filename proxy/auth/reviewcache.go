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

// ErrNoSeat means that a question about a newcomer, whose credentials are not known to be accepted, could not be sent: the
// queue was full, or no seat got free within one second (newcomerWait).
var ErrNoSeat = errors.New("too many callers who are not known yet are being asked about")

// errOutdated means that a request has got three answers (maxAttempts), and none was still valid on arrival.
var errOutdated = errors.New("what the upstream answered was out of date each time")

// ReviewConfig configures an Authorizer or a WhoAmI.
type ReviewConfig struct {
	// TTL is the time for which an answer is valid, counted from the question. If it is 0, every request asks the upstream.
	TTL time.Duration
	// Timeout bounds the time for one question, including the wait for a seat (see reviewCache). Zero means ten seconds.
	Timeout time.Duration
	// AsOf returns the time at which the age of answers is measured. Usually this is now. In an outage, while the upstream does
	// not answer, it is the time at which the upstream last sent something before the outage, so that answers do not age. After
	// MaxOutage it is now again. A nil AsOf always stands for now.
	AsOf func(now time.Time) time.Time
	// MaxOutage is the time for which answers do not age in an outage.
	MaxOutage time.Duration
}

// Caller is the caller whom a question is about.
type Caller struct {
	Identity Identity
	// Accepted reports whether the upstream is known to accept the caller's credentials. Any other caller is a newcomer.
	Accepted bool
	// Flow is the flow to which the question's seat is charged.
	Flow limits.Flow
}

// answer is the upstream's answer to a question, as it is remembered. validFor says how long it may be used.
type answer[V any] struct {
	value V
	scope scope
	asked time.Time     // when the question was sent
	ttl   time.Duration // counted from asked
}

// question is a question to the upstream about a caller.
type question[V any] struct {
	who *Caller
	// key is the key under which the answer is remembered.
	key   string
	scope scope
	// review sends a review to the upstream, and returns the value of the answer.
	review func(context.Context) (V, error)
}

// reviewCache asks the upstream, and remembers the answers. It is safe for concurrent use.
//
//	flight     one question on its way to the upstream, shared by the requests of a flow that ask it at the same time
//	seat       the permission to have one question at the upstream; a flight waits for it
//	flow       the requests that share one part of the seats, usually those of one user (see FlowOf)
//	accepted   a caller whose credentials the upstream is known to accept
//	newcomer   any other caller
//
// Newcomers have seats of their own, so that made-up tokens cannot keep accepted callers waiting. A flow can have up to half of
// the seats ([limits.Limiter]).
//
// A flight goes on even if the request that began it is over. It keeps its seat until its answer comes. If a caller who leaves
// freed the seat, callers who come and go could have any number of questions in flight.
type reviewCache[V any] struct {
	ReviewConfig
	// revoked has the time.Time of the last revocation by namespace. The key everywhere stands for all namespaces.
	revoked *cache.LRUExpireCache
	// answers has each answer[V] by its key.
	answers             *cache.LRUExpireCache
	flights             singleflight.Group
	accepted, newcomers *limits.Limiter // the seats for questions about accepted callers, and about newcomers
	hits, misses        atomic.Uint64   // see [Authorizer.Lookups]
}

const (
	defaultTimeout = 10 * time.Second
	// maxKey is the length, in bytes, of the longest key under which an answer is remembered. Only a question with selectors or
	// names of about 4 KiB has a longer key.
	maxKey = 4 << 10
	// maxAttempts is the number of answers that a request waits for. It fails if none of them is still valid on arrival.
	maxAttempts = 3
	// ownAnswerTTL is the least time for which a request may use the answer to a question that was sent while the request
	// waited, counted from the arrival of the answer. Otherwise a TTL of 0, or a slow upstream, would leave the request no time
	// to use the answer.
	ownAnswerTTL = time.Second
	// revokedTTL replaces a longer TTL of an answer if rights on which the answer may depend were revoked. So even if
	// revocations come all the time, each question is asked only once a second.
	revokedTTL = time.Second
	// maxRevoked bounds the number of namespaces whose last revocation is remembered. etcd cannot write revocations in so many
	// namespaces while an answer is valid.
	maxRevoked = 256 << 10
	// authorizerLag is the time after a revocation in which an API server may still decide by the old state, since its
	// authorizers read from informers.
	authorizerLag = time.Second

	// acceptedSeats is the number of questions about accepted callers that may be in flight.
	acceptedSeats = 128
	// acceptedQueue is the number of questions about accepted callers that may wait for a seat. One flow may take an eighth of
	// the queue, which is 2048 places. This is enough for the agents of a DaemonSet on two thousand nodes. These agents are one
	// flow, but each has a token of its own, and so a question of its own.
	acceptedQueue = 16 << 10
	// newcomerSeats is the number of questions about newcomers that may be in flight.
	newcomerSeats = 128
	// newcomerQueue is the number of questions about newcomers that may wait for a seat. All newcomers from one address (of
	// IPv6, from one /64 network) are one flow, which may take an eighth of the queue. That is 512 places, enough after a
	// restart of listproxy, when all callers with tokens are newcomers.
	newcomerQueue = 4 << 10
	// newcomerWait bounds the time for which a question about a newcomer waits for a seat.
	newcomerWait = time.Second
)

// everywhere is the key of a revocation in all namespaces.
const everywhere = ""

// newReviewCache returns a reviewCache that remembers up to capacity answers: those that were used last.
func newReviewCache[V any](cfg ReviewConfig, capacity int) *reviewCache[V] {
	cfg.Timeout = cmp.Or(cfg.Timeout, defaultTimeout)
	return &reviewCache[V]{
		ReviewConfig: cfg,
		revoked:      cache.NewLRUExpireCache(maxRevoked),
		answers:      cache.NewLRUExpireCache(capacity),
		accepted:     limits.NewLimiter(limits.LimiterConfig{Capacity: acceptedSeats, MaxWaiting: acceptedQueue, MaxWait: cfg.Timeout}),
		newcomers:    limits.NewLimiter(limits.LimiterConfig{Capacity: newcomerSeats, MaxWaiting: newcomerQueue, MaxWait: newcomerWait}),
	}
}

// recallOrAsk returns the remembered answer to a question, or asks the upstream. If ctx ends, recallOrAsk returns, but the
// question goes on for other requests. The error is from q.review or ctx, or is [ErrNoSeat], a [limits.Overload] or
// errOutdated.
func (c *reviewCache[V]) recallOrAsk(ctx context.Context, q question[V]) (answer[V], error) {
	began := time.Now()
	if known, ok := c.recall(q.key, began); ok {
		c.hits.Add(1)
		return known, nil
	}
	c.misses.Add(1)
	for range maxAttempts {
		fresh, err := c.joinFlight(ctx, q)
		now := time.Now()
		if err != nil {
			// Perhaps an outage has begun, in which remembered answers are valid for longer.
			if known, ok := c.recall(q.key, now); ok {
				return known, nil
			}
			return answer[V]{}, err
		}
		askedMeanwhile := !fresh.asked.Before(began) // the question was sent after this call began
		if askedMeanwhile {                          // see ownAnswerTTL
			fresh.ttl = max(fresh.ttl, clock.Age(fresh.asked, now)+ownAnswerTTL)
		}
		if c.validFor(&fresh, now) > 0 {
			return fresh, nil
		}
	}
	return answer[V]{}, errOutdated
}

// joinFlight begins a flight for a question, or joins the one that there is, and waits for the answer.
func (c *reviewCache[V]) joinFlight(ctx context.Context, q question[V]) (answer[V], error) {
	// A flight may wait long for a seat if its flow is busy. So requests of other flows do not join it.
	flight := c.flights.DoChan(string(q.who.Flow[:])+q.key, func() (any, error) {
		return c.askUpstream(context.WithoutCancel(ctx), q)
	})
	select {
	case <-ctx.Done():
		return answer[V]{}, fmt.Errorf("the caller left before the upstream had answered: %w", ctx.Err())
	case result := <-flight:
		fresh, _ := result.Val.(answer[V]) // always has this type
		return fresh, result.Err
	}
}

// askUpstream waits for a seat, sends the review, and remembers the answer.
func (c *reviewCache[V]) askUpstream(ctx context.Context, q question[V]) (answer[V], error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	seat, err := c.acquireSeat(ctx, q.who)
	if err != nil {
		return answer[V]{}, err
	}
	defer seat.Release()
	asked := time.Now()
	value, err := q.review(ctx)
	if err != nil {
		return answer[V]{}, err
	}
	a := answer[V]{value: value, scope: q.scope, asked: asked, ttl: c.TTL}
	c.remember(q.key, a)
	return a, nil
}

// acquireSeat waits until it is the turn of the caller's flow, and takes a seat. For a newcomer, every error is ErrNoSeat.
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

// lookUp returns the answer that is remembered for key, valid or not.
func (c *reviewCache[V]) lookUp(key string) (known answer[V], found bool) {
	value, _ := c.answers.Get(key) // nil if there is none
	known, found = value.(answer[V])
	return known, found
}

// recall returns the answer that is remembered for key, if it is still valid.
func (c *reviewCache[V]) recall(key string, now time.Time) (known answer[V], ok bool) {
	known, found := c.lookUp(key)
	return known, found && c.validFor(&known, now) > 0
}

// remember stores an answer for later requests, unless the TTL is 0, the key is too long, or the answer to a later question
// is remembered.
func (c *reviewCache[V]) remember(key string, a answer[V]) {
	if c.TTL <= 0 || len(key) > maxKey {
		return
	}
	if later, found := c.lookUp(key); found && later.asked.After(a.asked) {
		return
	}
	c.answers.Add(key, a, c.longestValidity())
}

// longestValidity returns the longest time for which validFor may find a remembered answer valid: in an outage.
func (c *reviewCache[V]) longestValidity() time.Duration { return 2*c.TTL + c.MaxOutage }

// validFor returns the time for which an answer is still valid, or 0 if it is no longer valid:
//
//   - An answer is valid for its ttl, counted from the question.
//   - If rights in its scope were revoked after the question, or in the second before it (authorizerLag), its ttl is at most
//     one second (revokedTTL).
//   - In an outage the ttl is doubled, and the answer does not age ([ReviewConfig].AsOf).
//
// For example, the ttl is 10 s, and a question was sent at 12:00:00. The answer expires at 12:00:10. If an outage begins at
// 12:00:15, the answer is valid again: it stays 15 s old, which is less than 20 s. If an outage begins at 12:00:25,
// the answer is too old. Without the doubling, an answer that expired just before an outage could neither be used nor replaced.
func (c *reviewCache[V]) validFor(a *answer[V], now time.Time) time.Duration {
	ttl := a.ttl
	isRevoked := func(namespace string) bool {
		value, _ := c.revoked.Get(namespace) // nil if there is none
		revokedAt, found := value.(time.Time)
		return found && !revokedAt.Before(a.asked.Add(-authorizerLag))
	}
	revokedInRequested := a.scope.requested != everywhere && isRevoked(a.scope.requested)
	revokedInAccount := a.scope.account != everywhere && isRevoked(a.scope.account)
	if isRevoked(everywhere) || revokedInRequested || revokedInAccount {
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

// recordRevocation notes that rights have now been revoked in a namespace, or everywhere. The revocation concerns all answers
// to questions that were sent before it, or are sent at most authorizerLag after it. It is remembered as long as any of these
// answers can be in use.
func (c *reviewCache[V]) recordRevocation(namespace string) {
	untilLastAnswer := authorizerLag + c.Timeout         // from now to the arrival of the last such answer
	longestUse := max(c.longestValidity(), ownAnswerTTL) // from the arrival of an answer to its end
	c.revoked.Add(namespace, time.Now(), untilLastAnswer+longestUse)
}
