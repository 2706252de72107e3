package authz

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/listproxy/listproxy/proxy/inflight"
)

// maxRounds is how often a caller asks because the answer that it waited for was overtaken: by a
// new epoch, or by its own age.
const maxRounds = 3

const (
	// maxQuestionsAtOnce bounds the questions of one kind that are with the upstream,
	// maxQuestionsWaiting those that wait for one of these places.
	maxQuestionsAtOnce  = 128
	maxQuestionsWaiting = 1024
)

// newTurns returns the places for questions to the upstream. A question goes on when the requests
// that wait for its answer are gone. So it has a place of its own, which counts to its caller's share
// until the answer is there: callers who come and go cannot pile questions up.
func newTurns(timeout time.Duration) (*inflight.Limiter[inflight.ShareKey], error) {
	return inflight.NewLimiter[inflight.ShareKey](inflight.Queueing(maxQuestionsAtOnce, maxQuestionsWaiting, timeout))
}

// newWatchTurns returns the places for watches that need reviews. Any number may wait: each has
// been admitted as a long-running request, whose number is bounded, and leaves the queue with its
// client.
func newWatchTurns(timeout time.Duration) (*inflight.Limiter[inflight.ShareKey], error) {
	places := inflight.Queueing(maxQuestionsAtOnce, math.MaxInt, timeout)
	places.MaxWaitingPerCaller = math.MaxInt
	return inflight.NewLimiter[inflight.ShareKey](places)
}

// inTurn asks when the turn of the caller's share comes, and keeps the place until ask returns. The
// timeout bounds both together.
func inTurn[V any](
	ctx context.Context, turns *inflight.Limiter[inflight.ShareKey], share inflight.ShareKey, timeout time.Duration,
	ask func(context.Context) (V, error),
) (dated[V], error) {
	deadline := time.Now().Add(timeout)
	turn, err := turns.Acquire(ctx, share, 1)
	if err != nil {
		return dated[V]{}, fmt.Errorf("the turn to ask the upstream did not come: %w", err)
	}
	defer turn.Release()
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	asked := time.Now()
	value, err := ask(ctx)
	return dated[V]{value, asked}, err
}

// errOvertaken is the end of a wait for an answer that can still be used.
var errOvertaken = errors.New("what the upstream answered was out of date each time")

// shared lets all who want to know the same at the same time wait for one answer of the upstream.
//
// The question goes on for the others if the caller who asked first leaves. A caller who joins a
// question that is already under way gets an answer that was asked for before. Such an answer counts
// like a remembered one: until the ttl has passed since the question was sent, and only in the epoch
// in which it was sent.
//
// It is safe for concurrent use, and must not be copied after its first use.
type shared[V any] struct {
	ttl time.Duration
	// epoch counts up when nothing counts any more that was asked for before.
	epoch   func() uint64
	flights singleflight.Group
}

// dated is an answer of the upstream and when it was asked for.
type dated[V any] struct {
	value V
	asked time.Time
}

// get returns the answer to the question that key stands for, which ask puts to the upstream unless
// somebody else just does, and the epoch in which it counts. The context of ask does not end with
// ctx; its epoch is the one in which its answer counts, to be remembered with it. An error is that
// of ask, or of ctx, or errOvertaken.
func (s *shared[V]) get(
	ctx context.Context, key string, ask func(ctx context.Context, epoch uint64) (dated[V], error),
) (dated[V], uint64, error) {
	var none dated[V]
	began := time.Now()
	for range maxRounds {
		epoch := s.epoch()
		flight := s.flights.DoChan(flightKey(epoch, key), func() (any, error) {
			return ask(context.WithoutCancel(ctx), epoch)
		})
		select {
		case <-ctx.Done():
			return none, 0, fmt.Errorf("the caller left before the upstream had answered: %w", ctx.Err())
		case result := <-flight:
			if result.Err != nil {
				return none, 0, result.Err
			}
			got, ok := result.Val.(dated[V])
			fresh := !got.asked.Before(began) || validity{got.asked, s.ttl}.valid(time.Now())
			if ok && fresh && epoch == s.epoch() {
				return got, epoch, nil
			}
		}
	}
	return none, 0, errOvertaken
}

// flightKey returns the key under which equal questions of one epoch share an answer. The epoch has
// a fixed length, so it stays unambiguous.
func flightKey(epoch uint64, key string) string {
	return string(binary.BigEndian.AppendUint64(nil, epoch)) + key
}
