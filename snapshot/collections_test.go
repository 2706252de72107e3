package snapshot

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/inmemory"
	"github.com/listproxy/listproxy/test/proxytest"
)

// refusing is an upstream that refuses all requests.
var refusing = proxytest.Transport(func(r *http.Request) (*http.Response, error) {
	refusal := refuseFor(http.StatusServiceUnavailable, time.Second)
	return refusal(r), nil
})

// TestStartsAreBounded: Use starts startsAtOnce collections at once, and then startsPerSecond. Keep, which is called for
// collections that the policy wants in memory (eager ones), starts any number.
func TestStartsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCollections(t, refusing)
		use200 := func(prefix string) (started int) {
			for i := range 200 {
				_, unavailable := c.Use(resourceNamed(fmt.Sprint(prefix, i)))
				switch unavailable {
				case reason.None:
					started++
				case reason.Warming: // too many were started shortly before
				default:
					t.Fatalf("got reason %q, want none or %q", unavailable, reason.Warming)
				}
			}
			return started
		}
		if got := use200("first"); got != startsAtOnce {
			t.Errorf("at once: got %d collections started, want %d", got, startsAtOnce)
		}
		if _, unavailable := c.Use(resourceNamed("first0")); unavailable != reason.None {
			t.Errorf("a collection that was started: got reason %q, want none", unavailable)
		}
		if _, unavailable := c.Keep(resourceNamed("eager")); unavailable != reason.None {
			t.Errorf("an eager collection: got reason %q, want none", unavailable)
		}
		time.Sleep(2 * time.Second)
		if got := use200("second"); got != 2*startsPerSecond {
			t.Errorf("two seconds later: got %d collections started, want %d", got, 2*startsPerSecond)
		}
	})
}

// TestSettingsOfAResource: a collection has the history of its resource's Settings. If these have none, it has the history of
// Config.Limits.
func TestSettingsOfAResource(t *testing.T) {
	c := newCollections(t, refusing, func(config *Config) {
		config.Limits.History = time.Hour
		config.Settings = func(gvr schema.GroupVersionResource) Settings {
			if gvr.Resource == "short" {
				return Settings{History: time.Minute}
			}
			return Settings{}
		}
	})
	for resource, want := range map[string]time.Duration{"short": time.Minute, "other": time.Hour} {
		collection, unavailable := c.Use(resourceNamed(resource))
		expect.Same(t, reason.None, unavailable)
		expect.Same(t, want, collection.limits.History)
	}
}

// TestIdleCollectionsGo: a collection that was not used for Config.IdleTimeout is dropped, which does not count as a loss.
func TestIdleCollectionsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const idle = 10 * time.Minute
		c := newCollections(t, newPlane(t), func(config *Config) { config.IdleTimeout = idle })
		before, _ := c.Use(widgets)
		time.Sleep(2 * idle)
		expectLossCause(t, before, reason.None)
		if again, _ := c.Use(widgets); again == before {
			t.Errorf("the collection is still there, %v after its last use", 2*idle)
		}
	})
}

// TestMayFit: mayFit returns false if the number of objects times their mean size is more than oversizeFactor times what the
// budget can store. A mean above maxLikelyMean counts as maxLikelyMean.
func TestMayFit(t *testing.T) {
	const mebibyte = 1 << 20
	large, small := &budget{limit: 1000 * mebibyte}, &budget{limit: 100 * mebibyte}
	unlimited := &budget{}
	most := oversizeFactor * large.crowdedAbove() / maxLikelyMean // the largest number of objects that may fit into large
	for name, tt := range map[string]struct {
		learned source.Learned
		budget  *budget
		want    bool
	}{
		"just few enough objects":           {learned: source.Learned{Count: most, Mean: maxLikelyMean}, budget: large, want: true},
		"one object too many":               {learned: source.Learned{Count: most + 1, Mean: maxLikelyMean}, budget: large},
		"too many for a small budget":       {learned: source.Learned{Count: most, Mean: maxLikelyMean}, budget: small},
		"just few enough, the mean is high": {learned: source.Learned{Count: most, Mean: mebibyte}, budget: large, want: true},
		"one too many, the mean is high":    {learned: source.Learned{Count: most + 1, Mean: mebibyte}, budget: large},
		"nothing was learned":               {learned: source.Learned{}, budget: large, want: true},
		"there is no bound":                 {learned: source.Learned{Count: 1 << 40, Mean: 1 << 10}, budget: unlimited, want: true},
	} {
		if got := mayFit(tt.learned, tt.budget); got != tt.want {
			t.Errorf("%s: got %t, want %t", name, got, tt.want)
		}
	}
}

// TestMakeRoom: when less than a tenth of the bound is free, the janitor shortens histories, and drops the collection that has
// not been used for longest. It drops no eager collection (one that the policy wants in memory), and none in use.
func TestMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Each of three collections has two states.
		const bound = 1 << 20 // bytes
		p := newPlane(t)
		all := newCollections(t, p, func(config *Config) {
			config.MaxBytes = bound
			config.Limits.Staleness = time.Hour
		})
		var kinds []inmemory.Kind
		for _, name := range []string{"used", "idle", "eager"} {
			kinds = append(kinds, p.serve(resourceNamed(name)))
		}
		writeEach := func() {
			for _, kind := range kinds {
				p.Put(kind, widget("a"))
			}
			synctest.Wait()
		}
		writeEach()
		// The reasons are ignored: the checks below fail if a collection was not started.
		used, _ := all.Use(resourceNamed("used"))
		idle, _ := all.Use(resourceNamed("idle"))
		eager, _ := all.Keep(resourceNamed("eager"))
		synctest.Wait()
		writeEach() // so that each has a history
		firstOfUsed := used.view.Load().From

		// They were last used at different times. A twentieth of the bound is free.
		setIdle := func(collection *Collection, idleFor time.Duration) {
			lastUse := time.Now().Add(-idleFor)
			collection.lastUse.Store(&lastUse)
		}
		setIdle(used, 0)
		setIdle(idle, minIdleToDrop)
		setIdle(eager, 2*minIdleToDrop)
		const almostAll = bound / 20 * 19
		all.shared.budget.add(almostAll - all.shared.budget.used.Load())

		// The janitor comes.
		time.Sleep(tidyInterval)
		synctest.Wait()
		for name, collection := range map[string]*Collection{"used": used, "idle": idle, "eager": eager} {
			wantDropped := collection == idle
			if dropped := collection.view.Load().retired; dropped != wantDropped {
				t.Errorf("the %s collection is dropped: got %t, want %t", name, dropped, wantDropped)
			}
		}
		if _, unavailable := used.view.Load().exact(moment{}, firstOfUsed); unavailable != reason.History {
			t.Errorf("the first state of the used collection: got reason %q, want %q", unavailable, reason.History)
		}
	})
}

// TestCountsAreBounded: the counts of at most 2*maxCollections resources are kept.
func TestCountsAreBounded(t *testing.T) {
	c := newCollections(t, refusing)
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range 5 * maxCollections {
		key := widgets
		key.Group = fmt.Sprint(i)
		c.countsLocked(key)
	}
	if len(c.counts) > 2*maxCollections {
		t.Errorf("got the counts of %d resources, want at most %d", len(c.counts), 2*maxCollections)
	}
}
