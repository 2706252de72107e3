package snapshot

import (
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/budget"
	"github.com/listproxy/listproxy/snapshot/freshness"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
)

func resourceNamed(name string) Resource {
	return Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: name}, Namespaced: true, Representation: media.JSON}
}

// refusing is an upstream that refuses everything.
var refusing = roundTrip(func(*http.Request) (*http.Response, error) { return nil, errors.New("refused") })

// TestStartsAreBounded: someone who asks for everything does not make the upstream read
// everything at once. What the policy wants is not held back.
func TestStartsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := collectionsOf(t, refusing)
		started := func(n int) int {
			ok := 0
			for i := range n {
				if _, absence := c.Use(resourceNamed(fmt.Sprintf("r%d-%d", n, i))); absence == reason.None {
					ok++
				} else if absence != reason.Warming {
					t.Fatalf("got %q, want %q", absence, reason.Warming)
				}
			}
			return ok
		}
		if got := started(200); got != startsAtOnce {
			t.Errorf("%d collections started at once, want %d", got, startsAtOnce)
		}
		if _, absence := c.Use(resourceNamed("r200-0")); absence != reason.None {
			t.Errorf("one that is there: %q", absence)
		}
		if _, absence := c.Keep(resourceNamed("eager")); absence != reason.None {
			t.Errorf("an eager one: %q", absence)
		}
		time.Sleep(2 * time.Second)
		if got := started(201); got != 2*startsPerSecond {
			t.Errorf("%d collections started two seconds later, want %d", got, 2*startsPerSecond)
		}
	})
}

func TestSettingsOfAResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := collectionsOf(t, refusing, func(config *Config) {
			config.Idle = 10 * time.Minute
			config.Settings = func(gvr schema.GroupVersionResource) Settings {
				return map[string]Settings{"short": {History: time.Minute}}[gvr.Resource]
			}
		})
		use := func(name string) *Collection {
			collection, absence := c.Use(resourceNamed(name))
			if absence != reason.None {
				t.Fatalf("%s: %q", name, absence)
			}
			return collection
		}
		short, other := use("short"), use("other")
		if short.limits.History != time.Minute || other.limits.History != time.Hour || short.limits.Staleness != 90*time.Second {
			t.Errorf("histories of %v and %v", short.limits, other.limits)
		}
		time.Sleep(time.Hour)
		if got := use("other"); got == other {
			t.Error("nobody asked for an hour, and it is still there")
		}
	})
}

// TestWhatCannotFit is known by the first objects, but for large ones, or by what was read of it.
func TestWhatCannotFit(t *testing.T) {
	all := &budget.Bound{Limit: 1000 << 20}
	small := &budget.Bound{Limit: 100 << 20}
	for _, tt := range []struct {
		is       learned
		measured int64
		b        *budget.Bound
		want     bool
	}{
		{learned{count: misfit * 900, mean: 1 << 20}, 0, all, true},
		{learned{count: misfit * 900 * 64, mean: 16 << 10}, 0, all, true},
		{learned{count: misfit*900*64 + 1000, mean: 16 << 10}, 0, all, false},
		{learned{count: misfit * 900 * 64, mean: 16 << 10}, 0, small, false},
		{learned{count: misfit*900*64 + 1000, mean: 1 << 20}, 0, all, false},
		{learned{count: 4000, mean: 1 << 20}, 0, all, true}, // the first may be larger than the others
		{learned{count: 4000, mean: 1 << 20}, 200 << 10, all, true},
		{learned{count: 5000, mean: 1 << 10}, 200 << 10, all, false},
		{learned{}, 0, all, true},
		{learned{count: 1 << 40, mean: 1 << 10}, 0, &budget.Bound{}, true},
	} {
		if got := tt.is.fits(tt.b, tt.measured); got != tt.want {
			t.Errorf("%+v, measured %d: %v", tt.is, tt.measured, got)
		}
	}
}

// TestALoadIsCountedBeforeItBegins: where little is left, nothing is read.
func TestALoadIsCountedBeforeItBegins(t *testing.T) {
	b := &budget.Bound{Limit: 1000}
	if l, err := newLoaded(wire.FixedFrame("PodList", "v1"), misfit*900, b, freshness.Probe{}); err != nil || b.Used.Load() != 450 || b.Crowded() {
		t.Errorf("what seems not to fit: %v, with %d bytes on the account", err, b.Used.Load())
	} else {
		l.discard(b)
	}
	b.Add(950)
	if _, err := newLoaded(wire.FixedFrame("PodList", "v1"), 10, b, freshness.Probe{}); !errors.Is(err, errFull) || b.Used.Load() != 950 {
		t.Errorf("where nothing fits: %v, with %d bytes on the account", err, b.Used.Load())
	}
	b.Add(-950)
	l, err := newLoaded(wire.FixedFrame("PodList", "v1"), 400, b, freshness.Probe{})
	if err != nil || b.Used.Load() != 400 {
		t.Fatalf("what fits: %v, with %d bytes on the account", err, b.Used.Load())
	}
	o := &index.Object{Key: "a", Bytes: make([]byte, 100)}
	if err := l.count(o, nil, b); err != nil || b.Used.Load() != 400 {
		t.Errorf("the first object: %v, with %d bytes on the account", err, b.Used.Load())
	}
	l.endReservation(b)
	if b.Used.Load() != o.Size() {
		t.Errorf("%d bytes on the account of a state of %d", b.Used.Load(), o.Size())
	}
	if l.discard(b); b.Used.Load() != 0 {
		t.Errorf("%d bytes on the account of nothing", b.Used.Load())
	}

	if l, err = newLoaded(wire.FixedFrame("PodList", "v1"), 100, b, freshness.Probe{}); err != nil {
		t.Fatal(err)
	}
	if err := l.count(&index.Object{Key: "b", Bytes: make([]byte, 900)}, nil, b); !errors.Is(err, errFull) {
		t.Errorf("more than was thought: %v, want %v", err, errFull)
	}
	if l.discard(b); b.Used.Load() != 0 {
		t.Errorf("%d bytes on the account of nothing", b.Used.Load())
	}
}

// TestWhoGoesForAChange: a change that does not fit has a collection go that nobody asks for, and not
// the one that it came to, as long as that is in use.
func TestWhoGoesForAChange(t *testing.T) {
	for name, tt := range map[string]struct {
		idle, used time.Duration // since each was asked for
		goes       string
	}{
		"the other is idle": {idle: rested, goes: "idle"},
		"both are used":     {goes: "used"},
		"both are idle":     {idle: rested, used: rested, goes: "used"},
	} {
		inBubble(t, name, func(t *testing.T) {
			const later = 2*time.Minute + 500*time.Millisecond // between two looks for what is idle
			another := strings.NewReplacer(`"a"`, `"c"`, `"5"`, `"12"`).Replace(itemA)
			nothing := func(uint64) []string { return nil }
			used := &upstream{revision: 9, watch: nothing, tells: inEvent("ADDED", another), pauses: later}
			idle := &upstream{revision: 9, watch: nothing}
			const bound = 1 << 20
			all := collectionsOf(t, byName{"used": used, "idle": idle}, func(c *Config) { c.Bytes, c.Limits.Staleness = bound, time.Hour })
			found := map[string]*Collection{}
			for name := range map[string]time.Duration{"used": tt.used, "idle": tt.idle} {
				found[name], _ = all.Use(resourceNamed(name))
			}
			time.Sleep(later - 200*time.Millisecond)
			for name, since := range map[string]time.Duration{"used": tt.used, "idle": tt.idle} {
				used := time.Now().Add(-since)
				found[name].lastUse.Store(&used)
			}
			all.budget.Add(bound - all.budget.Used.Load() - 1)
			time.Sleep(300 * time.Millisecond)
			synctest.Wait()
			for name, c := range found {
				if _, absence := c.newest(); (absence == reason.Memory) != (name == tt.goes) {
					t.Errorf("the one that is %s: %q", name, absence)
				}
			}
		})
	}
}

// byName are upstreams of one resource each.
type byName map[string]*upstream

// RoundTrip implements http.RoundTripper.
func (u byName) RoundTrip(r *http.Request) (*http.Response, error) {
	return u[path.Base(r.URL.Path)].RoundTrip(r)
}
