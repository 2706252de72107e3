package snapshot

import (
	"errors"
	"fmt"
	"net/http"
	"path"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
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

// TestWhereMemoryIsShort: at nine tenths of the bound histories become shorter, and what nobody asks for goes.
// A change that does not fit has another collection go that nobody asks for, and not the one that it came
// to, as long as that is in use. What the policy keeps stays.
func TestWhereMemoryIsShort(t *testing.T) {
	const bound = 1 << 20
	// Between two looks of the janitor.
	const change = 2*time.Minute + 500*time.Millisecond
	for name, tt := range map[string]struct {
		// How long ago each collection was asked for.
		sinceIdle, sinceUsed, sinceKept time.Duration
		full, look                      time.Duration // when memory is short, and when we look, after the change
		left                            int64         // bytes
		wantGone                        string
	}{
		"nine tenths": {
			sinceIdle: minIdleForEviction, sinceKept: 2 * minIdleForEviction,
			full: 100 * time.Millisecond, look: time.Second, left: bound / 20, wantGone: "idle",
		},
		"a change, and another is idle": {
			sinceIdle: minIdleForEviction,
			full:      -200 * time.Millisecond, look: 100 * time.Millisecond, left: 1, wantGone: "idle",
		},
		"a change, and all are used": {
			full: -200 * time.Millisecond, look: 100 * time.Millisecond, left: 1, wantGone: "used",
		},
		"a change, and all are idle": {
			sinceIdle: minIdleForEviction, sinceUsed: minIdleForEviction,
			full: -200 * time.Millisecond, look: 100 * time.Millisecond, left: 1, wantGone: "used",
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			byName := map[string]*upstream{
				"used": {revision: 9, repeats: itemEvent("ADDED", itemC), repeatEvery: change},
				"idle": {revision: 9}, "kept": {revision: 9},
			}
			all := newCollections(t, proxytest.Transport(func(r *http.Request) (*http.Response, error) {
				return byName[path.Base(r.URL.Path)].RoundTrip(r)
			}), func(c *Config) { c.Bytes, c.Limits.Staleness = bound, time.Hour })
			found := map[string]*Collection{}
			found["idle"], _ = all.Use(resourceNamed("idle"))
			found["used"], _ = all.Use(resourceNamed("used"))
			found["kept"], _ = all.Keep(resourceNamed("kept"))
			time.Sleep(change + tt.full)
			for name, since := range map[string]time.Duration{"used": tt.sinceUsed, "idle": tt.sinceIdle, "kept": tt.sinceKept} {
				asked := time.Now().Add(-since)
				found[name].lastUse.Store(&asked)
			}
			all.budget.add(bound - tt.left - all.budget.used.Load())
			time.Sleep(tt.look - tt.full)
			synctest.Wait()
			for name, c := range found {
				if unavailable := c.view.Load().unavailable; (unavailable == reason.Memory) != (name == tt.wantGone) {
					t.Errorf("the one that is %s: %q, want the one gone that is %s", name, unavailable, tt.wantGone)
				}
			}
			if _, unavailable := found["used"].view.Load().exact(moment{}, 9); unavailable == reason.None {
				t.Error("histories have not become shorter")
			}
		})
	}
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
