package snapshot

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/test/proxytest"
)

// firstWatchSends returns an upstream.watch whose first watch sends these lines. All others send a bookmark at 9.
func firstWatchSends(lines ...string) func(int, uint64) []string {
	return func(n int, _ uint64) []string {
		if n == 1 {
			return lines
		}
		return []string{bookmark(9, "")}
	}
}

// refuseKind answers all requests of a kind with an error.
func refuseKind(kind requestKind, code int) interceptor {
	return answerKind(kind, func(r *http.Request) *http.Response { return proxytest.JSONResponse(r, code, statusOf(code)) })
}

// refuseStreamingLists answers all streaming lists with an error, also those of a name that cannot exist.
func refuseStreamingLists(code int) interceptor {
	return func(r *http.Request, kind requestKind) (time.Duration, *http.Response) {
		if kind != kindStreamingList && kind != kindEmptyStreamingList {
			return 0, nil
		}
		return 0, proxytest.JSONResponse(r, code, statusOf(code))
	}
}

// replaceLoads answers streaming lists of the whole state with a text.
func replaceLoads(text string) interceptor {
	return answerKind(kindStreamingList, func(r *http.Request) *http.Response {
		return proxytest.JSONResponse(r, http.StatusOK, text)
	})
}

// replaceStorage answers probes after the load with a revision below that of the load.
func replaceStorage() interceptor {
	probes := fault{kind: kindProbe, begins: afterTheLoad, duration: 25 * time.Second, code: http.StatusOK}.intercept()
	return func(r *http.Request, kind requestKind) (time.Duration, *http.Response) {
		if _, response := probes(r, kind); response == nil {
			return 0, nil
		}
		return 0, proxytest.JSONResponse(r, http.StatusOK, configMapList(3, ""))
	}
}

// replaceOneServer is replaceStorage as the feed's usual connection leads to it. Requests over connections of their own are
// answered as usual.
func replaceOneServer() interceptor {
	replaced := replaceStorage()
	return func(r *http.Request, kind requestKind) (time.Duration, *http.Response) {
		if isElsewhere := r.Close; isElsewhere {
			return 0, nil
		}
		return replaced(r, kind)
	}
}

// loadInPages answers streaming lists with an error, and the list with two pages.
func loadInPages(first, second string) interceptor {
	return func(r *http.Request, kind requestKind) (time.Duration, *http.Response) {
		switch q := r.URL.Query(); {
		case kind == kindStreamingList, kind == kindEmptyStreamingList:
			return 0, proxytest.JSONResponse(r, http.StatusUnprocessableEntity, "{}")
		case q.Has("continue"):
			return 0, proxytest.JSONResponse(r, http.StatusOK, second)
		case q.Get("limit") == strconv.Itoa(maxLoadPage):
			return 0, proxytest.JSONResponse(r, http.StatusOK, first)
		}
		return 0, nil
	}
}

// afterTheLoad is a moment after the first request: to load and compare a state takes no time in a bubble.
const afterTheLoad = time.Millisecond

// fault is what an upstream does wrong: it answers requests late, or with a status.
type fault struct {
	kind       requestKind   // of the requests; "": of any kind
	begins     time.Duration // after the first request
	duration   time.Duration // 0: for ever
	everyOther bool          // only every second request is affected
	delay      time.Duration // before the answer
	code       int           // of the answer; 0: as usual
}

func (f fault) intercept() interceptor {
	var firstRequest time.Time
	affected := 0
	return func(r *http.Request, kind requestKind) (time.Duration, *http.Response) {
		if firstRequest.IsZero() {
			firstRequest = time.Now()
		}
		since := time.Since(firstRequest) - f.begins
		isOver := f.duration > 0 && since > f.duration
		isOtherKind := f.kind != "" && f.kind != kind
		if isOtherKind || since < 0 || isOver {
			return 0, nil
		}
		affected++
		if f.everyOther && affected%2 != 0 {
			return 0, nil
		}
		if f.code != 0 {
			return 0, busyResponse(r, f.code, "1")
		}
		return f.delay, nil
	}
}

// bounds are the least and the most that a number may be. With the zero value it may be any.
type bounds struct{ least, most int }

func (b bounds) contain(n int) bool { return b == bounds{} || b.least <= n && n <= b.most }

// feedCase is an upstream, and what is expected of a feed that runs on it for a time.
type feedCase struct {
	upstream        *upstream     // its revision is set by check
	duration        time.Duration // 0: a minute
	wantUnavailable reason.Reason // why there is no newest state; None: there is one
	wantRevision    uint64        // of the newest state, at least
	wantLoss        reason.Reason // the cause of the only loss; None: no state is lost
	wantWatches     bounds
	wantProbes      bounds
}

// check runs a feed on the case's upstream. It checks the newest state, losses, and the number of requests.
func (tt feedCase) check(t *testing.T) {
	t.Helper()
	u := tt.upstream
	u.revision = 9
	if u.changes {
		u.revision = 7
	}
	if u.watch == nil {
		u.watch = firstWatchSends(bookmark(9, ""))
	}
	c := runFeed(t, u, cmp.Or(tt.duration, time.Minute))
	expectNewest(t, c, tt.wantUnavailable)
	if revision := c.view.Load().To; revision < tt.wantRevision {
		t.Errorf("the newest state: got revision %d, want at least %d", revision, tt.wantRevision)
	}
	expectLoss(t, c, tt.wantLoss)
	u.mu.Lock()
	defer u.mu.Unlock()
	if !tt.wantWatches.contain(u.watches) {
		t.Errorf("got %d watches, want %+v", u.watches, tt.wantWatches)
	}
	if !tt.wantProbes.contain(u.probes) {
		t.Errorf("got %d probes, want %+v", u.probes, tt.wantProbes)
	}
}

// expectNewest checks why a collection has no newest state. None: it must have one.
func expectNewest(t *testing.T, c *Collection, wantUnavailable reason.Reason) {
	t.Helper()
	if _, unavailable := c.NotOlderThan(t.Context(), 0); unavailable != wantUnavailable {
		t.Errorf("the newest state: got reason %q, want %q", unavailable, wantUnavailable)
	}
}

// expectLoss checks that a collection has lost its state once, for a cause. None: it must not have lost it.
func expectLoss(t *testing.T, c *Collection, want reason.Reason) {
	t.Helper()
	wantLosses := map[reason.Reason]uint64{}
	if want != reason.None {
		wantLosses[want] = 1
	}
	if losses := c.counts.lossesByCause(); !maps.Equal(losses, wantLosses) {
		t.Errorf("got losses %v, want %v", losses, wantLosses)
	}
}

// TestFeed: a feed loads a state from a healthy upstream, and keeps it. It does not load pages of two revisions.
func TestFeed(t *testing.T) {
	// The first object has another revision in the list than in the watch that follows it.
	alwaysChanged := func(r *http.Request, kind requestKind) (time.Duration, *http.Response) {
		later := strings.Replace(itemA, `"5"`, `"8"`, 1)
		switch {
		case kind != kindWatchOfOne:
			return 0, nil
		case r.URL.Query().Get("resourceVersion") == "0":
			return 0, proxytest.JSONResponse(r, http.StatusOK, itemEvent("ADDED", later))
		}
		return 0, proxytest.JSONResponse(r, http.StatusOK, itemEvent("MODIFIED", itemA)+itemEvent("MODIFIED", later))
	}
	loads := 0
	silentFirstLoad := answerKind(kindStreamingList, func(r *http.Request) *http.Response {
		if loads++; loads > 1 {
			return nil
		}
		return lastingResponse(r, "", "", time.Hour)
	})
	for name, tt := range map[string]feedCase{
		"nothing changes": {upstream: &upstream{}, wantRevision: 9},
		"watches end at their timeouts": {
			// A watch lasts watchTimeout and a random time of at most watchTimeout.
			upstream: &upstream{}, duration: 6 * watchTimeout, wantWatches: bounds{least: 4, most: 7},
		},
		"the first object changes between the list and the watch that learn its form": {
			upstream: &upstream{intercept: alwaysChanged},
		},
		"the first streaming list is silent": {
			upstream: &upstream{intercept: silentFirstLoad},
		},
		"the state comes in pages": {
			upstream: &upstream{intercept: loadInPages(
				configMapList(9, `,"continue":"x"`, itemA),
				configMapList(9, "", itemB),
			)},
		},
		"the pages are of two revisions": {
			upstream: &upstream{intercept: loadInPages(
				configMapList(8, `,"continue":"x"`, itemA),
				configMapList(9, "", itemB),
			)},
			wantUnavailable: reason.Warming,
		},
	} {
		proxytest.Bubble(t, name, tt.check)
	}
}

// TestFeedOfBrokenStreams: a feed whose streams end at once opens them again after growing pauses. The pauses do not grow
// while streams send events: otherwise the feed of a resource that changes often would be ever further behind.
func TestFeedOfBrokenStreams(t *testing.T) {
	allWatchesSend := func(line string) *upstream {
		return &upstream{changes: true, watch: func(int, uint64) []string { return []string{line} }}
	}
	twoChanges := &upstream{changes: true}
	twoChanges.watch = func(_ int, from uint64) []string {
		twoChanges.revision = max(twoChanges.revision, from+2)
		return []string{itemEvent("MODIFIED", itemBAt(from+1)), itemEvent("MODIFIED", itemBAt(from+2)), cut}
	}
	fewWatches, fewProbes := bounds{least: 3, most: 30}, bounds{least: 1, most: 30} // in a minute of growing pauses
	for name, tt := range map[string]feedCase{
		"all watches end": {
			upstream: allWatchesSend(cut), wantWatches: fewWatches, wantProbes: fewProbes,
		},
		"all watches break within an event": {
			upstream: allWatchesSend(`{"type":`), wantWatches: fewWatches, wantProbes: fewProbes,
		},
		"all watches send two events and end": {
			upstream: twoChanges, wantRevision: 400, wantWatches: bounds{least: 100, most: 2000}, // more than one a second
		},
	} {
		proxytest.Bubble(t, name, tt.check)
	}
}

// TestFeedContradicted: a feed drops a state that an event, a revision or a list contradicts, and counts the loss with its
// cause. A revision that goes back over one connection only is no contradiction.
func TestFeedContradicted(t *testing.T) {
	firstWatch := func(line string) *upstream { return &upstream{watch: firstWatchSends(line)} }
	otherEncoding := func(r *http.Request, _ requestKind) (time.Duration, *http.Response) {
		if r.URL.Query().Get("resourceVersionMatch") != "Exact" {
			return 0, nil
		}
		withNull := strings.Replace(itemB, "}}", `},"data":null}`, 1)
		return 0, proxytest.JSONResponse(r, http.StatusOK, configMapList(9, "", itemA, withNull))
	}
	awayForAMinute := fault{begins: afterTheLoad, duration: time.Minute, code: http.StatusServiceUnavailable}
	for name, tt := range map[string]feedCase{
		"an event is no JSON": {
			upstream: firstWatch(`{"type":"MODIFIED","object":{"kind":"ConfigMap",}}` + "\n"),
			wantLoss: reason.Contradiction,
		},
		"an event is of another kind": {
			upstream: firstWatch(strings.Replace(itemEvent("MODIFIED", itemBAt(12)), "ConfigMap", "Secret", 1)),
			wantLoss: reason.Contradiction,
		},
		"an object is added twice": {
			upstream: firstWatch(itemEvent("ADDED", itemBAt(12))), wantLoss: reason.Contradiction,
		},
		"an unknown object is modified": {
			upstream: firstWatch(itemEvent("MODIFIED", itemC)), wantLoss: reason.Contradiction,
		},
		"an unknown object is deleted": {
			upstream: firstWatch(itemEvent("DELETED", itemC)), wantLoss: reason.Contradiction,
		},
		"a change is below the interval's end": {
			upstream: firstWatch(itemEvent("MODIFIED", itemB)), wantLoss: reason.Contradiction,
		},
		"a bookmark is below the revision of the load": {upstream: firstWatch(bookmark(8, ""))},
		"a bookmark and the revision go back": {
			upstream:        &upstream{watch: firstWatchSends(bookmark(3, "")), intercept: replaceStorage()},
			duration:        5 * time.Second,
			wantUnavailable: reason.Warming, wantLoss: reason.WentBack,
		},
		"the revision goes back over one connection": {
			upstream: &upstream{intercept: replaceOneServer()},
		},
		"the revision goes back": {
			upstream: &upstream{intercept: replaceStorage()}, wantLoss: reason.WentBack,
		},
		"the watch is answered 410": {
			upstream: firstWatch(errorEvent(http.StatusGone)), wantLoss: reason.Expired,
		},
		"the watch is answered 410, and then the upstream is away": {
			upstream: &upstream{watch: firstWatchSends(errorEvent(http.StatusGone)), intercept: awayForAMinute.intercept()},
			duration: 3 * time.Minute, wantLoss: reason.Expired,
		},
		"the list has other bytes than the streaming list": {
			upstream: &upstream{intercept: otherEncoding}, wantUnavailable: reason.Form,
		},
	} {
		proxytest.Bubble(t, name, tt.check)
	}
}

// TestFeedOfASlowServer: a feed keeps its state if the API server is slow, or refuses some requests.
func TestFeedOfASlowServer(t *testing.T) {
	const (
		tooMany = http.StatusTooManyRequests
		longest = 39 * time.Minute // so that the feed has time to recover within the hour
	)
	for name, tt := range map[string]struct {
		fault      fault
		firstWatch string // the line that the first watch sends; "": a bookmark
	}{
		"a probe gets no answer": {
			fault: fault{kind: kindProbe, begins: time.Minute, duration: 20 * time.Second, delay: time.Hour},
		},
		"every other watch is refused":           {fault: fault{kind: kindWatch, everyOther: true, code: tooMany}},
		"watches are answered after six seconds": {fault: fault{kind: kindWatch, delay: 6 * time.Second}},
		"all answers come after twenty seconds": {
			fault: fault{begins: time.Minute, duration: longest, delay: 20 * time.Second},
		},
		"every other request is refused, and a watch breaks": {
			firstWatch: cut, fault: fault{begins: time.Second, duration: longest, everyOther: true, code: tooMany},
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			u := &upstream{changes: true, intercept: tt.fault.intercept()}
			if tt.firstWatch != "" {
				u.watch = firstWatchSends(tt.firstWatch)
			}
			feedCase{upstream: u, duration: time.Hour}.check(t)
		})
	}
}

// TestFeedWithoutProbes: a feed whose probes are refused after the load keeps its stream, and follows its bookmarks.
func TestFeedWithoutProbes(t *testing.T) {
	synctest.Test(t, feedCase{
		upstream: &upstream{
			repeats:   bookmark(30, ""),
			intercept: fault{kind: kindProbe, begins: afterTheLoad, code: http.StatusTooManyRequests}.intercept(),
		},
		wantRevision: 30, wantWatches: bounds{least: 1, most: 1},
	}.check)
}

// expectForwarded checks that a collection has a newest state, and whether clients' streaming lists of it are forwarded,
// since it is not known how they end.
func expectForwarded(t *testing.T, c *Collection, want bool) {
	t.Helper()
	snap, unavailable := c.NotOlderThan(t.Context(), 0)
	form := snap.WatchForm()
	if unavailable != reason.None || form == nil {
		t.Fatalf("the newest state: got reason %q and watches of the form %+v, want a state and a form", unavailable, form)
	}
	if got := form.InitialEndBookmark == nil; got != want {
		t.Errorf("streaming lists are forwarded: got %t, want %t", got, want)
	}
}

// TestStreamingListsThatFail: if streaming lists fail, a feed loads the state page by page. If the one of a name that cannot
// exist fails, too, clients' streaming lists are forwarded.
func TestStreamingListsThatFail(t *testing.T) {
	for name, tt := range map[string]struct {
		intercept     interceptor
		wantForwarded bool
	}{
		"all are refused with 422": {
			intercept: refuseStreamingLists(http.StatusUnprocessableEntity), wantForwarded: true,
		},
		"an error in the stream":  {intercept: replaceLoads(errorEvent(http.StatusInternalServerError))},
		"the stream ends at once": {intercept: replaceLoads("")},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			c := runWatchedFeed(t, &upstream{revision: 9, intercept: tt.intercept}, time.Minute)
			expectForwarded(t, c, tt.wantForwarded)
		})
	}
}

// TestForbiddenStreamingLists: a feed loads no pages if streaming lists are answered 403, since pages would be, too.
func TestForbiddenStreamingLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{revision: 9, intercept: refuseStreamingLists(http.StatusForbidden)}
		expectNewest(t, runWatchedFeed(t, u, time.Minute), reason.NotPermitted)
	})
}

// TestStreamingListsWithoutEnd: after a streaming list that did not end with its bookmark, a feed loads states in pages for
// noStreamingFor, since each such list costs the upstream a whole one. If the one of a name that cannot exist does not end
// either, the feed asks for no whole one at all, and clients' streaming lists are forwarded.
func TestStreamingListsWithoutEnd(t *testing.T) {
	for name, tt := range map[string]struct {
		emptyToo bool   // If emptyToo is true, the list of a name that cannot exist does not end either.
		repeats  string // repeats is the line that lists without an end send every second; "": none.
		// wantWhole is the number of whole streaming lists after three loads within noStreamingFor, and wantWholeThen the number
		// after one more load, later than noStreamingFor.
		wantWhole     int
		wantWholeThen int
		wantForwarded bool
	}{
		"no list ends":                          {emptyToo: true, wantForwarded: true},
		"lists send ordinary bookmarks instead": {emptyToo: true, repeats: bookmark(9, ""), wantForwarded: true},
		"only the empty list ends":              {wantWhole: 1, wantWholeThen: 2},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			whole := 0
			u := &upstream{revision: 9}
			u.intercept = func(r *http.Request, kind requestKind) (time.Duration, *http.Response) {
				switch {
				case kind == kindStreamingList:
					whole++
				case kind != kindEmptyStreamingList || !tt.emptyToo:
					return 0, nil
				}
				return 0, lastingResponse(r, "", tt.repeats, time.Second)
			}
			c := runWatchedFeed(t, u, time.Minute)
			for range 3 {
				expectForwarded(t, c, tt.wantForwarded)
				c.requestReload()
				time.Sleep(time.Minute)
			}
			synctest.Wait()
			if whole != tt.wantWhole {
				t.Errorf("within noStreamingFor: got %d whole streaming lists, want %d", whole, tt.wantWhole)
			}
			time.Sleep(noStreamingFor)
			c.requestReload()
			time.Sleep(time.Minute)
			synctest.Wait()
			if !tt.emptyToo && whole != tt.wantWholeThen {
				t.Errorf("after noStreamingFor: got %d whole streaming lists, want %d", whole, tt.wantWholeThen)
			}
		})
	}
}

// TestAnotherTimelineIsLoaded: after a balancer or an aggregator has refused a probe, the API server may be another one, so a
// feed opens its stream again. It loads the state anew, unless a watch sends the newest change (of b at 8) again as it was,
// and nothing else up to 9.
func TestAnotherTimelineIsLoaded(t *testing.T) {
	b, later := itemEvent("MODIFIED", itemBAt(8)), itemEvent("MODIFIED", itemBAt(12))
	otherBytes := strings.Replace(b, `"namespace":"n",`, `"namespace":"n","uid":"u",`, 1)
	for name, tt := range map[string]struct {
		replay      []string // the lines of the watch that begins before the change; nil: the change, and a bookmark
		wantLoads   int
		wantWatches int // 0: any number
	}{
		"the same change":                       {replay: nil, wantLoads: 1, wantWatches: 3},
		"the same change, and a later one":      {replay: []string{b, later, bookmark(12, "")}, wantLoads: 1, wantWatches: 3},
		"the same change, a later one, and cut": {replay: []string{b, later, cut}, wantLoads: 1, wantWatches: 3},
		"the same object with other bytes":      {replay: []string{otherBytes, bookmark(9, "")}, wantLoads: 2},
		"another object":                        {replay: []string{strings.Replace(b, `"b"`, `"c"`, 1), bookmark(9, "")}, wantLoads: 2},
		"a deletion":                            {replay: []string{itemEvent("DELETED", itemBAt(8)), bookmark(9, "")}, wantLoads: 2},
		"the same change, and one up to 9":      {replay: []string{b, itemEvent("MODIFIED", itemBAt(9)), bookmark(9, "")}, wantLoads: 2},
		"the change at another revision":        {replay: []string{itemEvent("MODIFIED", itemBAt(9)), bookmark(9, "")}, wantLoads: 2},
		"no change":                             {replay: []string{bookmark(9, "")}, wantLoads: 2},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			begun := time.Now()
			u := &upstream{revision: 7, changes: true, repeats: bookmark(9, ""), replay: tt.replay}
			u.intercept = func(r *http.Request, kind requestKind) (time.Duration, *http.Response) {
				if since := time.Since(begun); kind != kindProbe || since < time.Second || since > time.Minute {
					return 0, nil
				}
				return 0, proxytest.JSONResponse(r, http.StatusServiceUnavailable, "no server is available")
			}
			runFeed(t, u, 2*time.Minute)
			if u.loads != tt.wantLoads {
				t.Errorf("got %d loads, want %d", u.loads, tt.wantLoads)
			}
			if tt.wantWatches > 0 && u.watches != tt.wantWatches {
				t.Errorf("got %d watches, want %d: the load's, the one that replays, and the stream", u.watches, tt.wantWatches)
			}
		})
	}
}

// TestSameServersSameTimeline: after its stream has ended, a feed without a change since its load keeps the state and the
// history if SameTimeline returns that an API server that ran before still runs. That may be known only once the server has
// renewed its Lease, so the feed asks again. Otherwise it loads the state anew.
func TestSameServersSameTimeline(t *testing.T) {
	const never = 100 // more calls than there are
	for name, tt := range map[string]struct {
		unprovenFor int  // so many calls of SameTimeline return false
		soon        bool // these calls return that it may be known soon
		wantLoads   int
	}{
		"the servers are the same":                   {wantLoads: 1},
		"the servers are shown later to be the same": {unprovenFor: leasePauses, soon: true, wantLoads: 1},
		"the servers are never shown to be the same": {unprovenFor: never, soon: true, wantLoads: 2},
		"nothing will be known of the servers":       {unprovenFor: never, wantLoads: 2},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			calls := 0
			u := &upstream{revision: 9, watch: firstWatchSends(bookmark(9, ""), cut)}
			c, _ := newCollections(t, u, func(c *Config) {
				c.SameTimeline = func(_ context.Context, revision uint64, currentAt time.Time) (same, soon bool) {
					if age := time.Since(currentAt); revision != 9 || age > time.Minute {
						t.Errorf("SameTimeline: got revision %d, current %v ago; want 9, at most a minute ago", revision, age)
					}
					calls++
					return calls > tt.unprovenFor, tt.soon
				}
			}).Use(configMaps)
			time.Sleep(time.Minute)
			synctest.Wait()
			if u.loads != tt.wantLoads {
				t.Errorf("got %d loads, want %d", u.loads, tt.wantLoads)
			}
			if most := leasePauses + 1; calls > most {
				t.Errorf("got %d calls of SameTimeline, want at most %d", calls, most)
			}
			if _, unavailable := c.Exact(t.Context(), 9); unavailable != reason.None {
				t.Errorf("the state at 9: got reason %q, want the state", unavailable)
			}
		})
	}
}

// TestFeedsObeyRetryAfter: a feed does not repeat a refused request before its Retry-After is over, whether it learns, loads,
// follows or probes, and however often a probe is requested meanwhile.
func TestFeedsObeyRetryAfter(t *testing.T) {
	for name, tt := range map[string]struct {
		intercept       interceptor
		firstWatch      string // the line that it sends
		wantUnavailable reason.Reason
	}{
		"learning": {intercept: refuseKind(kindProbe, http.StatusTooManyRequests), wantUnavailable: reason.Warming},
		"loading":  {intercept: refuseStreamingLists(http.StatusTooManyRequests), wantUnavailable: reason.Warming},
		"following": {
			intercept: refuseKind(kindWatch, http.StatusServiceUnavailable), firstWatch: cut, wantUnavailable: reason.Stale,
		},
		"probing": {
			intercept:  fault{kind: kindProbe, begins: afterTheLoad, code: http.StatusTooManyRequests}.intercept(),
			firstWatch: bookmark(9, ""), wantUnavailable: reason.Stale,
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			refused := 0
			u := &upstream{revision: 9, watch: firstWatchSends(tt.firstWatch), repeats: bookmark(9, "")}
			u.intercept = func(r *http.Request, kind requestKind) (time.Duration, *http.Response) {
				hold, response := tt.intercept(r, kind)
				if response != nil {
					refused++
					response.Header.Set("Retry-After", "40")
				}
				return hold, response
			}
			c := runFeed(t, u, 0)
			for begun := time.Now(); time.Since(begun) < 100*time.Second; time.Sleep(100 * time.Millisecond) {
				c.requestProbe()
			}
			synctest.Wait()
			if refused < 2 || refused > 3 {
				t.Errorf("got %d refused requests in 100s with Retry-After: 40, want 2 or 3", refused)
			}
			expectNewest(t, c, tt.wantUnavailable)
		})
	}
}

// TestFeedsAreWoken: a request for a revision that the feed has not reached, or for a probe, ends the feed's pause before it
// opens its stream.
func TestFeedsAreWoken(t *testing.T) {
	for name, wake := range map[string]func(*testing.T, *Collection){
		"a list not older than the next change": func(t *testing.T, c *Collection) {
			t.Helper()
			if _, unavailable := c.NotOlderThan(t.Context(), 8); unavailable != reason.NotProven { // after Limits.Wait
				t.Errorf("a state not older than 8, without a stream: got reason %q, want %q", unavailable, reason.NotProven)
			}
		},
		"a probe is requested": func(_ *testing.T, c *Collection) { c.requestProbe() },
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			const down = 50 * time.Second
			begun := time.Now()
			u := &upstream{
				revision: 7, changes: true,
				watch: func(int, uint64) []string {
					if time.Since(begun) < down {
						return []string{cut}
					}
					return []string{bookmark(9, "")}
				},
				intercept: func(r *http.Request, kind requestKind) (time.Duration, *http.Response) {
					if (kind == kindWatch || kind == kindShortWatch) && time.Since(begun) < down {
						return 0, busyResponse(r, http.StatusTooManyRequests, "0")
					}
					return 0, nil
				},
			}
			c := runFeed(t, u, down)
			wake(t, c)
			time.Sleep(minStreamLife)
			synctest.Wait()
			if !c.view.Load().streaming {
				t.Errorf("the feed has no stream after %v", minStreamLife)
			}
			if _, unavailable := c.NotOlderThan(t.Context(), 9); unavailable != reason.None {
				t.Errorf("a state not older than 9, with a stream again: got reason %q, want the state", unavailable)
			}
		})
	}
}
