package snapshot

import (
	"maps"
	"math/bits"
	"sync"
	"time"
)

// average is an average in which the newest values weigh most. The zero average has none.
type average struct {
	value time.Duration
	known bool
}

// weight is the part of a new value in an average: 1/weight.
const weight = 8

func (a *average) add(d time.Duration) {
	if !a.known {
		a.value, a.known = d, true
		return
	}
	a.value += (d - a.value) / weight
}

// or returns the average, or d if there is none yet.
func (a average) or(d time.Duration) time.Duration {
	if a.known {
		return a.value
	}
	return d
}

const (
	// usualQuestion and usualBeside are how long a question takes, and a watch beside the stream,
	// where that was not measured yet.
	usualQuestion = 5 * time.Millisecond
	usualBeside   = time.Second
	// certainly is in thousandths.
	certainly = 1000
)

// pace is how fast a feed learns how far the upstream is. Safe for concurrent use.
type pace struct {
	mu sync.Mutex
	// question is how long a question takes, gap the time from one thing that a stream tells to the
	// next, and beside how long a watch beside it takes until its bookmark.
	question, gap, beside average
	// atOnce is how many of a thousand questions found the span where the upstream is.
	atOnce int
	// told is when the stream last told something.
	told time.Time
	// asking is since when a question is under way; zero if none is. spared is until when the
	// upstream wants none.
	asking, spared time.Time
}

// ask takes in that a question is sent.
func (p *pace) ask(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asking = now
}

// notAsked takes in that a question has not been answered, and that none is sent before a time.
func (p *pace) notAsked(spared time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asking, p.spared = time.Time{}, spared
}

// asked takes in how long a question took, and whether the span was there already.
func (p *pace) asked(took time.Duration, there bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asking = time.Time{}
	p.question.add(took)
	now := 0
	if there {
		now = certainly
	}
	p.atOnce += (now - p.atOnce) / weight
}

// streamTold takes in that the stream has told something.
func (p *pace) streamTold(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.told.IsZero() {
		p.gap.add(at.Sub(p.told))
	}
	p.told = at
}

// besideTook takes in how long a watch beside the stream took.
func (p *pace) besideTook(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.beside.add(d)
}

// proof is how long it takes on average to prove the newest state, if it is asked for now.
func (p *pace) proof(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	wait := besideDelay + p.beside.or(usualBeside)
	if p.gap.known {
		// A stream that tells nothing for longer than it usually does has become quiet.
		wait = min(wait, max(p.gap.value, now.Sub(p.told)))
	}
	question := p.question.or(usualQuestion) + max(0, p.spared.Sub(now))
	if !p.asking.IsZero() {
		// One that takes longer than usual may take as long again: nobody should wait for it in
		// vain.
		question = max(question, now.Sub(p.asking))
	}
	return question + wait*time.Duration(certainly-p.atOnce)/certainly
}

const (
	// costKept is how long a measured cost is believed.
	costKept = 5 * time.Minute
	// maxKinds is how many kinds of lists are told apart.
	maxKinds = 256
)

// listKind is what is like enough in two lists of a collection for them to cost the upstream about
// the same.
type listKind struct {
	// objects is the magnitude of how many objects the upstream looks at, limit of how many a page
	// holds; 0 is all.
	objects, limit int
	selects        bool
}

// magnitude is how many binary digits n has.
func magnitude(n int64) int { return bits.Len64(uint64(max(0, n))) }

// costs are how long the upstream takes to answer lists of each kind. Safe for concurrent use.
type costs struct {
	mu sync.Mutex
	of map[listKind]*cost
}

type cost struct {
	average
	at time.Time
}

// add takes in how long a list took.
func (c *costs) add(kind listKind, took time.Duration, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.of) >= maxKinds {
		maps.DeleteFunc(c.of, func(_ listKind, is *cost) bool { return now.Sub(is.at) >= costKept })
	}
	is := c.of[kind]
	switch {
	case is != nil && now.Sub(is.at) < costKept:
	case is == nil && len(c.of) >= maxKinds:
		return
	default:
		is = &cost{}
		if c.of == nil {
			c.of = map[listKind]*cost{}
		}
		c.of[kind] = is
	}
	is.add(took)
	is.at = now
}

// find returns how long a list takes, if that was measured not long ago.
func (c *costs) find(kind listKind, now time.Time) (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	is := c.of[kind]
	if is == nil || now.Sub(is.at) >= costKept {
		return 0, false
	}
	return is.value, true
}
