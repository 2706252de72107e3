package snapshot

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/proxytest"
)

// sample is the limit of the list from which a feed learns the form of lists.
const sample = "20"

// upstream is an API server in memory with two config maps. It does what a real one cannot be made to do in a bubble of
// fake time. A test says what its watches send.
type upstream struct {
	// watch returns the lines that the n-th watch from a revision sends; nil stands for no lines. The watches of loads
	// count, too. A watch lasts until its timeout, unless its last line is cut, or no whole line.
	watch func(n int, from uint64) []string
	// shortWatchTells is the line that short watches send every second; nil: they are watches like all others.
	shortWatchTells *string
	// intercept is called with each request, unless it is nil. It may change the upstream.
	intercept interceptor
	// changes reports whether b changes at revision 8, right after the first load at revision 7. Then the upstream is
	// at 9. So there is an event from which a watch can be resumed.
	changes bool
	// replay has the lines of a watch that begins before that change; nil: the change, and a bookmark.
	replay []string
	// repeats is the line that watches that last send every second, or every repeatEvery if that is longer.
	repeats     string
	repeatEvery time.Duration

	mu       sync.Mutex
	revision uint64
	// The numbers of requests that were answered. watches counts those from a revision, and those of loads.
	loads, watches, probes, shortWatches int
}

// interceptor returns for how long the answer to a request is held back, and the answer in place of the upstream's,
// unless that is nil. kind is that of kindOf.
type interceptor func(r *http.Request, kind string) (hold time.Duration, instead *http.Response)

const (
	itemA = `{"metadata":{"name":"a","namespace":"n","resourceVersion":"5"}}`
	itemB = `{"metadata":{"name":"b","namespace":"n","resourceVersion":"7"}}`
	// itemC is not there at first.
	itemC = `{"metadata":{"name":"c","namespace":"n","resourceVersion":"12"}}`
)

// itemBAt is itemB, last changed at a revision.
func itemBAt(revision uint64) string {
	return strings.Replace(itemB, `"7"`, fmt.Sprintf(`"%d"`, revision), 1)
}

// statusBody is an error of an API server.
const statusBody = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",` +
	`"message":"etcdserver: leader changed","code":500}`

// errorEvent is an error as a watch sends it.
func errorEvent(code int) string {
	const status = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"no","code":%d}`
	return proxytest.WatchEvent("ERROR", fmt.Sprintf(status, code))
}

// cut, as the last line of a watch, ends the watch without an error, as a server does that is shut down.
const cut = "<cut>"

// itemEvent is an item as a watch sends it.
func itemEvent(kind, item string) string {
	return proxytest.WatchEvent(kind, `{"kind":"ConfigMap","apiVersion":"v1",`+item[1:])
}

// bookmark is a bookmark as a watch sends it. more is appended to the members of its metadata.
func bookmark(revision uint64, more string) string {
	const object = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"%d"%s}}`
	return proxytest.WatchEvent("BOOKMARK", fmt.Sprintf(object, revision, more))
}

// endsInitial is the member that only the bookmark after the initial events has.
const endsInitial = `,"annotations":{"k8s.io/initial-events-end":"true"}`

// kindOf returns the kind of a request of a feed.
func kindOf(r *http.Request) string {
	switch q := r.URL.Query(); {
	case q.Has("sendInitialEvents"):
		return "load"
	case q.Has("watch") && q.Has("fieldSelector"):
		return "watch of one"
	case q.Has("watch") && q.Get("timeoutSeconds") == "3":
		return "short watch"
	case q.Has("watch"):
		return "watch"
	case q.Has("fieldSelector") && q.Get("resourceVersionMatch") == "":
		return "probe"
	}
	return "list"
}

// RoundTrip implements http.RoundTripper.
func (u *upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	if u.intercept != nil {
		u.mu.Lock()
		hold, instead := u.intercept(r, kindOf(r))
		u.mu.Unlock()
		if !clock.Sleep(r.Context(), hold) {
			return nil, r.Context().Err()
		}
		if instead != nil {
			return instead, nil
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	query := r.URL.Query()
	from, _ := strconv.ParseUint(query.Get("resourceVersion"), 10, 64)
	switch kind := kindOf(r); kind {
	case "load":
		if query.Has("fieldSelector") { // to learn how it ends
			return u.lastingResponse(r, bookmark(u.revision, endsInitial), "", time.Hour), nil
		}
		u.loads++
		state := itemEvent("ADDED", itemA) + itemEvent("ADDED", u.itemB(u.loads > 1)) + bookmark(u.revision, endsInitial)
		if u.changes && u.loads == 1 {
			u.revision = 9
			state += itemEvent("MODIFIED", itemBAt(8))
		}
		return u.follow(r, state, u.revision), nil
	case "watch of one":
		return proxytest.JSONResponse(r, http.StatusOK, itemEvent("ADDED", itemA)), nil
	case "watch", "short watch":
		if kind == "short watch" && u.shortWatchTells != nil {
			u.shortWatches++
			return u.lastingResponse(r, "", *u.shortWatchTells, time.Second), nil
		}
		return u.follow(r, "", from), nil
	case "probe":
		u.probes++
		return proxytest.JSONResponse(r, http.StatusOK, u.list(u.revision, "")), nil
	}
	switch {
	case query.Get("limit") == sample:
		page := u.list(u.revision, `,"continue":"x","remainingItemCount":1`, itemA)
		return proxytest.JSONResponse(r, http.StatusOK, page), nil
	case from > 0: // to prove the load
		return proxytest.JSONResponse(r, http.StatusOK, u.list(from, "", itemA, u.itemB(from > 7))), nil
	}
	return proxytest.JSONResponse(r, http.StatusOK, u.list(u.revision, "", itemA, u.itemB(true))), nil
}

// itemB returns the object b as the first load has it, or as it is later.
func (u *upstream) itemB(later bool) string {
	if u.changes && later {
		return itemBAt(8)
	}
	return itemB
}

// follow answers a watch from a revision. It begins with the events of a state, which may be empty.
func (u *upstream) follow(r *http.Request, state string, from uint64) *http.Response {
	u.watches++
	var lines []string
	isBeforeChange := u.changes && from < 8 && state == ""
	switch {
	case isBeforeChange && u.replay != nil:
		lines = u.replay
	case isBeforeChange:
		lines = []string{itemEvent("MODIFIED", itemBAt(8)), bookmark(9, "")}
	case u.watch != nil:
		lines = u.watch(u.watches, from)
	}
	body, isCut := strings.CutSuffix(state+strings.Join(lines, ""), cut)
	isBroken := body != "" && !strings.HasSuffix(body, "\n")
	if isCut || isBroken {
		return proxytest.JSONResponse(r, http.StatusOK, body)
	}
	return u.lastingResponse(r, body, u.repeats, max(time.Second, u.repeatEvery))
}

// list returns a list at a revision. more is appended to the members of its metadata.
func (u *upstream) list(revision uint64, more string, items ...string) string {
	const list = `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"%d"%s},"items":[%s]}` + "\n"
	return fmt.Sprintf(list, revision, more, strings.Join(items, ","))
}

// busyResponse returns an error of an API server with a Retry-After.
func busyResponse(r *http.Request, code int, after string) *http.Response {
	answer := proxytest.JSONResponse(r, code, statusBody)
	answer.Header.Set("Retry-After", after)
	return answer
}

// lastingResponse returns an answer that sends the lines first, and then the line repeated after each pause, until the
// timeout of the watch.
func (u *upstream) lastingResponse(r *http.Request, first, repeated string, pause time.Duration) *http.Response {
	seconds, err := strconv.Atoi(r.URL.Query().Get("timeoutSeconds"))
	if err != nil {
		panic(err)
	}
	in, out := io.Pipe()
	go func() {
		over := time.Now().Add(time.Duration(seconds) * time.Second)
		for time.Now().Before(over) {
			if !clock.Sleep(r.Context(), min(pause, time.Until(over))) {
				_ = out.CloseWithError(r.Context().Err())
				return
			}
			if repeated != "" {
				_, _ = io.WriteString(out, repeated) // fails if the client has gone
			}
		}
		_ = out.Close()
	}()
	answer := proxytest.JSONResponse(r, http.StatusOK, "")
	answer.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(strings.NewReader(first), in), in}
	return answer
}

func resourceNamed(name string) CollectionKey {
	return CollectionKey{
		GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: name},
		Namespaced:           true, Representation: media.JSON,
	}
}

var configMaps = resourceNamed("configmaps")

// newCollections returns collections with the upstream u.
func newCollections(t *testing.T, u http.RoundTripper, changes ...func(*Config)) *Collections {
	t.Helper()
	config := Config{
		Client:       &http.Client{Transport: u},
		Elsewhere:    &http.Client{Transport: elsewhere{u}},
		Base:         &url.URL{Scheme: "https", Host: "upstream"},
		Limits:       Limits{History: time.Hour, Staleness: 90 * time.Second, Wait: 100 * time.Millisecond},
		Outage:       noOutage,
		SameTimeline: func(context.Context, uint64, time.Time) (same, soon bool) { return false, false },
		Settings:     func(schema.GroupVersionResource) Settings { return Settings{} },
		Fields:       func(context.Context, schema.GroupVersionResource) ([]wire.Field, error) { return nil, nil },
		Log:          slog.New(slog.DiscardHandler),
	}
	for _, change := range changes {
		change(&config)
	}
	c := NewCollections(config)
	t.Cleanup(c.Close)
	return c
}

// noOutage is [Config.Outage] of an upstream that answers.
func noOutage() clock.Outage { return clock.Outage{} }

// elsewhere sets Close in requests, by which a test sees that they went over connections of their own.
type elsewhere struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (e elsewhere) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Close = true
	return e.RoundTripper.RoundTrip(r)
}

// runFeed starts a collection's feed on u, lets it run for d, and returns the collection.
func runFeed(t *testing.T, u http.RoundTripper, d time.Duration) *Collection {
	t.Helper()
	return runFeedWith(t, u, d, Settings{})
}

// runWatchedFeed is runFeed of a collection that answers watches, too.
func runWatchedFeed(t *testing.T, u http.RoundTripper, d time.Duration) *Collection {
	t.Helper()
	return runFeedWith(t, u, d, Settings{Watches: true})
}

func runFeedWith(t *testing.T, u http.RoundTripper, d time.Duration, settings Settings) *Collection {
	t.Helper()
	c, unavailable := newCollections(t, u, func(c *Config) {
		c.Settings = func(schema.GroupVersionResource) Settings { return settings }
	}).Use(configMaps)
	if unavailable != reason.None {
		t.Fatal(unavailable)
	}
	time.Sleep(d)
	synctest.Wait()
	return c
}
