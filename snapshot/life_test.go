package snapshot

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/watch"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/samples"
)

var (
	histories   = flag.Int("snapshot.histories", 4000, "how many random histories TestHistories lives through")
	historySeed = flag.Uint64("snapshot.seed", 1, "the seed of the first; the others' follow")
)

const (
	// stepsAtMost is how long random histories are.
	stepsAtMost = 60
	// batch is how many histories share a bubble of time.
	batch = 200
)

// step is one thing that happens in a life, with two numbers that say how.
type step struct {
	kind stepKind
	a, b byte
}

func (s step) String() string { return fmt.Sprintf("%s(%d,%d)", s.kind.name, s.a, s.b) }

// stepKind is a kind of steps, and how often random histories have it.
type stepKind struct {
	name   string
	weight int
	do     func(*life, step) error
}

// aLoad is the first step of each history.
var aLoad = stepKind{"load", 8, (*life).load}

var stepKinds = []stepKind{
	aLoad, // a complete state, if nothing is known, or beside what is
	{"write", 40, func(l *life, s step) error { return l.tell(l.happen(s)) }}, // a live feed tells
	{"elsewhere", 6, func(l *life, s step) error { // another resource changes
		l.move(l.head + 1 + uint64(s.a%3))
		return nil
	}},
	{"bookmark", 10, (*life).checkpoint},
	{"time", 12, (*life).pass},
	{"break", 6, func(l *life, s step) error { // no stream is read from now on, or one is again, from where the last had come to
		l.broken = l.known && s.a%2 == 0
		l.c.setStreaming(!l.broken)
		return nil
	}},
	{"outage", 6, func(l *life, _ step) error { // nobody answers from now on, or somebody does again
		if l.out.Lasts {
			l.out = clock.Outage{Heard: l.out.Heard, Ended: time.Now()}
			return nil
		}
		l.broken, l.out = l.known, clock.Outage{Lasts: true, Heard: time.Now()}
		l.c.setStreaming(!l.broken)
		return nil
	}},
	{"probe", 6, (*life).probe},
	{"slow", 8, (*life).slowDown}, // what the stream tells is late from now on, ever more or less
	{"doubt", 1, func(l *life, _ step) error {
		l.drop(reason.Warming)
		return nil
	}},
	{"take memory", 3, func(l *life, _ step) error { // as the janitor does
		l.c.shorten()
		l.cut = l.told.To
		return nil
	}},
	{"bound memory", 2, func(l *life, s step) error { // or not any more
		if l.b.limit = 0; s.a%2 == 0 {
			l.b.limit = max(1, l.b.used.Load()+int64(s.b)*64)
		}
		return nil
	}},
}

// life is a collection and what must be true of it.
type life struct {
	model
	c        *Collection
	b        *budget
	envelope *wire.Envelope
}

func newLife() *life {
	l := &life{b: &budget{}, envelope: samples.Envelope("PodList", "v1")}
	l.c = newCollection(CollectionKey{}, Limits{History: modelHistory, Staleness: modelStaleness}, l.b, &watch.Pacer{}, &source.ProbeNumbers{})
	l.c.outage = func() clock.Outage { return l.out }
	l.trimmed = time.Now()
	l.move(modelStart)
	return l
}

// relive goes through a history and returns what is wrong first, and after which step.
func relive(steps []step) (after int, err error) {
	l := newLife()
	for i, s := range steps {
		if err := s.kind.do(l, s); err != nil {
			return i, err
		}
		dice := uint64(i)<<16 | uint64(s.a)<<8 | uint64(s.b)
		some := []uint64{l.told.To, l.told.To + 1, modelStart - 1 + dice%(l.head-modelStart+4)}
		if err := l.check(some); err != nil {
			return i, err
		}
	}
	var all []uint64
	for rev := uint64(modelStart - 1); rev <= l.head+1; rev++ {
		all = append(all, rev)
	}
	if err = l.check(all); err == nil {
		l.c.retire(reason.Warming)
		l.forget()
		err = l.check(all)
	}
	return len(steps) - 1, err
}

// checkpoint is a bookmark, which tells how far the stream is.
func (l *life) checkpoint(step) error {
	rev := l.confirmed()
	if !l.streams() {
		return nil
	}
	l.reach(rev)
	return l.c.progress(rev)
}

// pass is time, in which history is cut.
func (l *life) pass(s step) error {
	time.Sleep(10 * time.Second * time.Duration(1+s.a%8))
	if s.b%4 != 0 {
		l.c.trim(time.Now())
		l.trimmed = time.Now()
	}
	return nil
}

// happen changes an object upstream.
func (l *life) happen(s step) stateChange {
	l.move(l.head + 1)
	key := int(s.a) % len(modelKeys)
	ch := stateChange{kind: wire.Added, key: modelKeys[key], revision: l.head}
	if l.past.replay(l.head)[key] != nil {
		ch.kind = wire.Modified
		if s.b%3 == 0 {
			ch.kind = wire.Deleted
		}
	}
	if ch.kind != wire.Deleted {
		ch.object = modelObject(key, l.head, s.b)
	}
	l.past = append(l.past, happening{l.head, key, ch.object})
	return ch
}

// slowDown makes what is live slow, or makes it tell some of what is late.
func (l *life) slowDown(s step) error {
	for range 1 + s.a%4 {
		if !l.streams() {
			break
		}
		if len(l.untold) == 0 {
			l.slow = s.b%2 == 0
			break
		}
		next := l.untold[0]
		l.untold = l.untold[1:]
		if err := l.tellNow(next); err != nil {
			return err
		}
	}
	return nil
}

// confirmed is the revision up to which a bookmark can tell.
func (l *life) confirmed() uint64 {
	if len(l.untold) > 0 {
		return l.untold[0].revision - 1
	}
	return l.head
}

// tell makes a live feed tell of a change, now or later.
func (l *life) tell(ch stateChange) error {
	if l.known && (l.slow || l.broken || len(l.untold) > 0) {
		l.untold = append(l.untold, ch)
		return nil
	}
	return l.tellNow(ch)
}

func (l *life) tellNow(ch stateChange) error {
	if !l.streams() {
		return nil
	}
	err := l.c.apply(ch)
	l.reach(ch.revision)
	if l.b.limit > 0 {
		l.cut = l.told.To // it may have been shortened
	}
	if !errors.Is(err, errFull) {
		if err == nil && l.b.full() {
			return errors.New("the byte bound is exceeded")
		}
		return err
	}
	if !l.b.full() {
		return errors.New("a change is refused for want of memory that is there")
	}
	l.drop(reason.Memory)
	return nil
}

// streams says whether a stream tells what happens.
func (l *life) streams() bool { return l.known && !l.broken }

// drop forgets all that was told.
func (l *life) drop(why reason.Reason) {
	l.c.drop(why)
	l.forget()
}

// load replaces what was known by the upstream's state of the moment at which it was asked for.
func (l *life) load(s step) error {
	if err := l.c.observe(l.head, l.c.minRevision()); err != nil {
		return err
	}
	state, size := index.NewTree(false), int64(0)
	for _, o := range l.past.replay(l.head) {
		if o != nil {
			state.Set(o)
			size += o.Size()
		}
	}
	asked := time.Now()
	if s.a%4 == 0 {
		time.Sleep(time.Duration(s.b) * time.Second)
	}
	l.b.add(size)
	l.c.install(loadedState{state: state, size: size, revision: l.head, envelope: l.envelope, form: &watch.Form{}, Probe: l.c.at(asked)})
	l.open(asked)
	l.c.setStreaming(true)
	return nil
}

// probe is a read of the upstream's revision, which may take its time.
func (l *life) probe(s step) error {
	if !l.streams() {
		return nil
	}
	if err := l.c.observe(l.head, l.c.minRevision()); err != nil {
		return err
	}
	asked := time.Now()
	if s.a%4 == 0 {
		time.Sleep(10 * time.Second * time.Duration(s.b%16))
	}
	covered := l.told.To >= l.head
	l.pendingProbes = append(l.pendingProbes, checkpoint{asked, l.head})
	if covered {
		l.reach(l.told.To)
	}
	if got := l.c.expect(probeResult{l.head, l.c.at(asked)}); got != covered {
		return fmt.Errorf("a probe at %d is covered: %v; told was %d", l.head, got, l.told.To)
	}
	return nil
}

// randomSteps are the history of a seed.
func randomSteps(seed uint64) []step {
	random := rand.New(rand.NewPCG(seed, 6))
	total := 0
	for _, kind := range stepKinds {
		total += kind.weight
	}
	steps := []step{{kind: aLoad}}
	for range random.IntN(stepsAtMost) {
		s, n := step{a: byte(random.Uint32()), b: byte(random.Uint32())}, random.IntN(total)
		for _, s.kind = range stepKinds {
			if n -= s.kind.weight; n < 0 {
				break
			}
		}
		steps = append(steps, s)
	}
	return steps
}

// TestHistories lives through random histories (changes, bookmarks, gaps, loads, time, memory) and asks at each
// step for states at revisions. -snapshot.histories says through how many.
func TestHistories(t *testing.T) {
	workers := runtime.GOMAXPROCS(0)
	for w := range workers {
		t.Run(fmt.Sprint(w), func(t *testing.T) {
			t.Parallel()
			for first := w * batch; first < *histories && !t.Failed(); first += workers * batch {
				synctest.Test(t, func(t *testing.T) {
					for i := first; i < min(first+batch, *histories); i++ {
						seed := *historySeed + uint64(i) // #nosec G115 -- a count
						if after, err := relive(randomSteps(seed)); err != nil {
							t.Fatalf("-snapshot.seed=%d -snapshot.histories=1: %v\n>> %v", seed, randomSteps(seed)[:after+1], err)
						}
					}
				})
			}
		})
	}
}
