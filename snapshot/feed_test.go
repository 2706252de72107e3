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

// firstWatchTells has the first watch tell these lines. All others tell how far the upstream is.
func firstWatchTells(lines ...string) func(int, uint64) []string {
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

// probesGoBackwards answers probes after the load with a revision below it; those over connections of their own only if
// the storage was replaced.
func probesGoBackwards(replaced bool) interceptor {
	goesBack := fault{kind: "probe", from: afterTheLoad, lasts: 25 * time.Second, code: http.StatusOK}.intercept()
	return func(r *http.Request, kind string) (time.Duration, *http.Response) {
		if _, response := goesBack(r, kind); response == nil || r.Close && !replaced {
			return 0, nil
		}
		return 0, proxytest.JSONResponse(r, http.StatusOK, (&upstream{}).list(3, ""))
	}
}

// loadInPages answers streaming lists with an error, and the list with two pages.
func loadInPages(page, second string) interceptor {
	return func(r *http.Request, kind string) (time.Duration, *http.Response) {
		switch q := r.URL.Query(); {
		case kind == "load":
			return 0, proxytest.JSONResponse(r, http.StatusUnprocessableEntity, "{}")
		case q.Has("continue"):
			return 0, proxytest.JSONResponse(r, http.StatusOK, second)
		case q.Get("limit") == strconv.Itoa(initialLimit):
			return 0, proxytest.JSONResponse(r, http.StatusOK, page)
		}
		return 0, nil
	}
}

// afterTheLoad is soon after the upstream is asked first: a state is loaded and compared, which takes no time.
const afterTheLoad = time.Millisecond

// fault is what an upstream does wrong: requests of a kind ("": of any) are answered late, or with a status. It begins
// some time after the first request, and lasts for a time, or for ever.
type fault struct {
	kind        string
	from, lasts time.Duration
	everyOther  bool // only every second request
	late        time.Duration
	code        int
}

func (f fault) intercept() interceptor {
	var begun time.Time
	asked := 0
	return func(r *http.Request, kind string) (time.Duration, *http.Response) {
		if begun.IsZero() {
			begun = time.Now()
		}
		since := time.Since(begun) - f.from
		if f.kind != "" && f.kind != kind || since < 0 || f.lasts > 0 && since > f.lasts {
			return 0, nil
		}
		if asked++; f.everyOther && asked%2 != 0 {
			return 0, nil
		}
		if f.code != 0 {
			return 0, busyResponse(r, f.code, "1")
		}
		return f.late, nil
	}
}

// bounds are the least and the most of a number; none: any number.
type bounds [2]int

func (b bounds) contain(n int) bool { return b == bounds{} || b[0] <= n && n <= b[1] }

// feedCase is an upstream, and what a feed makes of it.
type feedCase struct {
	upstream     *upstream
	lasts        time.Duration // a minute if it is not said
	wantNewest   reason.Reason // why there is no newest state
	wantRevision uint64        // or a later one
	wantLoss     reason.Reason // by which the feed has lost its state once; None: it has lost nothing
	wantWatches  bounds
	wantProbes   bounds
}

// check runs a feed on the case's upstream, and requires what the case wants.
func (tt feedCase) check(t *testing.T) {
	t.Helper()
	u := tt.upstream
	if u.revision = 9; u.changes {
		u.revision = 7
	}
	if u.watch == nil {
		u.watch = firstWatchTells(bookmark(9, ""))
	}
	c := runFeed(t, u, cmp.Or(tt.lasts, time.Minute))
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

// TestFeed: a feed with nothing to complain of keeps the state that it has loaded.
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
		"nothing happens": {upstream: &upstream{}, wantRevision: 9},
		"a watch that ends at its timeout, and others": {
			upstream: &upstream{}, lasts: 6 * watchTimeout, wantWatches: bounds{4, 7},
		},
		"the first object changes whenever it is looked at": {
			upstream: &upstream{intercept: alwaysChanged},
		},
		"a streaming list that is silent is begun anew": {
			upstream: &upstream{intercept: silentFirstLoad},
		},
		"pages": {
			upstream: &upstream{intercept: loadInPages(
				(&upstream{}).list(9, `,"continue":"x"`, itemA),
				(&upstream{}).list(9, "", itemB),
			)},
		},
		"pages of two revisions": {
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

// TestFeedOfBrokenStreams: streams that end at once are opened again after pauses that do not grow while they tell
// something, for a pause that grew would leave what changes often ever further behind.
func TestFeedOfBrokenStreams(t *testing.T) {
	allWatchesTell := func(line string) *upstream {
		return &upstream{changes: true, watch: func(int, uint64) []string { return []string{line} }}
	}
	twoChanges := &upstream{changes: true}
	twoChanges.watch = func(_ int, from uint64) []string {
		twoChanges.revision = max(twoChanges.revision, from+2)
		return []string{itemEvent("MODIFIED", itemBAt(from+1)), itemEvent("MODIFIED", itemBAt(from+2)), cut}
	}
	for name, tt := range map[string]feedCase{
		"watches that end": {
			upstream:    allWatchesTell(cut),
			wantWatches: bounds{3, 30}, wantProbes: bounds{1, 30},
		},
		"watches that end with an error": {
			upstream:    allWatchesTell(errorEvent(http.StatusInternalServerError)),
			wantWatches: bounds{3, 30}, wantProbes: bounds{1, 30},
		},
		"watches that break": {
			upstream:    allWatchesTell(`{"type":`),
			wantWatches: bounds{3, 30}, wantProbes: bounds{1, 30},
		},
		"watches that tell something each time before they end": {
			upstream: twoChanges, wantRevision: 400, wantWatches: bounds{100, 2000},
		},
	} {
		proxytest.Bubble(t, name, tt.check)
	}
}

// TestFeedContradicted: a state that an event, a revision or a list contradicts is not kept.
func TestFeedContradicted(t *testing.T) {
	firstWatch := func(line string) *upstream { return &upstream{watch: firstWatchTells(line)} }
	otherEncoding := func(r *http.Request, _ string) (time.Duration, *http.Response) {
		if r.URL.Query().Get("resourceVersionMatch") != "Exact" {
			return 0, nil
		}
		withNull := strings.Replace(itemB, "}}", `},"data":null}`, 1)
		return 0, proxytest.JSONResponse(r, http.StatusOK, (&upstream{}).list(9, "", itemA, withNull))
	}
	awayForAMinute := fault{from: afterTheLoad, lasts: time.Minute, code: http.StatusServiceUnavailable}
	for name, tt := range map[string]feedCase{
		"an event that is no JSON": {
			upstream: firstWatch(`{"type":"MODIFIED","object":{"kind":"ConfigMap",}}` + "\n"),
			wantLoss: reason.Contradiction,
		},
		"an event of another kind": {
			upstream: firstWatch(strings.Replace(itemEvent("MODIFIED", itemBAt(12)), "ConfigMap", "Secret", 1)),
			wantLoss: reason.Contradiction,
		},
		"what is added and there": {
			upstream: firstWatch(itemEvent("ADDED", itemBAt(12))), wantLoss: reason.Contradiction,
		},
		"what is modified and not there": {
			upstream: firstWatch(itemEvent("MODIFIED", itemC)), wantLoss: reason.Contradiction,
		},
		"what is deleted and not there": {
			upstream: firstWatch(itemEvent("DELETED", itemC)), wantLoss: reason.Contradiction,
		},
		"a change below the revision that was reached": {
			upstream: firstWatch(itemEvent("MODIFIED", itemB)), wantLoss: reason.Contradiction,
		},
		"a bookmark below the revision of the load": {upstream: firstWatch(bookmark(8, ""))},
		"a bookmark that goes back, and the revision too": {
			upstream:   &upstream{watch: firstWatchTells(bookmark(3, "")), intercept: probesGoBackwards(true)},
			lasts:      5 * time.Second,
			wantNewest: reason.Warming, wantLoss: reason.WentBack,
		},
		"a revision that goes back for a moment": {
			upstream: &upstream{intercept: probesGoBackwards(false)},
		},
		"a revision that goes back": {
			upstream: &upstream{intercept: probesGoBackwards(true)}, wantLoss: reason.WentBack,
		},
		"what came since is forgotten": {
			upstream: firstWatch(errorEvent(http.StatusGone)), wantLoss: reason.Expired,
		},
		"what came since is forgotten, and then the upstream is away": {
			upstream: &upstream{watch: firstWatchTells(errorEvent(http.StatusGone)), intercept: awayForAMinute.intercept()},
			lasts:    3 * time.Minute, wantLoss: reason.Expired,
		},
		"a state that is written in another way": {
			upstream: &upstream{intercept: otherEncoding}, wantNewest: reason.Form,
		},
	} {
		proxytest.Bubble(t, name, tt.check)
	}
}

// TestFeedOfASlowServer: an API server that is slow, or refuses some requests, costs no second load.
func TestFeedOfASlowServer(t *testing.T) {
	const tooMany, longest = http.StatusTooManyRequests, 39 * time.Minute
	for name, tt := range map[string]struct {
		fault      fault
		firstWatch string // what it tells; else how far the upstream is
	}{
		"a probe without an answer": {
			fault: fault{kind: "probe", from: time.Minute, lasts: 20 * time.Second, late: time.Hour},
		},
		"every other watch is refused":       {fault: fault{kind: "watch", everyOther: true, code: tooMany}},
		"watches answered after six seconds": {fault: fault{kind: "watch", late: 6 * time.Second}},
		"everything is late by twenty seconds": {
			fault: fault{from: time.Minute, lasts: longest, late: 20 * time.Second},
		},
		"half of everything is refused, and a watch breaks": {
			firstWatch: cut, fault: fault{from: time.Second, lasts: longest, everyOther: true, code: tooMany},
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			u := &upstream{changes: true, intercept: tt.fault.intercept()}
			if tt.firstWatch != "" {
				u.watch = firstWatchTells(tt.firstWatch)
			}
			feedCase{upstream: u, lasts: time.Hour}.check(t)
		})
	}
	proxytest.Bubble(t, "probes are refused after the load", feedCase{
		upstream: &upstream{
			repeats:   bookmark(30, ""),
			intercept: fault{kind: "probe", from: afterTheLoad, code: tooMany}.intercept(),
		},
		wantRevision: 30, wantWatches: bounds{1, 1},
	}.check)
}

// TestStreamingListsThatFail: where streaming lists fail, the state is loaded page by page.
func TestStreamingListsThatFail(t *testing.T) {
	for name, tt := range map[string]struct {
		intercept  interceptor
		wantNewest reason.Reason
		// wantForwarded: streaming lists of clients are forwarded, for it fails not for the resource's own state only.
		wantForwarded bool
	}{
		"422":           {intercept: refuseKind("load", http.StatusUnprocessableEntity), wantForwarded: true},
		"500":           {intercept: refuseKind("load", http.StatusInternalServerError), wantForwarded: true},
		"in the stream": {intercept: replaceLoads(errorEvent(http.StatusInternalServerError))},
		"it ends":       {intercept: replaceLoads("")},
		"429":           {intercept: refuseKind("load", http.StatusTooManyRequests), wantNewest: reason.Warming},
		"403":           {intercept: refuseKind("load", http.StatusForbidden), wantNewest: reason.NotPermitted},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			c := runWatchedFeed(t, &upstream{revision: 9, intercept: tt.intercept}, time.Minute)
			snap, newest := c.NotOlderThan(t.Context(), 0)
			if newest != tt.wantNewest {
				t.Errorf("the newest state: %q, want %q", newest, tt.wantNewest)
			}
			if form := snap.WatchForm(); newest == reason.None && (form == nil || (form.InitialEnd == nil) != tt.wantForwarded) {
				t.Errorf("watches have the form %+v", form)
			}
		})
	}
}

// TestStreamingListsWithoutEnd: where a streaming list is not ended by its bookmark, states are loaded in pages for
// an hour: each such list costs the upstream a whole one. Where the upstream ends none, watches begin at revisions
// only.
func TestStreamingListsWithoutEnd(t *testing.T) {
	for name, tt := range map[string]struct {
		emptyToo bool   // the list of a name that cannot exist has no end either
		repeats  string // what it has instead
		want     int    // lists of the whole state in the first hour
	}{
		"no list has an end":    {emptyToo: true, want: 0},
		"an ordinary bookmark":  {emptyToo: true, repeats: bookmark(9, ""), want: 0},
		"a large list has none": {want: 1},
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
				if form := snap.WatchForm(); newest != reason.None || form == nil || (form.InitialEnd == nil) != tt.emptyToo {
					t.Fatalf("the newest state: %q; watches have the form %+v", newest, form)
				}
				c.loadAnew()
				time.Sleep(time.Minute)
			}
			synctest.Wait()
			if asked != tt.want {
				t.Errorf("%d whole streaming lists in a few minutes, want %d", asked, tt.want)
			}
			time.Sleep(noStreamingFor)
			c.loadAnew()
			time.Sleep(time.Minute)
			synctest.Wait()
			if !tt.emptyToo && asked != tt.want+1 {
				t.Errorf("%d whole streaming lists after an hour, want %d", asked, tt.want+1)
			}
		})
	}
}

// TestAnotherTimelineIsLoaded: where a balancer or an aggregator refuses a probe, the API server may be another one by
// now. The stream is opened again, and must tell the newest change, of b at 8, again as it was, and nothing else up to
// 9. If it does not, the state is loaded anew.
func TestAnotherTimelineIsLoaded(t *testing.T) {
	b, later := itemEvent("MODIFIED", itemBAt(8)), itemEvent("MODIFIED", itemBAt(12))
	otherBytes := strings.Replace(b, `"namespace":"n",`, `"namespace":"n","uid":"u",`, 1)
	for name, tt := range map[string]struct {
		replay    []string // what the watch tells that begins before the change
		wantLoads int
	}{
		"the same":            {replay: nil, wantLoads: 1},
		"the same, and later": {replay: []string{b, later, bookmark(12, "")}, wantLoads: 1},
		"the same, and cut off after what is later": {replay: []string{b, later, cut}, wantLoads: 1},
		"other bytes":    {replay: []string{otherBytes, bookmark(9, "")}, wantLoads: 2},
		"another object": {replay: []string{strings.Replace(b, `"b"`, `"c"`, 1), bookmark(9, "")}, wantLoads: 2},
		"a deletion":     {replay: []string{itemEvent("DELETED", itemBAt(8)), bookmark(9, "")}, wantLoads: 2},
		"one more":       {replay: []string{b, itemEvent("MODIFIED", itemBAt(9)), bookmark(9, "")}, wantLoads: 2},
		"another one":    {replay: []string{itemEvent("MODIFIED", itemBAt(9)), bookmark(9, "")}, wantLoads: 2},
		"nothing":        {replay: []string{bookmark(9, "")}, wantLoads: 2},
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

// TestSameServersSameTimeline: after a break, a collection in which nothing has changed since its load goes on, and
// keeps its history, if an API server that was there before is there still, which may be known only when it has renewed
// its Lease. Else it is loaded anew.
func TestSameServersSameTimeline(t *testing.T) {
	for name, tt := range map[string]struct {
		unprovenFor int  // as many questions are answered with no
		soon        bool // and say that the servers may be the same
		wantLoads   int
	}{
		"the same":                 {wantLoads: 1},
		"the same, as shown later": {unprovenFor: leaseWaits, soon: true, wantLoads: 1},
		"may be, and never shown":  {unprovenFor: 100, soon: true, wantLoads: 2},
		"others, or nobody knows":  {unprovenFor: 100, wantLoads: 2},
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
			if u.loads != tt.wantLoads || asked > leaseWaits+1 {
				t.Errorf("%d loads, want %d; asked %d times", u.loads, tt.wantLoads, asked)
			}
			if _, why := c.Exact(t.Context(), 9); why != reason.None {
				t.Errorf("the state at 9: %q", why)
			}
		})
	}
}

// TestFeedsObeyRetryAfter: a feed that is refused comes again when Retry-After says, whether it learns, loads, follows
// or probes, and however many wait for that.
func TestFeedsObeyRetryAfter(t *testing.T) {
	for name, tt := range map[string]struct {
		intercept  interceptor
		firstWatch string // what it tells
		wantNewest reason.Reason
	}{
		"learning": {intercept: refuseKind("probe", http.StatusTooManyRequests), wantNewest: reason.Warming},
		"loading":  {intercept: refuseKind("load", http.StatusTooManyRequests), wantNewest: reason.Warming},
		"following": {
			intercept: refuseKind("watch", http.StatusServiceUnavailable), firstWatch: cut, wantNewest: reason.Stale,
		},
		"probing": {
			intercept:  fault{kind: "probe", from: afterTheLoad, code: http.StatusTooManyRequests}.intercept(),
			firstWatch: bookmark(9, ""), wantNewest: reason.Stale,
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			refused := 0
			u := &upstream{revision: 9, watch: firstWatchTells(tt.firstWatch), repeats: bookmark(9, "")}
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

// TestFeedsAreWoken: a list of the newest state, or a 410 to a watch, wakes a feed that waits to open its stream.
func TestFeedsAreWoken(t *testing.T) {
	for name, wake := range map[string]func(*testing.T, *Collection){
		"somebody names the newest state": func(t *testing.T, c *Collection) {
			t.Helper()
			for rev, want := range map[uint64]reason.Reason{0: reason.None, 8: reason.NotProven} {
				if _, why := c.NotOlderThan(t.Context(), rev); why != want {
					t.Errorf("not older than %d: %q, want %q", rev, why, want)
				}
			}
		},
		"a watch is too old": func(_ *testing.T, c *Collection) { c.requestProbe() },
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
				t.Errorf("the newest state, when it is followed again: %q", why)
			}
		})
	}
}

// TestOddNames: RBAC objects may have names with the separators of field selectors, and bytes that are not UTF-8. The
// former are selected as they are; the latter fit no list: JSON shows them as U+FFFD, out of order.
func TestOddNames(t *testing.T) {
	selector, err := fields.ParseSelector(source.Named("a,b=c"))
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
