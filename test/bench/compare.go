package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/harness/ask"
)

// compare sends each request whose name matches --rows to all sides, one side after the other, for --rounds rounds. It reports
// a table with a row for each request and side. The order of the sides changes each time, so that a noisy machine disturbs all
// alike: with sides A, B and C, the first request is sent to A, B, C, and the second to B, C, A.
func (b *bench) compare(ctx context.Context, caption string, sides []side, requests []request) (*table, error) {
	requests = slices.DeleteFunc(slices.Clone(requests), func(q request) bool { return !b.settings.rows.MatchString(q.name) })
	idle := make([]cpu[float64], len(sides))
	for i, target := range sides {
		var err error
		if idle[i], err = b.measureIdle(ctx, target); err != nil {
			return nil, err
		}
	}
	rows := make([][]*row, len(requests)) // by request and side
	for round := range b.settings.rounds {
		for i, q := range requests {
			resolved, err := b.resolve(ctx, q)
			if err != nil {
				return nil, err
			}
			namesNewRevision := resolved.path != q.path // other than in the round before
			if round == 0 || namesNewRevision {
				newRows, err := b.warmUpAll(ctx, sides, resolved)
				if err != nil {
					return nil, err
				}
				if round == 0 {
					rows[i] = newRows
				}
			}
			for turn := range sides {
				n := (round + i + turn) % len(sides)
				if err := b.measure(ctx, sides[n], idle[n], resolved, rows[i][n]); err != nil {
					return nil, err
				}
			}
		}
		b.log("round %d of %d", round+1, b.settings.rounds)
	}
	t := &table{caption: caption}
	for i := range requests {
		t.add(rows[i]...)
	}
	b.report(t)
	return t, nil
}

// measure sends a request to a side as often as belongs to a round (repetitions), and adds the cost to the row r.
func (b *bench) measure(ctx context.Context, target side, idle cpu[float64], q request, r *row) error {
	clients := max(1, q.clients)
	all := volume{clients: clients, perClient: max(1, b.repetitions(r.bytes)/clients)}
	if !q.changesPods {
		return b.measureSend(ctx, target, idle, q, all, r)
	}
	for range all.perClient {
		if err := b.changeHundredth(ctx, target, q.accept); err != nil {
			return err
		}
		if err := b.measureSend(ctx, target, idle, q, volume{clients: clients, perClient: 1}, r); err != nil {
			return err
		}
	}
	return nil
}

// measureSend sends a request, and adds the answers and the CPU time to a row.
func (b *bench) measureSend(ctx context.Context, target side, idle cpu[float64], q request, v volume, r *row) error {
	return b.measureCPU(target, idle, r, func() error { return b.send(ctx, target, q, v, r) })
}

const (
	// bytesPerRound is about the size of all answers to a request in a round.
	bytesPerRound = 100e6
	// minPerRound is the least number of answers to a request in a round.
	minPerRound = 3
)

// repetitions returns how often a request whose answer has so many bytes is sent in a round, to each side. An answer of 10 MB
// is requested 10 times. A larger one is requested at least minPerRound times, and a smaller one at most --requests times.
func (b *bench) repetitions(bytes int64) int {
	return min(b.settings.requests, max(minPerRound, int(bytesPerRound/max(1, bytes))))
}

// warmUpAll warms up all sides, checks that their answers have the same size, and returns a new row for each side.
func (b *bench) warmUpAll(ctx context.Context, sides []side, q request) (rows []*row, err error) {
	for _, target := range sides {
		r, err := b.warmUp(ctx, target, q)
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

// warmUp sends a request three times. If q.mustHit, it repeats this until all three answers come from memory. It returns a new
// row for the request, in which only the names and bytes are set.
func (b *bench) warmUp(ctx context.Context, target side, q request) (*row, error) {
	begun := time.Now()
	for {
		sample := &row{}
		if err := b.send(ctx, target, q, volume{clients: 1, perClient: 3}, sample); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", q.name, target.name, err)
		}
		if !q.mustHit || target.proxy == nil || sample.hits == sample.answers {
			return &row{request: q.name, side: target.name, bytes: sample.bytes}, nil
		}
		if time.Since(begun) > patience {
			return nil, fmt.Errorf("%s: not from memory within %v", q.path, patience)
		}
		if !clock.Sleep(ctx, pollInterval) {
			return nil, ctx.Err()
		}
	}
}

// warmUpPods has listproxy answer lists of all pods from memory in some formats.
func (b *bench) warmUpPods(ctx context.Context, target side, formats ...format) error {
	for _, q := range fromMemory("", podsWith+ask.AnyVersion, formats...) {
		if _, err := b.warmUp(ctx, target, q); err != nil {
			return err
		}
	}
	return nil
}

// sizeTolerance is the greatest difference in bytes between answers with the same objects. A list's revision, or the revision
// in its continue token, may have a digit more.
const sizeTolerance = 16

// checkSizes returns an error if sides sent different numbers of bytes. It accepts any sizes of these answers:
//   - Forwarded answers may have different states.
//   - Compressed answers and streams may have different sizes with the same objects.
func checkSizes(rows []*row, q request) error {
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

// resolve replaces newestRevision and middlePage in a request by current values. It is called before each round, since servers
// keep older revisions only for a while.
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
