package pace

import (
	"maps"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/listproxy/listproxy/snapshot/index"
)

const (
	// leastCost and encoding estimate the time of a list that was not measured: leastCost is the least
	// time, encoding the time for each byte. (kube-apiserver 1.36.3, measured: 2 ms and 20 ns.)
	leastCost = time.Millisecond
	encoding  = 10 * time.Nanosecond
	// A measured time is valid for believed times its own length, and at most for the second limit.
	// After that a list of its kind may be forwarded only to measure it again, which takes less than
	// 1/believed of the upstream's time.
	believed = 500
	costKept = 5 * time.Minute
	// maxKinds is how many kinds of lists are told apart.
	maxKinds = 512
)

// Kind has the properties of a list that decide about its cost: lists of a collection with the same
// Kind cost the upstream about the same.
type Kind struct {
	// objects is the magnitude of how many objects the upstream looks at, limit of how many a page
	// holds; 0 is all.
	objects, limit int
	selects        bool
	// beside is the magnitude of how many other lists of the collection the upstream answers at the
	// same time.
	beside int
}

// magnitude is how many binary digits n has.
func magnitude(n int64) int { return bits.Len64(uint64(max(0, n))) }

// sampled is how many objects tell how large those of a list are.
const sampled = 16

// KindOf returns the kind of the list q of the newest state, if no other list is being forwarded,
// and about how many bytes it has; 0 if that is not known.
func KindOf(newest index.Tree, q index.Query) (Kind, int64) {
	from, end := q.Scope.Prefix()+q.Start, q.Scope.End()
	count := newest.Count(from, end)
	kind := Kind{objects: magnitude(count), selects: q.Name != "" || q.Labels != nil || q.Fields != nil}
	if q.Limit > 0 && q.Limit < count {
		kind.limit, count = magnitude(q.Limit), q.Limit
	}
	if kind.selects {
		return kind, 0
	}
	n, bytes := int64(0), int64(0)
	newest.Ascend(from, end, func(o *index.Object) bool {
		n, bytes = n+1, bytes+int64(len(o.Bytes))
		return n < sampled
	})
	return kind, bytes * count / max(n, 1)
}

// Costs are how long the upstream takes to answer lists of each kind. Safe for concurrent use.
type Costs struct {
	underWay atomic.Int64
	mu       sync.Mutex
	of       map[Kind]*cost
}

type cost struct {
	average[time.Duration]
	at time.Time
}

// holds says whether a cost is still valid.
func (c *cost) holds(now time.Time) bool {
	return c != nil && now.Sub(c.at) < min(believed*c.value, costKept)
}

// Begin records that a list of a kind is forwarded. The returned function must be called when the
// list has ended, with how long the upstream took; with 0 if that is not known.
func (c *Costs) Begin(kind Kind) (end func(took time.Duration)) {
	others := c.underWay.Add(1) - 1
	return func(took time.Duration) {
		others = max(others, c.underWay.Add(-1))
		if took > 0 {
			kind.beside = magnitude(others)
			c.add(kind, took, time.Now())
		}
	}
}

// add records how long a list took.
func (c *Costs) add(kind Kind, took time.Duration, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.of) >= maxKinds {
		maps.DeleteFunc(c.of, func(_ Kind, is *cost) bool { return !is.holds(now) })
	}
	is := c.of[kind]
	switch {
	case is.holds(now):
	case is == nil && len(c.of) >= maxKinds:
		return
	default:
		is = &cost{}
		if c.of == nil {
			c.of = map[Kind]*cost{}
		}
		c.of[kind] = is
	}
	is.Add(took)
	is.at = now
}

// Now returns how long a list of a kind, with so many bytes, is likely to take the upstream, while
// the present number of lists is being forwarded. If it was not measured with so many others, the
// upstream is assumed to be at its limit: with twice as many, a list takes twice as long.
func (c *Costs) Now(kind Kind, bytes int64, now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	beside := magnitude(c.underWay.Load())
	for kind.beside = beside; kind.beside >= 0; kind.beside-- {
		if is := c.of[kind]; is.holds(now) {
			return is.value << (beside - kind.beside)
		}
	}
	return max(leastCost, time.Duration(bytes)*encoding) << beside
}
