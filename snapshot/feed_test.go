package snapshot

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/wire"
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
func refuseKind(kind string, code int) interceptor {
	return func(r *http.Request, requested string) (time.Duration, *http.Response) {
		if requested != kind {
			return 0, nil
		}
		return 0, proxytest.JSONResponse(r, code, statusBody)
	}
}

// replaceLoads answers streaming lists of the whole state with a text.
func replaceLoads(text string) interceptor {
	return func(r *http.Request, kind string) (time.Duration, *http.Response) {
		if kind != "load" || r.URL.Query().Has("fieldSelector") {
			return 0, nil
		}
		return 0, proxytest.JSONResponse(r, http.StatusOK, text)
	}
}

// probesGoBackwards answers probes after the load with a revision below that of the load. Probes over connections of
// their own are answered so only if the storage was replaced.
func probesGoBackwards(replaced bool) interceptor {
	goesBack := fault{kind: "probe", begins: afterTheLoad, duration: 25 * time.Second, code: http.StatusOK}.intercept()
	return func(r *http.Request, kind string) (time.Duration, *http.Response) {
		_, response := goesBack(r, kind)
		isElsewhere := r.Close
		if response == nil || (isElsewhere && !replaced) {
			return 0, nil
		}
		return 0, proxytest.JSONResponse(r, http.StatusOK, (&upstream{}).list(3, ""))
	}
}

// loadInPages answers streaming lists with an error, and the list with two pages.
func loadInPages(first, second string) interceptor {
	return func(r *http.Request, kind string) (time.Duration, *http.Response) {
		switch q := r.URL.Query(); {
		case kind == "load":
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
	kind       string        // of the requests; "" is any
	begins     time.Duration // after the first request
	duration   time.Duration // 0 is for ever
	everyOther bool          // only every second request
	delay      time.Duration
	code       int // 0 is no status
}

func (f fault) intercept() interceptor {
	var firstRequest time.Time
	affected := 0
	return func(r *http.Request, kind string) (time.Duration, *http.Response) {
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
type bounds [2]int

func (b bounds) contain(n int) bool { return b == bounds{} || b[0] <= n && n <= b[1] }

// feedCase is an upstream, and what a feed that runs on it for a time must come to.
type feedCase struct {
	upstream     *upstream
	duration     time.Duration // a minute if it is 0
	wantNewest   reason.Reason // why there is no newest state; None if there is one
	wantRevision uint64        // of the newest state, or a later one
	wantLoss     reason.Reason // the cause of the only loss; None if no state was lost
	wantWatches  bounds
	wantProbes   bounds
}

// check runs a feed on the case's upstream, and compares what the case wants.
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
	_, newest := c.NotOlderThan(t.Context(), 0)
	if revision := c.view.Load().To; newest != tt.wantNewest || revision < tt.wantRevision {
		t.Errorf("the newest state: %q at %d, want %q at %d", newest, revision, tt.wantNewest, tt.wantRevision)
	}
	wantLosses := map[reason.Reason]uint64{}
	if tt.wantLoss != reason.None {
		wantLosses[tt.wantLoss] = 1
	}
	if losses := c.counts.lossesByCause(); !maps.Equal(losses, wantLosses) {
		t.Errorf("losses %v, want %v", losses, wantLosses)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if !tt.wantWatches.contain(u.watches) || !tt.wantProbes.contain(u.probes) {
		t.Errorf("%d watches and %d probes, want %v and %v", u.watches, u.probes, tt.wantWatches, tt.wantProbes)
	}
}

// TestFeed: a feed of a healthy upstream loads a state and keeps it. It does not load pages of two revisions.
func TestFeed(t *testing.T) {
	// The first object differs each time it is looked at.
	alwaysChanged := func(r *http.Request, kind string) (time.Duration, *http.Response) {
		later := strings.Replace(itemA, `"5"`, `"8"`, 1)
		switch {
		case kind != "watch of one":
			return 0, nil
		case r.URL.Query().Get("resourceVersion") == "0":
			return 0, proxytest.JSONResponse(r, http.StatusOK, itemEvent("ADDED", later))
		}
		return 0, proxytest.JSONResponse(r, http.StatusOK, itemEvent("MODIFIED", itemA)+itemEvent("MODIFIED", later))
	}
	loads := 0
	silentFirstLoad := func(r *http.Request, kind string) (time.Duration, *http.Response) {
		if kind == "load" {
			loads++
		}
		if kind != "load" || loads > 1 {
			return 0, nil
		}
		return 0, (&upstream{}).lastingResponse(r, "", "", time.Hour)
	}
	for name, tt := range map[string]feedCase{
		"nothing changes": {upstream: &upstream{}, wantRevision: 9},
		"watches end at their timeouts": {
			upstream: &upstream{}, duration: 6 * watchTimeout, wantWatches: bounds{4, 7},
		},
		"the first object changes between the list and the watch that learn its form": {
			upstream: &upstream{intercept: alwaysChanged},
		},
		"the first streaming list is silent": {
			upstream: &upstream{intercept: silentFirstLoad},
		},
		"the state comes in pages": {
			upstream: &upstream{intercept: loadInPages(
				(&upstream{}).list(9, `,"continue":"x"`, itemA),
				(&upstream{}).list(9, "", itemB),
			)},
		},
		"the pages are of two revisions": {
			upstream: &upstream{intercept: loadInPages(
				(&upstream{}).list(8, `,"continue":"x"`, itemA),
				(&upstream{}).list(9, "", itemB),
			)},
			wantNewest: reason.Warming,
		},
	} {
		proxytest.Bubble(t, name, tt.check)
	}
}

// TestFeedOfBrokenStreams: streams that end at once are opened again after pauses. The pauses do not grow while streams
// send events: otherwise the feed of a resource that changes often would be ever further behind.
func TestFeedOfBrokenStreams(t *testing.T) {
	allWatchesSend := func(line string) *upstream {
		return &upstream{changes: true, watch: func(int, uint64) []string { return []string{line} }}
	}
	twoChanges := &upstream{changes: true}
	twoChanges.watch = func(_ int, from uint64) []string {
		twoChanges.revision = max(twoChanges.revision, from+2)
		return []string{itemEvent("MODIFIED", itemBAt(from+1)), itemEvent("MODIFIED", itemBAt(from+2)), cut}
	}
	for name, tt := range map[string]feedCase{
		"all watches end": {
			upstream:    allWatchesSend(cut),
			wantWatches: bounds{3, 30}, wantProbes: bounds{1, 30},
		},
		"all watches end with an error": {
			upstream:    allWatchesSend(errorEvent(http.StatusInternalServerError)),
			wantWatches: bounds{3, 30}, wantProbes: bounds{1, 30},
		},
		"all watches break within an event": {
			upstream:    allWatchesSend(`{"type":`),
			wantWatches: bounds{3, 30}, wantProbes: bounds{1, 30},
		},
		"all watches send two events and end": {
			upstream: twoChanges, wantRevision: 400, wantWatches: bounds{100, 2000},
		},
	} {
		proxytest.Bubble(t, name, tt.check)
	}
}

// TestFeedContradicted: a state that an event, a revision or a list contradicts is lost, for the right reason. A
// revision that goes back for a moment is no contradiction.
func TestFeedContradicted(t *testing.T) {
	firstWatch := func(line string) *upstream { return &upstream{watch: firstWatchSends(line)} }
	otherEncoding := func(r *http.Request, _ string) (time.Duration, *http.Response) {
		if r.URL.Query().Get("resourceVersionMatch") != "Exact" {
			return 0, nil
		}
		withNull := strings.Replace(itemB, "}}", `},"data":null}`, 1)
		return 0, proxytest.JSONResponse(r, http.StatusOK, (&upstream{}).list(9, "", itemA, withNull))
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
			upstream:   &upstream{watch: firstWatchSends(bookmark(3, "")), intercept: probesGoBackwards(true)},
			duration:   5 * time.Second,
			wantNewest: reason.Warming, wantLoss: reason.WentBack,
		},
		"the revision goes back over one connection": {
			upstream: &upstream{intercept: probesGoBackwards(false)},
		},
		"the revision goes back": {
			upstream: &upstream{intercept: probesGoBackwards(true)}, wantLoss: reason.WentBack,
		},
		"the watch is answered 410": {
			upstream: firstWatch(errorEvent(http.StatusGone)), wantLoss: reason.Expired,
		},
		"the watch is answered 410, and then the upstream is away": {
			upstream: &upstream{watch: firstWatchSends(errorEvent(http.StatusGone)), intercept: awayForAMinute.intercept()},
			duration: 3 * time.Minute, wantLoss: reason.Expired,
		},
		"the list has other bytes than the streaming list": {
			upstream: &upstream{intercept: otherEncoding}, wantNewest: reason.Form,
		},
	} {
		proxytest.Bubble(t, name, tt.check)
	}
}

// TestFeedOfASlowServer: the feed of an API server that is slow, or refuses some requests, loads no second state.
func TestFeedOfASlowServer(t *testing.T) {
	const tooMany, longest = http.StatusTooManyRequests, 39 * time.Minute
	for name, tt := range map[string]struct {
		fault      fault
		firstWatch string // the line that it sends; empty: a bookmark
	}{
		"a probe gets no answer": {
			fault: fault{kind: "probe", begins: time.Minute, duration: 20 * time.Second, delay: time.Hour},
		},
		"every other watch is refused":           {fault: fault{kind: "watch", everyOther: true, code: tooMany}},
		"watches are answered after six seconds": {fault: fault{kind: "watch", delay: 6 * time.Second}},
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
	proxytest.Bubble(t, "probes are refused after the load", feedCase{
		upstream: &upstream{
			repeats:   bookmark(30, ""),
			intercept: fault{kind: "probe", begins: afterTheLoad, code: tooMany}.intercept(),
		},
		wantRevision: 30, wantWatches: bounds{1, 1},
	}.check)
}

// TestStreamingListsThatFail: if streaming lists fail, the state is loaded page by page, unless pages would fail, too.
func TestStreamingListsThatFail(t *testing.T) {
	for name, tt := range map[string]struct {
		intercept  interceptor
		wantNewest reason.Reason
		// wantForwarded reports whether clients' streaming lists are forwarded, since also the empty one has failed.
		wantForwarded bool
	}{
		"refused with 422":       {intercept: refuseKind("load", http.StatusUnprocessableEntity), wantForwarded: true},
		"refused with 500":       {intercept: refuseKind("load", http.StatusInternalServerError), wantForwarded: true},
		"an error in the stream": {intercept: replaceLoads(errorEvent(http.StatusInternalServerError))},
		"ended at once":          {intercept: replaceLoads("")},
		"refused with 429":       {intercept: refuseKind("load", http.StatusTooManyRequests), wantNewest: reason.Warming},
		"refused with 403":       {intercept: refuseKind("load", http.StatusForbidden), wantNewest: reason.NotPermitted},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			c := runWatchedFeed(t, &upstream{revision: 9, intercept: tt.intercept}, time.Minute)
			snap, newest := c.NotOlderThan(t.Context(), 0)
			if newest != tt.wantNewest {
				t.Errorf("the newest state: %q, want %q", newest, tt.wantNewest)
			}
			if form := snap.WatchForm(); newest == reason.None && (form == nil || (form.InitialEndBookmark == nil) != tt.wantForwarded) {
				t.Errorf("watches have the form %+v", form)
			}
		})
	}
}

// TestStreamingListsWithoutEnd: after a streaming list that did not end with its bookmark, states are loaded in pages
// for an hour, since each such list costs the upstream a whole one. If also an empty streaming list does not end,
// clients' streaming lists are forwarded.
func TestStreamingListsWithoutEnd(t *testing.T) {
	for name, tt := range map[string]struct {
		emptyToo bool   // the list of a name that cannot exist does not end either
		repeats  string // the line that is sent every second instead
		want     int    // streaming lists of the whole state in the first hour
	}{
		"no list ends":                          {emptyToo: true, want: 0},
		"lists send ordinary bookmarks instead": {emptyToo: true, repeats: bookmark(9, ""), want: 0},
		"only the empty list ends":              {want: 1},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			asked := 0
			u := &upstream{revision: 9}
			u.intercept = func(r *http.Request, kind string) (time.Duration, *http.Response) {
				whole := !r.URL.Query().Has("fieldSelector")
				if kind != "load" || !whole && !tt.emptyToo {
					return 0, nil
				}
				if whole {
					asked++
				}
				return 0, (&upstream{}).lastingResponse(r, "", tt.repeats, time.Second)
			}
			c := runWatchedFeed(t, u, time.Minute)
			for range 3 {
				snap, newest := c.NotOlderThan(t.Context(), 0)
				if form := snap.WatchForm(); newest != reason.None || form == nil || (form.InitialEndBookmark == nil) != tt.emptyToo {
					t.Fatalf("the newest state: %q; watches have the form %+v", newest, form)
				}
				c.requestReload()
				time.Sleep(time.Minute)
			}
			synctest.Wait()
			if asked != tt.want {
				t.Errorf("%d whole streaming lists in a few minutes, want %d", asked, tt.want)
			}
			time.Sleep(noStreamingFor)
			c.requestReload()
			time.Sleep(time.Minute)
			synctest.Wait()
			if !tt.emptyToo && asked != tt.want+1 {
				t.Errorf("%d whole streaming lists after an hour, want %d", asked, tt.want+1)
			}
		})
	}
}

// TestAnotherTimelineIsLoaded: after a balancer or an aggregator has refused a probe, the API server may be another
// one. The stream is opened again. The state is loaded anew, unless a watch sends the newest change, of b at 8, again
// as it was, and nothing else up to 9.
func TestAnotherTimelineIsLoaded(t *testing.T) {
	b, later := itemEvent("MODIFIED", itemBAt(8)), itemEvent("MODIFIED", itemBAt(12))
	otherBytes := strings.Replace(b, `"namespace":"n",`, `"namespace":"n","uid":"u",`, 1)
	for name, tt := range map[string]struct {
		replay    []string // the lines of the watch that begins before the change; nil: the change, and a bookmark
		wantLoads int
	}{
		"the same change":                       {replay: nil, wantLoads: 1},
		"the same change, and a later one":      {replay: []string{b, later, bookmark(12, "")}, wantLoads: 1},
		"the same change, a later one, and cut": {replay: []string{b, later, cut}, wantLoads: 1},
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
			u.intercept = func(r *http.Request, kind string) (time.Duration, *http.Response) {
				if since := time.Since(begun); kind != "probe" || since < time.Second || since > time.Minute {
					return 0, nil
				}
				return 0, proxytest.JSONResponse(r, http.StatusServiceUnavailable, "no server is available")
			}
			runFeed(t, u, 2*time.Minute)
			if u.loads != tt.wantLoads || tt.wantLoads == 1 && u.watches != 3 {
				t.Errorf("%d loads, want %d; %d watches, want 3 with one load", u.loads, tt.wantLoads, u.watches)
			}
		})
	}
}

// TestSameServersSameTimeline: after a break, a collection without a change since its load keeps its state and history,
// if an API server that ran before the break still runs. That may be known only once the server has renewed its Lease.
// Otherwise the state is loaded anew.
func TestSameServersSameTimeline(t *testing.T) {
	for name, tt := range map[string]struct {
		unprovenFor int  // the number of calls of SameTimeline that return false
		soon        bool // these calls return that it may be known soon
		wantLoads   int
	}{
		"the servers are the same":                   {wantLoads: 1},
		"the servers are shown later to be the same": {unprovenFor: leasePauses, soon: true, wantLoads: 1},
		"the servers are never shown to be the same": {unprovenFor: 100, soon: true, wantLoads: 2},
		"nothing will be known of the servers":       {unprovenFor: 100, wantLoads: 2},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			asked := 0
			u := &upstream{revision: 9, watch: func(n int, _ uint64) []string {
				if n == 1 {
					return []string{bookmark(9, ""), cut}
				}
				return []string{bookmark(9, "")}
			}}
			c, _ := newCollections(t, u, func(c *Config) {
				c.SameTimeline = func(_ context.Context, revision uint64, currentAt time.Time) (same, soon bool) {
					if revision != 9 || time.Since(currentAt) > time.Minute {
						t.Errorf("asked about revision %d, currentAt %v ago", revision, time.Since(currentAt))
					}
					asked++
					return asked > tt.unprovenFor, tt.soon
				}
			}).Use(configMaps)
			time.Sleep(time.Minute)
			synctest.Wait()
			if most := leasePauses + 1; u.loads != tt.wantLoads || asked > most {
				t.Errorf("%d loads and %d calls of SameTimeline, want %d and at most %d", u.loads, asked, tt.wantLoads, most)
			}
			if _, why := c.Exact(t.Context(), 9); why != reason.None {
				t.Errorf("the state at 9: %q", why)
			}
		})
	}
}

// TestFeedsObeyRetryAfter: a feed whose request is refused does not repeat it before Retry-After is over, whether it
// learns, loads, follows or probes, and however often a probe is requested meanwhile.
func TestFeedsObeyRetryAfter(t *testing.T) {
	for name, tt := range map[string]struct {
		intercept  interceptor
		firstWatch string // the line that it sends
		wantNewest reason.Reason
	}{
		"learning": {intercept: refuseKind("probe", http.StatusTooManyRequests), wantNewest: reason.Warming},
		"loading":  {intercept: refuseKind("load", http.StatusTooManyRequests), wantNewest: reason.Warming},
		"following": {
			intercept: refuseKind("watch", http.StatusServiceUnavailable), firstWatch: cut, wantNewest: reason.Stale,
		},
		"probing": {
			intercept:  fault{kind: "probe", begins: afterTheLoad, code: http.StatusTooManyRequests}.intercept(),
			firstWatch: bookmark(9, ""), wantNewest: reason.Stale,
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			refused := 0
			u := &upstream{revision: 9, watch: firstWatchSends(tt.firstWatch), repeats: bookmark(9, "")}
			u.intercept = func(r *http.Request, kind string) (time.Duration, *http.Response) {
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
				t.Errorf("refused %d times in 100s with Retry-After: 40, want 2 or 3", refused)
			}
			if _, newest := c.NotOlderThan(t.Context(), 0); newest != tt.wantNewest {
				t.Errorf("the newest state: %q, want %q", newest, tt.wantNewest)
			}
		})
	}
}

// TestFeedsAreWoken: a request for the newest state, or a watch that is too old, ends the pause of a feed before it
// opens its stream.
func TestFeedsAreWoken(t *testing.T) {
	for name, wake := range map[string]func(*testing.T, *Collection){
		"a request for the newest state": func(t *testing.T, c *Collection) {
			t.Helper()
			for rev, want := range map[uint64]reason.Reason{0: reason.None, 8: reason.NotProven} {
				if _, why := c.NotOlderThan(t.Context(), rev); why != want {
					t.Errorf("not older than %d: %q, want %q", rev, why, want)
				}
			}
		},
		"a watch that is too old": func(_ *testing.T, c *Collection) { c.requestProbe() },
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
				intercept: func(r *http.Request, kind string) (time.Duration, *http.Response) {
					if strings.HasSuffix(kind, "watch") && time.Since(begun) < down {
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
				t.Error("the feed has no stream a moment later")
			}
			if _, why := c.NotOlderThan(t.Context(), 9); why != reason.None {
				t.Errorf("the newest state, with a stream again: %q, want it", why)
			}
		})
	}
}

// TestOddNames: RBAC objects may have names with the separators of field selectors, and with bytes that are not UTF-8.
// The former can be selected. The latter have no place in a list, since JSON shows them as U+FFFD, out of order.
func TestOddNames(t *testing.T) {
	selector, err := fields.ParseSelector(source.NameSelector("a,b=c"))
	if err != nil || !selector.Matches(fields.Set{wire.NameField: "a,b=c"}) {
		t.Errorf("%v does not choose a,b=c: %v", selector, err)
	}
	f := &feed{source: source.Source{Resource: CollectionKey{Namespaced: true}}}
	for _, m := range []wire.ObjectMeta{{Namespace: "n", Name: "a\ufffd"}, {Namespace: "\ufffd", Name: "a"}} {
		if _, err := f.source.Key(m); !errors.Is(err, wire.ErrForm) {
			t.Errorf("%+v: %v, want %v", m, err, wire.ErrForm)
		}
	}
	if key, err := f.source.Key(wire.ObjectMeta{Namespace: "n", Name: "𐀀:a"}); err != nil || key != "n/𐀀:a" {
		t.Errorf("got %q, %v", key, err)
	}
}
