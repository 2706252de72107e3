package snapshot

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// resourceNamed returns the key of a resource in the group of widgets.
func resourceNamed(name string) CollectionKey {
	return CollectionKey{
		GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: name},
		Namespaced:           true, Representation: media.JSON,
	}
}

// widgets is the resource that each plane serves.
var widgets = resourceNamed("widgets")

// newCollections returns the collections of an upstream. None is started yet.
func newCollections(t *testing.T, upstream http.RoundTripper, changes ...func(*Config)) *Collections {
	t.Helper()
	config := Config{
		Client:           &http.Client{Transport: upstream},
		Elsewhere:        &http.Client{Transport: elsewhere{upstream}},
		Base:             &url.URL{Scheme: "https", Host: "upstream"},
		Limits:           Limits{History: time.Hour, Staleness: 90 * time.Second, Wait: 100 * time.Millisecond},
		Outage:           noOutage,
		SameTimeline:     func(context.Context, uint64, time.Time) (same, proofMayCome bool) { return false, false },
		Settings:         func(schema.GroupVersionResource) Settings { return Settings{} },
		SelectableFields: func(context.Context, schema.GroupVersionResource) ([]wire.Field, error) { return nil, nil },
		Log:              slog.New(slog.DiscardHandler),
	}
	for _, change := range changes {
		change(&config)
	}
	c := NewCollections(config)
	t.Cleanup(c.Close)
	return c
}

// noOutage is the [Config.Outage] of an upstream that always answers.
func noOutage() clock.Outage { return clock.Outage{} }

// elsewhere is the transport of Config.Elsewhere, with which a feed asks over another connection. It sets Close in requests, so
// that a test can tell them from all others.
type elsewhere struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (e elsewhere) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Close = true
	return e.RoundTripper.RoundTrip(r)
}

// justLoaded is the argument of runFeed for a feed that has just loaded its state, which takes no time in a bubble.
const justLoaded time.Duration = 0

// runFeed starts the feed of widgets on p, lets it run for a duration, and returns the collection. (A feed is the goroutine
// that loads a collection's state from the upstream, and keeps it up to date with a watch, its stream.)
func runFeed(t *testing.T, p *plane, duration time.Duration) *Collection {
	t.Helper()
	return runFeedWith(t, p, duration, Settings{})
}

// runWatchedFeed is runFeed of a collection that answers watches, too.
func runWatchedFeed(t *testing.T, p *plane, duration time.Duration) *Collection {
	t.Helper()
	return runFeedWith(t, p, duration, Settings{Watches: true})
}

func runFeedWith(t *testing.T, p *plane, duration time.Duration, settings Settings) *Collection {
	t.Helper()
	c, unavailable := newCollections(t, p, func(c *Config) {
		c.Settings = func(schema.GroupVersionResource) Settings { return settings }
	}).Use(widgets)
	if unavailable != reason.None {
		t.Fatal(unavailable)
	}
	time.Sleep(duration)
	synctest.Wait()
	return c
}

// expectUnavailable checks the reason why a collection gives no newest state; None: it must give one.
func expectUnavailable(t *testing.T, c *Collection, wantUnavailable reason.Reason) {
	t.Helper()
	if _, unavailable := c.NotOlderThan(t.Context(), anyRevision); unavailable != wantUnavailable {
		t.Errorf("the newest state: got reason %q, want %q", unavailable, wantUnavailable)
	}
}

// expectLossCause checks that a collection has lost its state once, with this cause; None: it must never have lost a state.
func expectLossCause(t *testing.T, c *Collection, want reason.Reason) {
	t.Helper()
	wantLosses := map[reason.Reason]uint64{}
	if want != reason.None {
		wantLosses[want] = 1
	}
	if losses := c.counts.lossesByCause(); !maps.Equal(losses, wantLosses) {
		t.Errorf("got losses %v, want %v", losses, wantLosses)
	}
}

// expectUse uses a collection, which starts its feed if necessary. It lets the feed do what takes no time, and then checks the
// reason why there is no newest state; None: there must be one.
func expectUse(t *testing.T, when string, c *Collections, key CollectionKey, want reason.Reason) *Collection {
	t.Helper()
	collection, unavailable := c.Use(key)
	if unavailable == reason.None {
		synctest.Wait()
		_, unavailable = collection.NotOlderThan(t.Context(), anyRevision)
	}
	if unavailable != want {
		t.Errorf("%s: got reason %q, want %q", when, unavailable, want)
	}
	return collection
}

// whyRetired returns the reason why a collection was retired; None if it was not.
func whyRetired(c *Collection) reason.Reason {
	if v := c.view.Load(); v.retired {
		return v.unavailable
	}
	return reason.None
}
