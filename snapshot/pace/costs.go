package pace

import (
	"hash/maphash"
	"maps"
	"math/bits"
	"sync"
	"time"

	"github.com/listproxy/listproxy/snapshot/index"
)

const (
	// leastCost, encoding and matching estimate the time of a list that was not measured: leastCost is
	// the least time, encoding the time for each byte, matching the time for each object whose labels
	// are matched. (kube-apiserver 1.36.3, measured: 2 ms, 20 ns and 1 to 2 µs.)
	leastCost = time.Millisecond
	encoding  = 10 * time.Nanosecond
	matching  = time.Microsecond
	// probing is what a probe costs, beside these guesses. (Measured: 0.6 to 0.7 ms of the upstream's
	// CPU, where a list of 100 objects takes 1.1 to 1.4 ms.)
	probing = leastCost / 2
	// A list that takes longer than guessed shows that the upstream is busy, and a probe then takes
	// longer, too: up to mostSlowed times as long. Beyond that the guess was wrong.
	mostSlowed = 8
	// A measurement is used for believed times the list's own duration, at most costKept. Then one
	// list of its kind may be forwarded only to measure again, which takes less than 1/believed of the
	// upstream's time. If a list took longer than usual, its measurement is used only for as long as a
	// usual one's: the API server may have been busy.
	believed = 500
	costKept = 5 * time.Minute
	// many is how many values count of how fast lists end: they end in bursts.
	many = 64
	// maxKinds is how many kinds of lists are told apart.
	maxKinds = 2048
)

// Kind has the properties of a list that decide about its cost: lists of a collection with the same
// Kind cost the upstream about the same.
type Kind struct {
	// objects is the magnitude of how many objects the upstream looks at, limit of how many a page
	// holds; 0 is all.
	objects, limit int
	selector       selector
	// length is the magnitude of how long the selectors' text is, and text a hash of it: what one
	// selector costs says nothing of another. (Two have the same hash once in 256.)
	length   int
	text     byte
	indented bool
}

// hashSeed is known to nobody, so nobody can choose a selector with the hash of another.
var hashSeed = maphash.MakeSeed()

// selector says how kube-apiserver finds the objects of a list: for a name it reads one object, for
// fields often an index, and for labels all objects of the scope.
type selector byte

const (
	whole selector = iota
	byName
	byFields
	byLabels
)

// magnitude is how many binary digits n has.
func magnitude(n int64) int { return bits.Len64(uint64(max(0, n))) }

// sampled is how many objects tell how large those of a list are.
const sampled = 16

// KindOf returns the kind of the list q of the newest state, and how long the upstream takes for it
// at least, as far as that can be known without a measurement.
func KindOf(newest index.Tree, q index.Query) (Kind, time.Duration) {
	from, end := q.Scope.Prefix()+q.Start, q.Scope.End()
	count := newest.Count(from, end)
	kind, guess := Kind{objects: magnitude(count), selector: selectorOf(q), indented: q.Indented}, leastCost
	if kind.selector == byLabels || kind.selector == byFields {
		text := textOf(q)
		kind.length, kind.text = magnitude(int64(len(text))), byte(maphash.String(hashSeed, text)&0xff)
	}
	if kind.selector == byLabels {
		guess = max(leastCost, time.Duration(count)*matching)
	}
	if q.Limit > 0 && q.Limit < count {
		kind.limit, count = magnitude(q.Limit), q.Limit
	}
	if kind.selector != whole {
		return kind, guess
	}
	n, bytes := int64(0), int64(0)
	newest.Ascend(from, end, func(o *index.Object) bool {
		n, bytes = n+1, bytes+int64(len(o.Bytes))
		return n < sampled
	})
	return kind, max(leastCost, time.Duration(bytes*count/max(n, 1))*encoding)
}

// selectorOf says by what the objects of a list are found. A selector may choose them all.
func selectorOf(q index.Query) selector {
	switch {
	case q.Name != "":
		return byName
	case q.Fields != nil && !q.Fields.Empty():
		return byFields
	case q.Labels != nil && !q.Labels.Empty():
		return byLabels
	}
	return whole
}

// textOf is what the selectors of a list say.
func textOf(q index.Query) (text string) {
	if q.Labels != nil {
		text = q.Labels.String()
	}
	if q.Fields != nil {
		text += ";" + q.Fields.String()
	}
	return text
}

// Costs are how long the upstream takes to answer lists of each kind. Safe for concurrent use.
type Costs struct {
	mu sync.Mutex
	// underWay is how many lists are forwarded now, and ended when the last one ended.
	underWay int
	ended    time.Time
	of       map[Kind]*cost
}

// cost is what was measured of a kind.
type cost struct {
	// alone is how long a list takes beside which no other is forwarded.
	alone measured
	// each is the time that one more concurrent list adds: from the end of one to the end of the next,
	// while the upstream is busy.
	each measured
}

// measured is an average that is valid for a time.
type measured struct {
	average[time.Duration]
	until time.Time
	// took is how long the last list took that was measured.
	took time.Duration
}

// take adds v, measured with a list of duration took, to an average over count values.
func (m *measured) take(v, took time.Duration, now time.Time, count int) {
	if !m.valid(now) {
		m.average = average[time.Duration]{}
	}
	m.add(v, count)
	m.until = now.Add(min(believed*min(took, max(m.took, leastCost)), costKept))
	m.took = took
}

// valid says whether it still counts.
func (m *measured) valid(now time.Time) bool { return m.n > 0 && now.Before(m.until) }

// Forwarded is a list that is forwarded. One that is nil does not count. It is not safe for
// concurrent use.
type Forwarded struct {
	costs *Costs
	kind  Kind
	begun time.Time
	alone bool // at the beginning
}

// Begin says that a list of a kind is forwarded. End must be called when that is over.
func (c *Costs) Begin(kind Kind) *Forwarded {
	begun := time.Now()
	return &Forwarded{c, kind, begun, c.count(1) == 1}
}

// count adds to how many lists are forwarded now.
func (c *Costs) count(more int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.underWay += more
	return c.underWay
}

// Aside calls wait, which waits for the client to read. Meanwhile the list does not count as one
// that the upstream has still to answer.
func (f *Forwarded) Aside(wait func()) {
	if f != nil {
		f.costs.count(-1)
		defer f.costs.count(1)
	}
	wait()
}

// End says that the list has ended, and how long the upstream took to answer; 0 if it did not, or
// if the time says nothing about other lists.
func (f *Forwarded) End(took time.Duration) {
	if f != nil {
		f.costs.end(f.kind, f.alone, f.begun, time.Now(), took)
	}
}

// end records that a list has ended. alone: it began when no other was under way.
func (c *Costs) end(kind Kind, alone bool, begun, now time.Time, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.underWay--
	last := c.ended
	c.ended = now
	busy := last.After(begun)
	if alone = alone && c.underWay == 0 && !busy; took <= 0 || !alone && !busy {
		return
	}
	is := c.kind(kind, now)
	switch {
	case is == nil:
	case alone:
		is.alone.take(took, took, now, usual)
	default:
		is.each.take(max(0, min(took, now.Sub(last))), took, now, many)
	}
}

// kind is where the cost of a kind is kept; nil if there are too many.
func (c *Costs) kind(kind Kind, now time.Time) *cost {
	if c.of[kind] == nil {
		if len(c.of) >= maxKinds {
			maps.DeleteFunc(c.of, func(_ Kind, is *cost) bool { return !is.alone.valid(now) && !is.each.valid(now) })
		}
		if len(c.of) >= maxKinds {
			return nil
		}
		if c.of == nil {
			c.of = map[Kind]*cost{}
		}
		c.of[kind] = &cost{}
	}
	return c.of[kind]
}

// Now is how long a list of a kind is likely to take the upstream after those that are forwarded at
// this moment, and how much longer a probe takes because of these. guess is what [KindOf] says of the
// list.
func (c *Costs) Now(kind Kind, guess time.Duration, now time.Time) (list, probe time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	alone, each := guess, guess
	if is := c.of[kind]; is != nil {
		if is.alone.valid(now) {
			alone = is.alone.value
		}
		if is.each.valid(now) && is.each.n >= usual {
			each = is.each.value
		}
	}
	slowed := min(float64(each)/float64(guess), mostSlowed)
	return max(alone, each*time.Duration(c.underWay+1)), time.Duration(slowed * float64(c.underWay) * float64(probing))
}
