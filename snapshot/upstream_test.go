package snapshot

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/test/proxytest"
)

// sampleLimit is the limit of the list from which a feed learns the form of lists (source.sampleSize).
const sampleLimit = "20"

// upstream is an API server in memory with two config maps, a and b. Tests make it do what a real API server cannot be made to
// do: they say what watches send, and intercept requests.
type upstream struct {
	// revision is the newest revision: mostly 9, above those of the objects. Once a feed runs, mu guards it.
	revision uint64
	// watch returns the lines that the n-th watch, from a revision, sends; nil: none. The watches of loads count, too. A
	// watch lasts until its timeout, unless its last line is cut, or is no whole line.
	watch func(n int, from uint64) []string
	// shortWatchRepeats is the line that short watches send every second; nil: they are watches like all others.
	shortWatchRepeats *string
	// intercept is called with each request, unless it is nil. It may change the upstream. Once a feed runs, mu guards it.
	intercept interceptor
	// changes lets b change at revision 8, right after the first load, which is at revision 7. Then the upstream is at 9.
	changes bool
	// replay has the lines of a watch that begins before that change; nil: the change, and a bookmark.
	replay []string
	// repeats is the line that lasting watches send every second, or every repeatEvery if that is longer.
	repeats     string
	repeatEvery time.Duration

	mu sync.Mutex
	// loads, watches, probes and shortWatches are the numbers of requests that were answered. A streaming list counts as a
	// load and as a watch.
	loads, watches, probes, shortWatches int
}

const (
	itemA = `{"metadata":{"name":"a","namespace":"n","resourceVersion":"5"}}`
	itemB = `{"metadata":{"name":"b","namespace":"n","resourceVersion":"7"}}`
	// itemC is not there at first.
	itemC = `{"metadata":{"name":"c","namespace":"n","resourceVersion":"12"}}`
)

// itemBAt returns itemB as it is after a change at a revision.
func itemBAt(revision uint64) string {
	return strings.Replace(itemB, `"7"`, fmt.Sprintf(`"%d"`, revision), 1)
}

// statusOf returns an error of an API server.
func statusOf(code int) string {
	const status = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"no","code":%d}`
	return fmt.Sprintf(status, code)
}

// errorEvent returns an error as a watch sends it.
func errorEvent(code int) string { return proxytest.WatchEvent("ERROR", statusOf(code)) }

// cut, as the last line of a watch, ends the watch without an error, as a server does that is shut down.
const cut = "<cut>"

// itemEvent returns an event with an item as a watch sends it.
func itemEvent(kind, item string) string {
	return proxytest.WatchEvent(kind, `{"kind":"ConfigMap","apiVersion":"v1",`+item[1:])
}

// bookmark returns a bookmark as a watch sends it. more is appended to the members of its metadata.
func bookmark(revision uint64, more string) string {
	const object = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"%d"%s}}`
	return proxytest.WatchEvent("BOOKMARK", fmt.Sprintf(object, revision, more))
}

// endsInitial is the member that only the bookmark after the initial events has.
const endsInitial = `,"annotations":{"k8s.io/initial-events-end":"true"}`

// requestKind is a kind of requests that a feed makes.
type requestKind string

const (
	kindStreamingList      requestKind = "streaming list"
	kindEmptyStreamingList requestKind = "streaming list of a name that cannot exist" // to learn how streaming lists end
	kindWatchOfOne         requestKind = "watch of one object"                        // to learn how events have items
	kindShortWatch         requestKind = "short watch"                                // for its bookmark
	kindWatch              requestKind = "watch"                                      // the feed's stream
	kindProbe              requestKind = "probe"
	kindList               requestKind = "list"
)

func kindOf(r *http.Request) requestKind {
	isShort := r.URL.Query().Get("timeoutSeconds") == strconv.Itoa(int(source.ShortWatch/time.Second))
	switch q := r.URL.Query(); {
	case q.Has("sendInitialEvents") && q.Has("fieldSelector"):
		return kindEmptyStreamingList
	case q.Has("sendInitialEvents"):
		return kindStreamingList
	case q.Has("watch") && q.Has("fieldSelector"):
		return kindWatchOfOne
	case q.Has("watch") && isShort:
		return kindShortWatch
	case q.Has("watch"):
		return kindWatch
	case q.Has("fieldSelector") && q.Get("resourceVersionMatch") == "":
		return kindProbe
	}
	return kindList
}

// RoundTrip implements http.RoundTripper.
func (u *upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	hold, instead := u.intercepted(r)
	if !clock.Sleep(r.Context(), hold) {
		return nil, r.Context().Err()
	}
	if instead != nil {
		return instead, nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.answer(r), nil
}

// intercepted calls the interceptor for a request. Without one, nothing is held back, and the upstream answers.
func (u *upstream) intercepted(r *http.Request) (hold time.Duration, instead *http.Response) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.intercept == nil {
		return 0, nil
	}
	return u.intercept(r, kindOf(r))
}

// answer answers a request. The caller must hold mu.
func (u *upstream) answer(r *http.Request) *http.Response {
	query := r.URL.Query()
	from, _ := strconv.ParseUint(query.Get("resourceVersion"), 10, 64)
	switch kind := kindOf(r); {
	case kind == kindEmptyStreamingList:
		return lastingResponse(r, bookmark(u.revision, endsInitial), "", time.Hour)
	case kind == kindStreamingList:
		u.loads++
		state := itemEvent("ADDED", itemA) + itemEvent("ADDED", u.itemBOf(u.revision)) + bookmark(u.revision, endsInitial)
		if u.changes && u.loads == 1 {
			u.revision = 9
			state += itemEvent("MODIFIED", itemBAt(8))
		}
		return u.follow(r, state, u.revision)
	case kind == kindWatchOfOne:
		return respond(http.StatusOK, itemEvent("ADDED", itemA))(r)
	case kind == kindShortWatch && u.shortWatchRepeats != nil:
		u.shortWatches++
		return lastingResponse(r, "", *u.shortWatchRepeats, time.Second)
	case kind == kindWatch, kind == kindShortWatch:
		return u.follow(r, "", from)
	case kind == kindProbe:
		u.probes++
		return respond(http.StatusOK, configMapList(u.revision, ""))(r)
	case query.Get("limit") == sampleLimit:
		return respond(http.StatusOK, configMapList(u.revision, `,"continue":"x","remainingItemCount":1`, itemA))(r)
	}
	at := u.revision
	if from > 0 { // the list with which a load is compared
		at = from
	}
	return respond(http.StatusOK, configMapList(at, "", itemA, u.itemBOf(at)))(r)
}

// itemBOf returns the object b as it is in the state at a revision.
func (u *upstream) itemBOf(revision uint64) string {
	if u.changes && revision >= 8 {
		return itemBAt(8)
	}
	return itemB
}

// follow answers a watch from a revision. The answer begins with state, the initial events; "" if there are none.
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
		return respond(http.StatusOK, body)(r)
	}
	return lastingResponse(r, body, u.repeats, max(time.Second, u.repeatEvery))
}

// firstWatchSends returns an [upstream.watch] whose first watch sends these lines, and all others a bookmark at 9.
func firstWatchSends(lines ...string) func(int, uint64) []string {
	return func(n int, _ uint64) []string {
		if n == 1 {
			return lines
		}
		return []string{bookmark(9, "")}
	}
}

// configMapList returns a list at a revision. more is appended to the members of its metadata.
func configMapList(revision uint64, more string, items ...string) string {
	const list = `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"%d"%s},"items":[%s]}` + "\n"
	return fmt.Sprintf(list, revision, more, strings.Join(items, ","))
}

// lastingResponse returns the answer to a watch: it sends first, and then repeated after each pause, until the timeout of
// the watch.
func lastingResponse(r *http.Request, first, repeated string, pause time.Duration) *http.Response {
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
	answer := respond(http.StatusOK, "")(r)
	answer.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(strings.NewReader(first), in), in}
	return answer
}
