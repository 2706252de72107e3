package proxy

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"
)

// maxRounds is how often a caller asks because the answer that it waited for was overtaken: by a
// new epoch, or by its own age.
const maxRounds = 3

// errOvertaken is the end of a wait for an answer that can still be used.
var errOvertaken = errors.New("what the upstream answered was out of date each time")

// shared lets all who want to know the same at the same time wait for one answer of the upstream.
//
// A question is not the caller's who happened to be first: it goes on for the others when that
// caller leaves. Who joins a question that was already under way gets an answer of the past, which
// counts as long as if it had been remembered: for the ttl from when it was asked for, and in the
// epoch in which that was.
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
// somebody else just does. The context of ask does not end with ctx; its epoch is the one in which
// its answer counts, to be remembered with it. An error is that of ask, or of ctx, or errOvertaken.
func (s *shared[V]) get(ctx context.Context, key string, ask func(ctx context.Context, epoch uint64) (dated[V], error)) (V, error) {
	var none V
	began := time.Now()
	for range maxRounds {
		epoch := s.epoch()
		flight := s.flights.DoChan(flightKey(epoch, key), func() (any, error) {
			return ask(context.WithoutCancel(ctx), epoch)
		})
		select {
		case <-ctx.Done():
			return none, fmt.Errorf("the caller left before the upstream had answered: %w", ctx.Err())
		case result := <-flight:
			if result.Err != nil {
				return none, result.Err
			}
			got, ok := result.Val.(dated[V])
			fresh := !got.asked.Before(began) || term{got.asked, s.ttl}.holds(time.Now())
			if ok && fresh && epoch == s.epoch() {
				return got.value, nil
			}
		}
	}
	return none, errOvertaken
}

// flightKey returns the key under which equal questions of one epoch share an answer. The epoch has
// a fixed length, so it stays unambiguous.
func flightKey(epoch uint64, key string) string {
	return string(binary.BigEndian.AppendUint64(nil, epoch)) + key
}
