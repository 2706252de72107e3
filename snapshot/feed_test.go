package snapshot

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/test/proxytest"
)

// bounds are the least and the most that a number may be. The zero value allows any number.
type bounds struct{ least, most int }

func (b bounds) contain(n int) bool { return b == bounds{} || b.least <= n && n <= b.most }

// feedCase is an upstream, and what is expected of a feed that runs on it for a time.
type feedCase struct {
	upstream        *upstream     // check sets its revision, and its watch if that is nil: all watches send a bookmark
	duration        time.Duration // 0: a minute
	wantUnavailable reason.Reason // why there is no newest state at the end; None: there is one
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

// TestFeed: a feed loads a state and keeps it, though objects change, watches end at their timeouts, a load is silent, or
// probes are refused. It accepts no state whose pages are of two revisions, or that the upstream writes in two ways.
func TestFeed(t *testing.T) {
	// The first object has another revision in the list than in the watch that follows it.
	alwaysChanged := func(r *http.Request, kind requestKind) (time.Duration, *http.Response) {
		later := strings.Replace(itemA, `"5"`, `"8"`, 1)
		switch {
		case kind != kindWatchOfOne:
			return 0, nil
		case r.URL.Query().Get("resourceVersion") == "0":
			return 0, respond(http.StatusOK, itemEvent("ADDED", later))(r)
		}
		return 0, respond(http.StatusOK, itemEvent("MODIFIED", itemA)+itemEvent("MODIFIED", later))(r)
	}
	loads := 0
	silentFirstLoad := answerKind(kindStreamingList, func(r *http.Request) *http.Response {
		if loads++; loads > 1 {
			return nil
		}
		return lastingResponse(r, "", "", time.Hour)
	})
	refusedProbes := fault{kind: kindProbe, begins: afterTheLoad, answer: refuseFor(1, http.StatusTooManyRequests)}
	itemWithNull := strings.Replace(itemB, "}}", `},"data":null}`, 1)
	otherBytes := func(r *http.Request, _ requestKind) (time.Duration, *http.Response) {
		if r.URL.Query().Get("resourceVersionMatch") != "Exact" {
			return 0, nil
		}
		return 0, respond(http.StatusOK, configMapList(9, "", itemA, itemWithNull))(r)
	}
	firstPage := func(revision uint64) string { return configMapList(revision, `,"continue":"x"`, itemA) }
	lastPage := configMapList(9, "", itemB)
	for name, tt := range map[string]feedCase{
		"nothing changes": {upstream: &upstream{}, wantRevision: 9},
		"watches end at their timeouts": {
			// A watch lasts watchTimeout and a random time of at most watchTimeout.
			upstream: &upstream{}, duration: 6 * watchTimeout, wantWatches: bounds{least: 4, most: 7},
		},
		"the first object changes between the list and the watch that learn its form": {
			upstream: &upstream{intercept: alwaysChanged},
		},
		"the first streaming list is silent": {upstream: &upstream{intercept: silentFirstLoad}},
		"the state comes in pages":           {upstream: &upstream{intercept: loadInPages(firstPage(9), lastPage)}},
		"the pages are of two revisions": {
			upstream: &upstream{intercept: loadInPages(firstPage(8), lastPage)}, wantUnavailable: reason.Warming,
		},
		"probes are refused, and bookmarks come": {
			upstream:     &upstream{repeats: bookmark(30, ""), intercept: refusedProbes.intercept()},
			wantRevision: 30, wantWatches: bounds{least: 1, most: 1},
		},
		"the list has other bytes than the streaming list": {
			upstream: &upstream{intercept: otherBytes}, wantUnavailable: reason.Form,
		},
	} {
		proxytest.Bubble(t, name, tt.check)
	}
}

// TestFeedOfBrokenStreams: a feed whose streams end at once opens another after each, with growing pauses. The pauses do not
// grow if streams send events first, or the feed of a resource that changes often would fall ever further behind.
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

// TestContradictingEvents: a feed drops a state that an event contradicts, counts the loss, and loads the state anew.
func TestContradictingEvents(t *testing.T) {
	for name, event := range map[string]string{
		"no JSON":                               `{"type":"MODIFIED","object":{"kind":"ConfigMap",}}` + "\n",
		"another kind":                          strings.Replace(itemEvent("MODIFIED", itemBAt(12)), "ConfigMap", "Secret", 1),
		"a known object is added":               itemEvent("ADDED", itemBAt(12)),
		"an unknown object is modified":         itemEvent("MODIFIED", itemC),
		"an unknown object is deleted":          itemEvent("DELETED", itemC),
		"a change is below the load's revision": itemEvent("MODIFIED", itemB),
	} {
		u := &upstream{watch: firstWatchSends(event)}
		proxytest.Bubble(t, name, feedCase{upstream: u, wantLoss: reason.Contradiction}.check)
	}
}

// TestRevisionGoesBack: a feed drops its state if the upstream's revision has gone back: etcd was restored from a backup. A
// lower bookmark, or a lower revision over one connection, is no proof: a single API server may lag.
func TestRevisionGoesBack(t *testing.T) {
	for name, tt := range map[string]feedCase{
		"a bookmark is below the load's revision":    {upstream: &upstream{watch: firstWatchSends(bookmark(8, ""))}},
		"the revision goes back over one connection": {upstream: &upstream{intercept: restoreOneServer()}},
		"the revision goes back over all connections": {
			upstream: &upstream{intercept: restoreStorage()}, wantLoss: reason.WentBack,
		},
		"a bookmark goes back, and so does the revision": {
			upstream: &upstream{watch: firstWatchSends(bookmark(3, "")), intercept: restoreStorage()},
			duration: 5 * time.Second, wantUnavailable: reason.Warming, wantLoss: reason.WentBack,
		},
	} {
		proxytest.Bubble(t, name, tt.check)
	}
}

// TestExpiredWatch: a feed whose watch is answered 410 loads the state anew, also if the upstream is away in between.
func TestExpiredWatch(t *testing.T) {
	away := fault{begins: afterTheLoad, duration: time.Minute, answer: refuseFor(1, http.StatusServiceUnavailable)}
	for name, intercept := range map[string]interceptor{"at once": nil, "after an outage": away.intercept()} {
		u := &upstream{watch: firstWatchSends(errorEvent(http.StatusGone)), intercept: intercept}
		proxytest.Bubble(t, name, feedCase{upstream: u, duration: 3 * time.Minute, wantLoss: reason.Expired}.check)
	}
}

// TestFeedOfASlowServer: a feed keeps its state for an hour if the API server is slow, or refuses some requests.
func TestFeedOfASlowServer(t *testing.T) {
	const long = 39 * time.Minute // so that the feed has time to recover within the hour
	tooMany := refuseFor(1, http.StatusTooManyRequests)
	for name, tt := range map[string]struct {
		fault      fault
		firstWatch string // the line that the first watch sends; "": a bookmark
	}{
		"a probe gets no answer": {
			fault: fault{kind: kindProbe, begins: time.Minute, duration: 20 * time.Second, delay: time.Hour},
		},
		"every other watch is refused":           {fault: fault{kind: kindWatch, everyOther: true, answer: tooMany}},
		"watches are answered after six seconds": {fault: fault{kind: kindWatch, delay: 6 * time.Second}},
		"all answers come after twenty seconds": {
			fault: fault{begins: time.Minute, duration: long, delay: 20 * time.Second},
		},
		"every other request is refused, and a watch breaks": {
			firstWatch: cut, fault: fault{begins: time.Second, duration: long, everyOther: true, answer: tooMany},
		},
	} {
		u := &upstream{changes: true, intercept: tt.fault.intercept()}
		if tt.firstWatch != "" {
			u.watch = firstWatchSends(tt.firstWatch)
		}
		proxytest.Bubble(t, name, feedCase{upstream: u, duration: time.Hour}.check)
	}
}

// TestFeedsObeyRetryAfter: a feed does not repeat a refused request before its Retry-After is over, whether it learns, loads,
// follows or probes, and however often a probe is requested meanwhile.
func TestFeedsObeyRetryAfter(t *testing.T) {
	const retryAfter, duration = 40, 100 * time.Second
	tooMany := refuseFor(retryAfter, http.StatusTooManyRequests)
	for name, tt := range map[string]struct {
		intercept       interceptor
		firstWatch      string // the line that the first watch sends
		wantUnavailable reason.Reason
	}{
		"learning": {intercept: answerKind(kindProbe, tooMany), wantUnavailable: reason.Warming},
		"loading":  {intercept: refuseStreamingLists(tooMany), wantUnavailable: reason.Warming},
		"following": {
			intercept:  answerKind(kindWatch, refuseFor(retryAfter, http.StatusServiceUnavailable)),
			firstWatch: cut, wantUnavailable: reason.Stale,
		},
		"probing": {
			intercept:  fault{kind: kindProbe, begins: afterTheLoad, answer: tooMany}.intercept(),
			firstWatch: bookmark(9, ""), wantUnavailable: reason.Stale,
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			refused := 0
			u := &upstream{revision: 9, watch: firstWatchSends(tt.firstWatch), repeats: bookmark(9, "")}
			u.intercept = func(r *http.Request, kind requestKind) (time.Duration, *http.Response) {
				hold, refusal := tt.intercept(r, kind)
				if refusal != nil {
					refused++
				}
				return hold, refusal
			}
			c := runFeed(t, u, 0)
			for begun := time.Now(); time.Since(begun) < duration; time.Sleep(100 * time.Millisecond) {
				c.requestProbe()
			}
			synctest.Wait()
			if refused < 2 || refused > 3 {
				t.Errorf("got %d refused requests in %v with a Retry-After of %d s, want 2 or 3", refused, duration, retryAfter)
			}
			expectNewest(t, c, tt.wantUnavailable)
		})
	}
}

// TestFeedsAreWoken: a feed whose watches are refused pauses for ever longer. A request for a revision that the feed has not
// reached, or for a probe, ends the pause.
func TestFeedsAreWoken(t *testing.T) {
	const refusedFor = 50 * time.Second
	for name, wake := range map[string]func(context.Context, *Collection){
		"a list not older than the next change": func(ctx context.Context, c *Collection) { _, _ = c.NotOlderThan(ctx, 8) },
		"a probe is requested":                  func(_ context.Context, c *Collection) { c.requestProbe() },
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			begun := time.Now()
			isRefusing := func() bool { return time.Since(begun) < refusedFor }
			u := &upstream{
				revision: 7, changes: true,
				watch: func(int, uint64) []string {
					if isRefusing() {
						return []string{cut} // the stream of the load
					}
					return []string{bookmark(9, "")}
				},
				intercept: func(r *http.Request, kind requestKind) (time.Duration, *http.Response) {
					if (kind == kindWatch || kind == kindShortWatch) && isRefusing() {
						return 0, refuseFor(0, http.StatusTooManyRequests)(r)
					}
					return 0, nil
				},
			}
			c := runFeed(t, u, refusedFor)
			wake(t.Context(), c)
			time.Sleep(minStreamLife)
			synctest.Wait()
			if !c.view.Load().streaming {
				t.Errorf("%v after the feed was woken: it reads no stream", minStreamLife)
			}
			if _, unavailable := c.NotOlderThan(t.Context(), 9); unavailable != reason.None {
				t.Errorf("a state not older than 9, with a stream again: got reason %q, want the state", unavailable)
			}
		})
	}
}
