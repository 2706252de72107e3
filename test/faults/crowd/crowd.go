package crowd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/listproxy/listproxy/test/faults/load"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
)

const (
	// strictEach: one of so many watchers is strict.
	strictEach = 10
	// slowEach: one of so many of the others hardly reads, by a connection with a small window.
	slowEach   = 25
	slowWindow = 4 << 10
	// connections is how many the others share.
	connections = 16
	// within is the time in which all begin.
	within = 30 * time.Second
	// shortest and longest are how long a watch lives.
	shortest, longest = time.Second, 2 * time.Minute
	// pause is how long after one watch the next begins, at most; twice that after each one that was
	// not answered, up to patience, as client-go waits: a busy API server must be able to recover.
	pause, patience = time.Second, 30 * time.Second
	// changeEvery is the time between two changes for them to see.
	changeEvery = 100 * time.Millisecond
	// nodes is how many there are, and agents how many pods of each namespace may run on them.
	nodes, agents = 100, 30
	// shades are values of a label.
	shades = 4
)

// Options are what a crowd needs.
type Options struct {
	// Watchers is how many there are at a time.
	Watchers int
	Kinds    []kinds.Kind
	Pods     kinds.Kind
	// Collections are what they ask for.
	Collections []load.Collection
	Namespaces  []string
	// Names is how many objects of each kind come and go in each of them.
	Names int
	// Direct leads to kube-apiserver.
	Direct *ask.Client
	Load   *load.Load
	// Writing is held by who writes.
	Writing sync.Locker
	// Connect returns a client of listproxy with connections of its own, and what ends them.
	Connect func(*http.Transport) (*ask.Client, func(), error)
}

// Crowd is many watchers. Safe for concurrent use.
type Crowd struct {
	Options
	History History

	// ending is held by who ends a watch, and by Settle.
	ending sync.RWMutex

	mu      sync.Mutex
	watched map[*watching]bool // by strict ones, now
	counts  Counts
	why     map[string]int // watches were forwarded, by Cache-Status, or not answered

	open, fromMemory atomic.Int64
}

// Counts are a crowd's.
type Counts struct {
	// Begun are watches that were answered with 200: Hits from memory. Most is how many were open at
	// a time, and MostHits how many of these from memory.
	Begun, Hits    int
	Most, MostHits int64
	// Judged are strict ones, JudgedHits those from memory, and Events what they were told.
	Judged, JudgedHits, Events int
	// Slow hardly read.
	Slow int
	// Bytes is what the others read.
	Bytes int64
	// Cut are streaming lists of strict watchers that ended in order before all initial events had
	// been told, and CutHits those of them from memory.
	Cut, CutHits int
	// Broken are forwarded ones that did not end in order.
	Broken int
}

// Share is the part from memory, in percent.
func (c Counts) Share() float64 { return 100 * float64(c.Hits) / float64(max(1, c.Begun)) }

// Counts returns what was counted.
func (c *Crowd) Counts() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts
}

// Why says how often each reason was given to forward a watch, or for not answering it.
func (c *Crowd) Why() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	for _, why := range slices.SortedFunc(maps.Keys(c.why), func(a, b string) int { return c.why[b] - c.why[a] }) {
		all = append(all, fmt.Sprintf("%d × %s", c.why[why], why))
	}
	return strings.Join(all, ", ")
}

func (c *Crowd) count(f func(*Counts)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.counts)
}

func (c *Crowd) note(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.why == nil {
		c.why = map[string]int{}
	}
	c.why[why]++
}

// Start lets watchers come, until stop is called, which waits for their end. ctx must live longer:
// what strict ones were told is judged then.
func (c *Crowd) Start(ctx context.Context) (stop func(), err error) {
	var leave []func()
	var fast []*ask.Client
	for range connections {
		via, end, err := c.Connect(&http.Transport{ForceAttemptHTTP2: true})
		if err != nil {
			return nil, err
		}
		fast, leave = append(fast, via), append(leave, end)
	}
	slow, end, err := c.Connect(&http.Transport{ForceAttemptHTTP2: true, HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: slowWindow}})
	if err != nil {
		return nil, err
	}
	leave = append(leave, end)
	alive, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	for i := range c.Watchers {
		w := watcher{Crowd: c, via: fast[i%len(fast)]}
		switch {
		case i%strictEach == 0:
			w.strict = true
		case i%slowEach == 1:
			w.slow, w.via = true, slow
		}
		all.Go(func() {
			for poll.Pause(alive, rand.N(within)) { // not all at once
				for w.live(ctx, alive) {
				}
			}
		})
	}
	return sync.OnceFunc(func() {
		cancel()
		all.Wait()
		for _, end := range leave {
			end()
		}
	}), nil
}

// Settle waits until all strict watchers that are open have been told all that was written, while
// nobody writes. None is ended by its client meanwhile.
func (c *Crowd) Settle(ctx context.Context) error {
	c.ending.Lock()
	defer c.ending.Unlock()
	c.mu.Lock()
	open := slices.Collect(maps.Keys(c.watched))
	c.mu.Unlock()
	return poll.Retry(ctx, "what was written, at all watchers", func() error {
		for _, w := range open {
			if err := w.lacks(&c.History); err != nil {
				return fmt.Errorf("GET %s: %w", w.target, err)
			}
		}
		return nil
	})
}

// Change makes changes for watchers to see, until ctx ends: labels, and pods of nodes. What fails,
// fails.
func (c *Crowd) Change(ctx context.Context) {
	for poll.Pause(ctx, changeEvery) {
		c.Writing.Lock()
		c.changeOne(ctx)
		c.Writing.Unlock()
	}
}

func (c *Crowd) changeOne(ctx context.Context) {
	ns := c.Namespaces[rand.IntN(len(c.Namespaces))]
	pod := fmt.Sprintf("agent-%02d", rand.IntN(agents))
	switch dice := rand.IntN(10); {
	case dice < 4:
		k := c.Kinds[rand.IntN(len(c.Kinds))]
		var shade any // nil: none
		if n := rand.IntN(shades + 1); n > 0 {
			shade = shadeOf(n)
		}
		_, _ = c.Load.Write(ctx, c.Direct, k, http.MethodPatch, k.Path(ns)+"/"+load.NameOf(rand.IntN(c.Names)),
			kinds.Fields{"metadata": kinds.Fields{"labels": kinds.Fields{shadeLabel: shade}}})
	case dice < 6:
		_, _ = c.Load.Write(ctx, c.Direct, c.Pods, http.MethodPost, c.Pods.Path(ns), c.Pods.Object(pod))
	case dice < 8: // it comes to a node
		_, _ = c.Direct.Do(ctx, http.MethodPost, c.Pods.Path(ns)+"/"+pod+"/binding", kinds.Fields{
			"apiVersion": "v1", "kind": "Binding", "metadata": kinds.Fields{"name": pod}, "target": kinds.Fields{"kind": "Node", "name": nodeOf()},
		})
	case dice < 9:
		_, _ = c.Load.Touch(ctx, c.Direct, c.Pods, ns, pod)
	default:
		_, _ = c.Load.Write(ctx, c.Direct, c.Pods, http.MethodDelete, load.Delete(c.Pods, ns, pod), nil)
	}
}

const shadeLabel = "shade"

func shadeOf(n int) string { return fmt.Sprintf("shade-%d", n) }
func nodeOf() string       { return fmt.Sprintf("node-%02d", rand.IntN(nodes)) }

// Judge returns what is not as it must be.
func (c *Crowd) Judge() error {
	n := c.Counts()
	var wrong []error
	for what, some := range map[string]int{
		"watch came from memory": n.Hits, "watch was forwarded": n.Begun - n.Hits, "watch of a slow reader began": n.Slow,
		"watch from memory was held against etcd's history": n.JudgedHits, "forwarded watch was": n.Judged - n.JudgedHits, "event was told": n.Events,
	} {
		if some == 0 {
			wrong = append(wrong, fmt.Errorf("no %s: let it run longer", what))
		}
	}
	if n.Most < int64(c.Watchers)*3/4 {
		wrong = append(wrong, fmt.Errorf("only %d of %d watchers had a watch at a time", n.Most, c.Watchers))
	}
	if n.Share() < enough {
		wrong = append(wrong, fmt.Errorf("only %.0f %% of watches came from memory: %s", n.Share(), c.Why()))
	}
	return errors.Join(wrong...)
}

// enough is which part of all watches is to come from memory, in percent.
const enough = 25

func (c *Crowd) String() string {
	n := c.Counts()
	return fmt.Sprintf("%d watches came and went, %d at a time, of which %d from memory: %.0f %% of all; %d strict ones with %d events held against etcd's history, %d of them from memory; "+
		"%d hardly read; the others were told %.0f MiB; of streaming lists %d from memory and %d forwarded ones ended in order before their bookmark; %d forwarded watches broke",
		n.Begun, n.Most, n.MostHits, n.Share(), n.Judged, n.Events, n.JudgedHits, n.Slow, float64(n.Bytes)/(1<<20), n.CutHits, n.Cut-n.CutHits, n.Broken)
}
