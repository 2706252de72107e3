package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/snapshot/clock"
)

// compare sends each request whose name matches --rows to all sides in turn, round by round, and reports a table with a row
// for each request and side. Turns begin with another side each time, so that a noisy machine disturbs all alike.
func (b *bench) compare(ctx context.Context, caption string, sides []side, requests []request) (*table, error) {
	idle := make([]cpu[float64], len(sides))
	for i, s := range sides {
		var err error
		if idle[i], err = b.idleShares(ctx, s); err != nil {
			return nil, err
		}
	}
	rows := make([][]*result, len(requests))
	for round := range b.settings.rounds {
		for i, q := range requests {
			if !b.settings.rows.MatchString(q.name) {
				continue
			}
			resolved, err := b.resolve(ctx, q)
			if err != nil {
				return nil, err
			}
			if round == 0 || resolved.path != q.path { // else the request is the same as in the first round
				warm, err := b.warmUpAll(ctx, sides, resolved)
				if err != nil {
					return nil, err
				}
				if round == 0 {
					rows[i] = warm
				}
			}
			for turn := range sides {
				next := (turn + round + i) % len(sides) // each request begins with another side
				if err := b.measure(ctx, sides[next], idle[next], resolved, rows[i][next]); err != nil {
					return nil, err
				}
			}
		}
		b.log("round %d of %d", round+1, b.settings.rounds)
	}
	t := &table{caption: caption}
	for _, ofRequest := range rows {
		t.add(ofRequest...)
	}
	b.report(t)
	return t, nil
}

// measure sends a request to a side as often as a round wants, and adds the cost to a row.
func (b *bench) measure(ctx context.Context, at side, idle cpu[float64], q request, row *result) error {
	clients := max(1, q.clients)
	perClient := max(1, b.repetitions(row.bytes)/clients)
	sendMeasured := func(perClient int) error {
		return b.measureCPU(at, idle, row, func() error { return b.send(ctx, at, q, clients, perClient, row) })
	}
	if !q.changesPods {
		return sendMeasured(perClient)
	}
	for range perClient {
		if err := b.changeHundredth(ctx, at, q.accept); err != nil {
			return err
		}
		if err := sendMeasured(1); err != nil {
			return err
		}
	}
	return nil
}

// megabytesPerRound bounds the size of all answers to a request in a round. At least three are sent, and at most
// settings.requests.
const megabytesPerRound = 100

// repetitions returns how often a request is sent in a round if its answer has so many bytes.
func (b *bench) repetitions(bytes int64) int {
	return min(b.settings.requests, max(3, int(megabytesPerRound*1e6/max(1, bytes))))
}

// warmUpAll warms up all sides, checks that their answers have the same size, and returns their rows.
func (b *bench) warmUpAll(ctx context.Context, sides []side, q request) (rows []*result, err error) {
	for _, at := range sides {
		r, err := b.warmUp(ctx, at, q)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	if b.writesCompared {
		return rows, nil
	}
	return rows, checkSizes(rows, q)
}

// warmUp sends a request three times, and again until all three answers come from memory if q.mustHit. It returns the request's
// row, in which only bytes are set.
func (b *bench) warmUp(ctx context.Context, at side, q request) (*result, error) {
	begun := time.Now()
	for {
		r := &result{request: q.name, side: at.name}
		if err := b.send(ctx, at, q, 1, 3, r); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", q.name, at.name, err)
		}
		switch {
		case !q.mustHit || at.proxy == nil || r.hits == r.answers:
			return &result{request: q.name, side: at.name, bytes: r.bytes}, nil
		case time.Since(begun) > patience:
			return nil, fmt.Errorf("%s: not from memory within %v", q.path, patience)
		case !clock.Sleep(ctx, pollInterval):
			return nil, ctx.Err()
		}
	}
}

// sizeTolerance is the difference in bytes that answers with the same objects may have: a revision, and a token that holds a
// revision, may have a digit more.
const sizeTolerance = 16

// checkSizes returns an error if sides sent different numbers of bytes. It checks only requests that must be answered from
// memory, since others may be answered at different states, and none whose size gzip or a stream changes.
func checkSizes(rows []*result, q request) error {
	if !q.mustHit || q.gzip || q.stream {
		return nil
	}
	first := rows[0]
	for _, r := range rows {
		if difference := r.bytes - first.bytes; difference < -sizeTolerance || difference > sizeTolerance {
			return fmt.Errorf("%s: %s sent %d bytes, and %s %d", q.name, r.side, r.bytes, first.side, first.bytes)
		}
	}
	return nil
}

// resolve replaces newestRevision and middlePage in a request by current values: older ones leave the history after a while.
func (b *bench) resolve(ctx context.Context, q request) (request, error) {
	if !strings.Contains(q.path, newestRevision) && !strings.Contains(q.path, middlePage) {
		return q, nil
	}
	half, err := b.kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{Limit: int64(b.settings.pods / 2)})
	if err != nil {
		return q, err
	}
	q.path = strings.ReplaceAll(q.path, newestRevision, half.ResourceVersion)
	q.path = strings.ReplaceAll(q.path, middlePage, half.Continue)
	return q, nil
}
