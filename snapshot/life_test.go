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
	histories   = flag.Int("snapshot.histories", 4000, "number of random histories that TestHistories checks")
	historySeed = flag.Uint64("snapshot.seed", 1, "seed of the first history; the next history has the next seed")
)

const (
	// maxSteps bounds the steps of a history after the first load.
	maxSteps = 60
	// historiesPerBubble is the number of histories that share a synctest bubble, since each new bubble takes time to begin.
	historiesPerBubble = 200
)

// TestHistories: a collection lives through a random history of writes, bookmarks, broken streams, loads and so on. After each
// step, the collection answers for exactly those revisions for which the model says so, with the model's objects.
func TestHistories(t *testing.T) {
	workers := runtime.GOMAXPROCS(0)
	stride := workers * historiesPerBubble // each worker checks every workers-th bubble
	for worker := range workers {
		t.Run(fmt.Sprint(worker), func(t *testing.T) {
			t.Parallel()
			for first := worker * historiesPerBubble; first < *histories && !t.Failed(); first += stride {
				end := min(first+historiesPerBubble, *histories)
				synctest.Test(t, func(t *testing.T) { checkHistories(t, first, end) })
			}
		})
	}
}

// checkHistories checks the histories with the numbers from first to end-1.
func checkHistories(t *testing.T, first, end int) {
	t.Helper()
	for i := first; i < end; i++ {
		seed := *historySeed + uint64(i) // #nosec G115 -- a count
		steps := randomSteps(seed)
		if failedStep, err := runSteps(steps); err != nil {
			t.Fatalf("-snapshot.seed=%d -snapshot.histories=1: %v\nafter the steps %v", seed, err, steps[:failedStep+1])
		}
	}
}

// randomSteps returns the steps of the history with a seed. The first one is a load.
func randomSteps(seed uint64) []step {
	const stream = 6 // the second seed; any other number gives other histories
	random := rand.New(rand.NewPCG(seed, stream))
	total := 0
	for _, kind := range stepKinds {
		total += kind.weight
	}
	steps := []step{{kind: loadStep}}
	for range random.IntN(maxSteps) {
		s := step{choice: byte(random.Uint32()), amount: byte(random.Uint32())}
		chosen := random.IntN(total) // the kind in whose weight this number falls
		for _, kind := range stepKinds {
			if chosen < kind.weight {
				s.kind = kind
				break
			}
			chosen -= kind.weight
		}
		steps = append(steps, s)
	}
	return steps
}

// runSteps lets a collection live through a history. It returns the first error, and the index of the step that led to it.
func runSteps(steps []step) (failedStep int, err error) {
	l := newLife()
	for i, s := range steps {
		if err = s.kind.run(l, s); err != nil {
			return i, err
		}
		l.proveState()
		newest := l.applied.To
		if err = l.check([]uint64{newest, newest + 1, l.pickRevision(i, s)}); err != nil {
			return i, err
		}
	}

	// At the end, all revisions are checked. A retired collection must not answer for any.
	last := len(steps) - 1
	var all []uint64
	for revision := uint64(modelStart - 1); revision <= l.upstream+1; revision++ {
		all = append(all, revision)
	}
	if err = l.check(all); err != nil {
		return last, err
	}
	l.collection.retire()
	l.forgetState()
	return last, l.check(all)
}

// pickRevision returns a revision from modelStart-1 to two after the upstream's newest. The same step at the same index picks
// the same revision, so that a failed history can be repeated.
func (l *life) pickRevision(stepIndex int, s step) uint64 {
	number := uint64(stepIndex)<<16 | uint64(s.choice)<<8 | uint64(s.amount) // #nosec G115 -- an index
	revisions := l.upstream - modelStart + 4
	return modelStart - 1 + number%revisions
}

// step is one thing that happens in a history. What exactly happens depends on two random numbers. For example, a write takes
// the key from choice, and the size of the object from amount.
type step struct {
	kind           stepKind
	choice, amount byte
}

// oneIn returns true in one of n cases. It depends on choice.
func (s step) oneIn(n byte) bool { return s.choice%n == 0 }

// String returns the step as a failed test shows it.
func (s step) String() string {
	return fmt.Sprintf("%s (choice %d, amount %d)", s.kind.name, s.choice, s.amount)
}

// stepKind is a kind of steps.
type stepKind struct {
	name   string
	weight int // how often random histories have it, compared with others
	run    func(*life, step) error
}

// loadStep loads a complete state: the first one, or one that replaces the known state.
var loadStep = stepKind{name: "load", weight: 8, run: (*life).load}

var stepKinds = []stepKind{
	loadStep,
	// An object changes upstream.
	{name: "write", weight: 40, run: func(l *life, s step) error {
		change := l.writeUpstream(s)
		return l.receive(change)
	}},
	// Another resource changes, so that only the upstream's revision grows.
	{name: "write elsewhere", weight: 6, run: func(l *life, s step) error {
		l.setUpstream(l.upstream + 1 + uint64(s.choice%3))
		return nil
	}},
	{name: "bookmark", weight: 10, run: (*life).receiveBookmark},
	{name: "time passes", weight: 12, run: (*life).passTime},
	// The feed's stream (its watch) breaks, or is opened again after the last applied revision.
	{name: "break", weight: 6, run: func(l *life, s step) error {
		l.setBroken(l.known && s.oneIn(2))
		return nil
	}},
	// The upstream stops answering, which breaks the stream. If it has stopped before, it answers again instead; the stream
	// stays broken until a later step opens it.
	{name: "outage", weight: 6, run: func(l *life, _ step) error {
		if l.outage.Ongoing {
			l.outage.Ongoing = false
			l.outage.Ended = time.Now()
			return nil
		}
		l.outage = clock.Outage{Ongoing: true, LastHeard: time.Now(), Began: time.Now()}
		l.setBroken(l.known)
		return nil
	}},
	{name: "probe", weight: 6, run: (*life).probe},
	{name: "apply delayed changes", weight: 8, run: (*life).applyDelayed},
	// The collection loses its state, as after a contradicting event.
	{name: "drop", weight: 1, run: func(l *life, _ step) error {
		l.drop(reason.Warming)
		return nil
	}},
	// The janitor frees memory: it forgets about half of the history.
	{name: "trim", weight: 3, run: func(l *life, _ step) error {
		l.collection.trimHalf()
		l.freedBefore = l.applied.To
		return nil
	}},
	// The bound of the bytes in memory changes. 0 means that there is no bound.
	{name: "set bound", weight: 2, run: func(l *life, s step) error {
		const unit = 64 // bytes: about one object
		l.budget.limit = 0
		if s.oneIn(2) {
			l.budget.limit = max(1, l.budget.used.Load()+int64(s.amount)*unit)
		}
		return nil
	}},
}

// life is a collection, and the model of what it must know (model_test.go). Each step changes both.
type life struct {
	model
	collection *Collection
	freshness  source.Freshness // what the feed knows of its stream and its probes
	budget     *budget          // counts the bytes of the collection
	envelope   *wire.Envelope   // the bytes around the items of each list
}

// newLife returns a collection without a state, whose upstream is at revision modelStart.
func newLife() *life {
	l := &life{budget: &budget{}, envelope: samples.Envelope("PodList", "v1")}
	limits := Limits{History: modelHistory, Staleness: modelStaleness}
	outage := func() clock.Outage { return l.outage }
	s := shared{budget: l.budget, outage: outage, pacer: &watch.Pacer{}, probes: &source.ProbeCounter{}}
	l.collection = newCollection(CollectionKey{}, limits, s, &collectionCounts{})
	l.trimmedAt = time.Now()
	l.setUpstream(modelStart)
	return l
}

// load replaces what is known by the upstream's state. One load of four is slow: to read the state takes about four minutes at
// most.
func (l *life) load(s step) error {
	if err := l.collection.recordRevision(l.upstream, l.collection.highestSeenRevision()); err != nil {
		return err
	}
	state, size := index.NewTree(withoutIndex), int64(0)
	for _, o := range l.stateAt(l.upstream) {
		if o != nil {
			state.Set(o)
			size += o.Size()
		}
	}
	askedAt := time.Now()
	if isSlow := s.oneIn(4); isSlow {
		time.Sleep(time.Duration(s.amount) * time.Second)
	}
	l.budget.add(size) // as a load does
	l.collection.install(&stateLoad{
		state: state, size: size, revision: l.upstream, envelope: l.envelope,
		watchForm: &watch.Form{}, probe: probeSentAt(l.collection, askedAt),
	})
	l.beginState(askedAt)
	l.freshness.StreamOpened(time.Now())
	l.collection.setStreaming(true)
	return nil
}

// writeUpstream creates, updates or deletes an object upstream, and returns the change.
func (l *life) writeUpstream(s step) stateChange {
	l.setUpstream(l.upstream + 1)
	keyIndex := int(s.choice) % len(modelKeys)
	change := stateChange{kind: wire.Added, key: modelKeys[keyIndex], revision: l.upstream}
	before := l.stateAt(l.upstream)
	exists := before[keyIndex] != nil
	isDeletion := exists && s.amount%3 == 0
	switch {
	case isDeletion:
		change.kind = wire.Deleted
	case exists:
		change.kind = wire.Modified
	}
	if !isDeletion {
		change.object = modelObject(keyIndex, l.upstream, s.amount)
	}
	l.writes = append(l.writes, write{revision: l.upstream, keyIndex: keyIndex, object: change.object})
	return change
}

// receive lets the feed apply a change. If the stream cannot send the change now, receive adds it to the delayed ones.
func (l *life) receive(change stateChange) error {
	mustWait := l.slow || l.broken || len(l.delayed) > 0
	if l.known && mustWait {
		l.delayed = append(l.delayed, change)
		return nil
	}
	return l.apply(change)
}

// apply lets the feed apply a change, if it reads a stream.
func (l *life) apply(change stateChange) error {
	if !l.isStreaming() {
		return nil
	}
	err := l.collection.applyChange(change)
	l.advanceTo(change.revision)
	if l.budget.limit > 0 {
		l.freedBefore = l.applied.To // history may have been trimmed
	}
	isFull := l.budget.exceeded()
	switch {
	case errors.Is(err, errFull) && !isFull:
		return errors.New("a change does not fit, though the byte bound is not exceeded")
	case errors.Is(err, errFull):
		l.drop(reason.Memory)
		return nil
	case err == nil && isFull:
		return errors.New("the byte bound is exceeded")
	}
	return err
}

// receiveBookmark lets the feed apply a bookmark at the highest revision before the first delayed change.
func (l *life) receiveBookmark(step) error {
	if !l.isStreaming() {
		return nil
	}
	revision := l.upstream
	if len(l.delayed) > 0 {
		revision = l.delayed[0].revision - 1
	}
	l.advanceTo(revision)
	return l.collection.applyBookmark(revision)
}

// applyDelayed applies up to four of the delayed changes. When none is left, it makes the stream slow, or fast again.
func (l *life) applyDelayed(s step) error {
	most := 1 + s.choice%4
	for range most {
		if !l.isStreaming() {
			break
		}
		if len(l.delayed) == 0 {
			l.slow = s.amount%2 == 0
			break
		}
		first := l.delayed[0]
		l.delayed = l.delayed[1:]
		if err := l.apply(first); err != nil {
			return err
		}
	}
	return nil
}

// passTime lets time pass. Usually, the janitor then trims the history by age.
func (l *life) passTime(s step) error {
	seconds := 10 * (1 + s.choice%8) // 10 to 80
	time.Sleep(time.Duration(seconds) * time.Second)
	if trims := s.amount%4 != 0; trims {
		l.collection.trimByAge(time.Now())
		l.trimmedAt = time.Now()
	}
	return nil
}

// probe asks the upstream for its newest revision. One probe of four is slow: its answer takes up to 150 seconds.
func (l *life) probe(s step) error {
	if !l.isStreaming() {
		return nil
	}
	if err := l.collection.recordRevision(l.upstream, l.collection.highestSeenRevision()); err != nil {
		return err
	}
	askedAt := time.Now()
	if isSlow := s.oneIn(4); isSlow {
		time.Sleep(10 * time.Second * time.Duration(s.amount%16))
	}
	l.probes = append(l.probes, checkpoint{at: askedAt, revision: l.upstream})
	if l.applied.To >= l.upstream { // the answer is reached already
		l.advanceTo(l.applied.To)
	}
	l.freshness.ProbeSent(probeSentAt(l.collection, askedAt))
	l.freshness.ProbeAnswered(time.Now(), l.upstream)
	return nil
}

// proveState lets the feed record the last probe that proves the state: its answer is a revision that the state has reached. A
// feed does so after each event.
func (l *life) proveState() {
	if l.isStreaming() {
		l.collection.prove(l.freshness.StateReached(l.collection.view.Load().To))
	}
}

// isStreaming reports whether the feed reads a stream.
func (l *life) isStreaming() bool { return l.known && !l.broken }

// setBroken breaks the stream, or opens it again. A revision that a new stream reaches proves nothing about probes that were
// sent before the stream was opened.
func (l *life) setBroken(broken bool) {
	if l.broken && !broken {
		l.freshness.StreamOpened(time.Now())
		l.probes = nil
	}
	l.broken = broken
	l.collection.setStreaming(!broken)
}

// drop lets the collection forget everything.
func (l *life) drop(why reason.Reason) {
	l.collection.drop(why)
	l.forgetState()
}
