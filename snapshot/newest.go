package snapshot

import (
	"context"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/index"
)

// Fresh returns the newest state once it is proven that it holds everything that was written before
// Fresh was called: the feed has asked the upstream after that how far it is, and its own stream,
// or a watch beside it, has told everything up to there. It waits for the proof, at most for a
// time.
func (c *Collection) Fresh(ctx context.Context, atMost time.Duration) (Snapshot, reason.Reason) {
	c.Touch()
	after := c.inquiries.Load()
	c.wish(after + 1)
	snap, why, _ := c.await(ctx, atMost, reason.NotProven, (*View).outdated, func(v *View) (Snapshot, reason.Reason) {
		return v.fresh(after)
	})
	return snap, why
}

// fresh returns the newest state if it holds everything that had been written before the inquiry
// after that one was sent.
func (v *View) fresh(after uint64) (Snapshot, reason.Reason) {
	switch {
	case v.absence != reason.None:
		return Snapshot{}, v.absence
	case v.heard.number <= after:
		return Snapshot{}, reason.NotProven
	}
	return v.state(), reason.None
}

// wish tells the feed that somebody waits for an inquiry of that number, or a later one.
func (c *Collection) wish(number uint64) {
	for was := c.wished.Load(); was < number; was = c.wished.Load() {
		if c.wished.CompareAndSwap(was, number) {
			select {
			case c.wishes <- struct{}{}:
			default: // it is told already
			}
			return
		}
	}
}

// NoFresh says why Fresh would come to nothing, or would take longer than to forward q, if that
// counts; None if it is worth waiting for. It does not wait, and is no use of the collection.
func (c *Collection) NoFresh(q index.Query, atMost time.Duration, always bool) reason.Reason {
	v, now := c.view.Load(), time.Now()
	switch {
	case v.absence != reason.None:
		return v.absence
	case Age(v.heard.asked, now) >= c.limits.Staleness:
		return reason.Stale
	}
	proof := c.pace.proof(now)
	if !always {
		list, bytes := v.cost(q)
		if forwarded, known := c.costs.find(list, now); !worthProving(proof, bytes, forwarded, known) {
			return reason.FasterForwarded
		}
	}
	if proof > atMost {
		return reason.NotProven
	}
	return reason.None
}

// forwarded takes in how long the upstream took to answer q with its newest state.
func (c *Collection) forwarded(q index.Query, took time.Duration) {
	v := c.view.Load()
	if v.absence != reason.None {
		return
	}
	list, _ := v.cost(q)
	c.costs.add(list, took, time.Now())
}

const (
	// writing is how long listproxy takes to write a byte: the client waits for that too.
	writing = time.Nanosecond
	// encoding is what a byte of a list costs kube-apiserver at least, where it was not measured.
	// (kube-apiserver 1.36.3, measured: 20 ns.)
	encoding = 10 * time.Nanosecond
)

// worthProving says whether to prove the newest state is sooner than to forward a list of so many
// bytes, which took the upstream so long before, if that is known.
func worthProving(proof time.Duration, bytes int64, forwarded time.Duration, known bool) bool {
	if !known {
		forwarded = time.Duration(bytes) * encoding
	}
	return proof+time.Duration(bytes)*writing < forwarded
}

// sampled is how many objects tell how large those of a list are.
const sampled = 16

// cost says which kind of list q is, and about how many bytes it has; 0 if that cannot be told.
func (v *View) cost(q index.Query) (listKind, int64) {
	from, end := q.Scope.Prefix()+q.Start, q.Scope.End()
	count := v.newest.Count(from, end)
	kind := listKind{objects: magnitude(count), selects: q.Name != "" || q.Labels != nil || q.Fields != nil}
	if q.Limit > 0 && q.Limit < count {
		kind.limit, count = magnitude(q.Limit), q.Limit
	}
	if kind.selects {
		return kind, 0
	}
	n, bytes := int64(0), int64(0)
	v.newest.Ascend(from, end, func(o *index.Object) bool {
		n, bytes = n+1, bytes+int64(len(o.Bytes))
		return n < sampled
	})
	return kind, bytes * count / max(n, 1)
}
