package snapshot

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/samples"
)

// TestStartsAreBounded: someone who asks for everything does not make the upstream read
// everything at once. What the policy wants is not held back.
func TestStartsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCollections(t, &upstream{intercept: fault{code: http.StatusServiceUnavailable}.intercept()})
		started := func(n int) int {
			ok := 0
			for i := range n {
				if _, unavailable := c.Use(resourceNamed(fmt.Sprintf("r%d-%d", n, i))); unavailable == reason.None {
					ok++
				} else if unavailable != reason.Warming {
					t.Fatalf("got %q, want %q", unavailable, reason.Warming)
				}
			}
			return ok
		}
		if got := started(200); got != startsAtOnce {
			t.Errorf("%d collections started at once, want %d", got, startsAtOnce)
		}
		if _, unavailable := c.Use(resourceNamed("r200-0")); unavailable != reason.None {
			t.Errorf("one that is there: %q", unavailable)
		}
		if _, unavailable := c.Keep(resourceNamed("eager")); unavailable != reason.None {
			t.Errorf("an eager one: %q", unavailable)
		}
		time.Sleep(2 * time.Second)
		if got := started(201); got != 2*startsPerSecond {
			t.Errorf("%d collections started two seconds later, want %d", got, 2*startsPerSecond)
		}
	})
}

// TestSettingsOfAResource: its history may be shorter. What nobody asks for goes, which is no loss.
func TestSettingsOfAResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCollections(t, &upstream{revision: 9}, func(config *Config) {
			config.Idle = 10 * time.Minute
			config.Settings = func(gvr schema.GroupVersionResource) Settings {
				return map[string]Settings{"short": {History: time.Minute}}[gvr.Resource]
			}
		})
		short, _ := c.Use(resourceNamed("short"))
		other, _ := c.Use(resourceNamed("other"))
		if short.limits.History != time.Minute || other.limits.History != time.Hour || short.limits.Staleness != 90*time.Second {
			t.Errorf("histories of %v and %v", short.limits, other.limits)
		}
		time.Sleep(time.Hour)
		if losses := other.counts.lossesByCause(); len(losses) > 0 {
			t.Errorf("losses %v of an idle collection, want none", losses)
		}
		if again, _ := c.Use(resourceNamed("other")); again == other {
			t.Error("nobody asked for an hour, and it is still there")
		}
	})
}

// TestWhatCannotFit: what cannot fit is known by the first objects, unless they are large.
func TestWhatCannotFit(t *testing.T) {
	all := &budget{limit: 1000 << 20}
	small := &budget{limit: 100 << 20}
	for _, tt := range []struct {
		learned source.Learned
		budget  *budget
		want    bool
	}{
		{learned: source.Learned{Count: oversizeFactor * 900, Mean: 1 << 20}, budget: all, want: true},
		{learned: source.Learned{Count: oversizeFactor * 900 * 64, Mean: 16 << 10}, budget: all, want: true},
		{learned: source.Learned{Count: oversizeFactor*900*64 + 1000, Mean: 16 << 10}, budget: all},
		{learned: source.Learned{Count: oversizeFactor * 900 * 64, Mean: 16 << 10}, budget: small},
		{learned: source.Learned{Count: oversizeFactor*900*64 + 1000, Mean: 1 << 20}, budget: all},
		{learned: source.Learned{Count: 4000, Mean: 1 << 20}, budget: all, want: true}, // the first may be larger than the others
		{learned: source.Learned{}, budget: all, want: true},
		{learned: source.Learned{Count: 1 << 40, Mean: 1 << 10}, budget: &budget{}, want: true},
	} {
		if got := mayFit(tt.learned, tt.budget); got != tt.want {
			t.Errorf("%+v: may fit %t, want %t", tt.learned, got, tt.want)
		}
	}
}

// TestALoadIsCountedBeforeItBegins: where little is left, nothing is read; and when it is over, only what
// came is counted.
func TestALoadIsCountedBeforeItBegins(t *testing.T) {
	envelope, o := samples.Envelope("PodList", "v1"), &index.Object{Key: "a", Bytes: make([]byte, 100)}
	for name, tt := range map[string]struct {
		used, size   int64
		want         error
		wantReserved int64
	}{
		"what fits":             {size: 400, wantReserved: 400},
		"what seems not to fit": {size: oversizeFactor * 900, wantReserved: 450},
		"more than was thought": {size: 10, wantReserved: 10},
		"where nothing fits":    {size: 10, used: 950, want: errFull},
	} {
		t.Run(name, func(t *testing.T) {
			b := &budget{limit: 1000}
			b.add(tt.used)
			l, err := newLoaded(source.Learned{Envelope: envelope, Count: 1, Mean: tt.size}, b, source.Probe{})
			if !errors.Is(err, tt.want) || b.used.Load() != tt.used+tt.wantReserved {
				t.Fatalf("%v, with %d bytes on the account", err, b.used.Load())
			}
			if err != nil {
				return
			}
			expect.NoError(t, l.count(o.Size()))
			if used := b.used.Load(); used != max(tt.wantReserved, o.Size()) {
				t.Errorf("with an object, %d bytes are on the account", used)
			}
			l.endReservation()
			if b.used.Load() != o.Size() {
				t.Errorf("%d bytes on the account of a state of %d", b.used.Load(), o.Size())
			}
			if err := l.count(900); !errors.Is(err, errFull) {
				t.Errorf("more than there is room for: %v", err)
			}
			l.discard()
			if b.used.Load() != 0 {
				t.Errorf("%d bytes on the account of nothing", b.used.Load())
			}
		})
	}
}

// TestMakeRoom: when less than a tenth of the bound is free, histories become shorter, and the collection that was idle
// for longest is dropped. Eager collections and those in use stay.
func TestMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = 1 << 20
		u := &upstream{revision: 9, repeats: itemEvent("ADDED", itemC), repeatEvery: time.Minute} // so there is a history
		all := newCollections(t, u, func(c *Config) { c.Bytes, c.Limits.Staleness = bound, time.Hour })
		now := time.Now()
		collections := map[string]*Collection{}
		for name, idleFor := range map[string]time.Duration{"used": 0, "idle": minIdleForEviction, "eager": 2 * minIdleForEviction} {
			use := all.Use
			if name == "eager" {
				use = all.Keep
			}
			collections[name], _ = use(resourceNamed(name))
			lastUse := now.Add(time.Minute + time.Second - idleFor)
			collections[name].lastUse.Store(&lastUse)
		}
		time.Sleep(time.Minute + time.Second)
		all.budget.add(bound/20*19 - all.budget.used.Load())
		time.Sleep(tidyInterval)
		synctest.Wait()
		for name, c := range collections {
			if dropped := c.view.Load().unavailable == reason.Memory; dropped != (name == "idle") {
				t.Errorf("the %s collection is dropped: %t", name, dropped)
			}
		}
		if _, unavailable := collections["used"].view.Load().exact(moment{}, 9); unavailable != reason.History {
			t.Errorf("the state before the last change: %q, want %q", unavailable, reason.History)
		}
	})
}

// TestCountsAreBounded: what is counted of resources that nobody uses any more is forgotten.
func TestCountsAreBounded(t *testing.T) {
	c := newCollections(t, &upstream{revision: 9})
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range 5 * maxCollections {
		r := configMaps
		r.Group = fmt.Sprint(i)
		c.countsLocked(r)
		if len(c.counts) > 2*maxCollections {
			t.Fatalf("%d are kept", len(c.counts))
		}
	}
}
