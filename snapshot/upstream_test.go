package snapshot

import (
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
	"github.com/listproxy/listproxy/test/proxytest"
)

// sample is the limit of the list from which a feed learns how the upstream writes.
const sample = "20"

// upstream is an API server in memory with two config maps, for what a real one cannot be made
// to do in a bubble of fake time. Its watches are the test's.
type upstream struct {
	// watch answers the n-th watch that goes on from a state, that of a load too: lines, and then nothing
	// until its timeout, unless the last says that it is cut, or is no whole line. nil: nothing.
	watch func(n int, from uint64) []string
	// shortWatchTells is what short watches tell after a second; nil: they are watches like all others.
	shortWatchTells *string
	// intercept, if it is not nil, says of each request for how long its answer is held back, and what is
	// answered in its place, if that is not nil. It may change the upstream.
	intercept interceptor
	// changes: right after the first load, at revision 7, b changes at revision 8, and the upstream is at 9
	// then. So there is an event from which a watch can be resumed.
	changes bool
	// replay is what a watch tells that begins before that change; nil: the same once more.
	replay []string
	// repeats is what watches that last tell every second, or every repeatEvery if that is longer.
	repeats     string
	repeatEvery time.Duration

	mu       sync.Mutex
	revision uint64
	// What was answered: loads, watches that go on from a state, those of loads, too, probes, and short
	// watches beside a stream.
	loads, watches, probes, shortWatches int
}

// interceptor answers requests in place of the upstream, or holds back the upstream's answer.
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

// cut, as the last line of a watch, ends it there: without an error, as a server does that is shut
// down.
const cut = "<cut>"

// itemEvent is an item as a watch sends it.
func itemEvent(kind, item string) string {
	return proxytest.WatchEvent(kind, `{"kind":"ConfigMap","apiVersion":"v1",`+item[1:])
}

// bookmark is one as a watch sends it, with more members of its metadata.
func bookmark(rev uint64, more string) string {
	const object = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"%d"%s}}`
	return proxytest.WatchEvent("BOOKMARK", fmt.Sprintf(object, rev, more))
}

// endsInitial is what the bookmark after the initial events has more.
const endsInitial = `,"annotations":{"k8s.io/initial-events-end":"true"}`

// kindOf says what a request of a feed is.
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

// itemB is the object b as it was loaded first, or later.
func (u *upstream) itemB(later bool) string {
	if u.changes && later {
		return itemBAt(8)
	}
	return itemB
}

// follow answers a watch that goes on from a state, which may have come before.
func (u *upstream) follow(r *http.Request, state string, from uint64) *http.Response {
	u.watches++
	var told []string
	switch again := u.changes && from < 8 && state == ""; {
	case again && u.replay != nil:
		told = u.replay
	case again:
		told = []string{itemEvent("MODIFIED", itemBAt(8)), bookmark(9, "")}
	case u.watch != nil:
		told = u.watch(u.watches, from)
	}
	body, isCut := strings.CutSuffix(state+strings.Join(told, ""), cut)
	if isCut || body != "" && !strings.HasSuffix(body, "\n") {
		return proxytest.JSONResponse(r, http.StatusOK, body)
	}
	return u.lastingResponse(r, body, u.repeats, max(time.Second, u.repeatEvery))
}

func (u *upstream) list(rev uint64, more string, items ...string) string {
	const list = `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"%d"%s},"items":[%s]}` + "\n"
	return fmt.Sprintf(list, rev, more, strings.Join(items, ","))
}

// busyResponse is an error of an API server, which says when to come again.
func busyResponse(r *http.Request, code int, after string) *http.Response {
	answer := proxytest.JSONResponse(r, code, statusBody)
	answer.Header.Set("Retry-After", after)
	return answer
}

// lastingResponse is an answer that says something, and then the same after each pause, until the timeout of the
// watch.
func (u *upstream) lastingResponse(r *http.Request, said, every string, pause time.Duration) *http.Response {
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
			if every != "" {
				_, _ = io.WriteString(out, every) // which nobody may read
			}
		}
		_ = out.Close()
	}()
	answer := proxytest.JSONResponse(r, http.StatusOK, "")
	answer.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(strings.NewReader(said), in), in}
	return answer
}

func resourceNamed(name string) CollectionKey {
	return CollectionKey{
		GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: name},
		Namespaced:           true, Representation: media.JSON,
	}
}

var configMaps = resourceNamed("configmaps")

// newCollections returns collections that are fed by u.
func newCollections(t *testing.T, u http.RoundTripper, changes ...func(*Config)) *Collections {
	t.Helper()
	config := Config{
		Client:    &http.Client{Transport: u},
		Elsewhere: &http.Client{Transport: elsewhere{u}},
		Base:      &url.URL{Scheme: "https", Host: "upstream"},
		Limits:    Limits{History: time.Hour, Staleness: 90 * time.Second, Wait: 100 * time.Millisecond},
		Log:       slog.New(slog.DiscardHandler),
	}
	for _, change := range changes {
		change(&config)
	}
	c := NewCollections(config)
	t.Cleanup(c.Close)
	return c
}

// elsewhere sends requests over connections of their own: their kind says so.
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
