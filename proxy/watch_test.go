package proxy

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/watch"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestCompressedWatch: a watch is compressed exactly if the upstream would compress it. An upstream of 1.37 or later does if
// the client accepts gzip, and asks for the state and for bookmarks. The events are the same with gzip and without.
func TestCompressedWatch(t *testing.T) {
	const (
		streamingList    = newestStreamingList + "&resourceVersion=0"
		byDefault        = "watch=true&resourceVersion=0&allowWatchBookmarks=true"
		withoutBookmarks = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0"
		withoutState     = "watch=true&resourceVersion=" + newestRevision + "&allowWatchBookmarks=true"
	)
	wantVary := map[string]string{"gzip": "Accept-Encoding", "": ""} // by Content-Encoding
	for name, tt := range map[string]struct {
		compresses   bool   // the upstream compresses streaming lists
		encoding     string // the client's Accept-Encoding
		query        string
		wantEncoding string // Content-Encoding
		wantBookmark bool   // at the end of the state
	}{
		"streaming list":            {compresses: true, encoding: "gzip", query: streamingList, wantEncoding: "gzip", wantBookmark: true},
		"streaming list by default": {compresses: true, encoding: "br, gzip", query: byDefault, wantEncoding: "gzip", wantBookmark: true},
		"older upstream":            {compresses: false, encoding: "gzip", query: streamingList, wantBookmark: true},
		"without bookmarks":         {compresses: true, encoding: "gzip", query: withoutBookmarks},
		"without the state":         {compresses: true, encoding: "gzip", query: withoutState},
		"gzip not accepted":         {compresses: true, encoding: "identity", query: streamingList, wantBookmark: true},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newModelWorld(t)
			w.compresses = tt.compresses
			w.load(t)
			// Both watches begin at the same revision, and get one change.
			uncompressed := &client{}
			tested := &client{encoding: tt.encoding}
			for _, c := range []*client{uncompressed, tested} {
				w.openAs(t, c, tt.query+"&timeoutSeconds=2")
			}
			w.write()
			for _, c := range []*client{uncompressed, tested} {
				<-c.done
				expect.Same(t, reason.None, c.why)
			}
			expect.Same(t, tt.wantEncoding, tested.Header().Get("Content-Encoding"))
			expect.Same(t, wantVary[tt.wantEncoding], tested.Header().Get("Vary"))
			events := tested.received(t)
			expect.Same(t, uncompressed.received(t), events)
			expect.Says(t, events, "MODIFIED")
			if strings.Contains(events, "initial-events-end") != tt.wantBookmark {
				t.Errorf("got %q, want the bookmark at the end of the state: %t", events, tt.wantBookmark)
			}
		})
	}
}

// TestTimeoutBeginsWithTheRequest: the timeout of a watch includes its wait for the proof that memory has the newest state. A
// streaming list may wait longer for the proof than a list (6 s here; a list waits for 3 s), since forwarding it would cost the
// upstream more.
func TestTimeoutBeginsWithTheRequest(t *testing.T) {
	for name, tt := range map[string]struct {
		query          string
		probeDelay     time.Duration // from a probe to its answer, which is the proof
		wantEndedAfter time.Duration // from the request
	}{
		"watch": {
			query: "watch=true&timeoutSeconds=20&resourceVersion=" + newestRevision, wantEndedAfter: 20 * time.Second,
		},
		"streaming list": {query: newestStreamingList + "&timeoutSeconds=20", wantEndedAfter: 20 * time.Second},
		"streaming list after a wait": {
			query: newestStreamingList + "&timeoutSeconds=20", probeDelay: 6 * time.Second, wantEndedAfter: 20 * time.Second,
		},
		"timeout shorter than the wait": {
			query: newestStreamingList + "&timeoutSeconds=4", probeDelay: 6 * time.Second, wantEndedAfter: 6 * time.Second,
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newModelWorld(t)
			w.probeDelay = tt.probeDelay
			w.load(t)
			c := w.open(t, tt.query)
			expect.Same(t, watch.EndTimeout, c.awaitEnd(t, time.Minute))
			expect.Same(t, tt.wantEndedAfter, c.duration)
		})
	}
}

// TestStreamingListOfAColdResource: a streaming list waits until its resource is loaded, or loaded again after its state was
// lost. If it were forwarded, it would stay at the upstream for minutes. If the load takes longer than maxWatchWait, 30 s, the
// streaming list is forwarded after all.
func TestStreamingListOfAColdResource(t *testing.T) {
	const anyStreamingList = newestStreamingList + "&resourceVersion=0"
	for name, tt := range map[string]struct {
		query      string
		feedsFail  bool          // the resource cannot be loaded
		probeDelay time.Duration // from a probe to its answer
		lostFor    time.Duration // if set, the state was lost before the request, and loads fail for this time
		lostAfter  time.Duration // if set, the state is lost for a second, at this time after the request
		leaveAfter time.Duration // if set, the client leaves at this time after the request

		wantWhy            reason.Reason // why the request is forwarded, or None
		wantForwardedAfter time.Duration // if forwarded: the exact time from the request
		wantStateWithin    time.Duration // if not forwarded: the whole state has come at this time after the request
	}{
		// The resource was never loaded.
		"any state":    {query: anyStreamingList, wantStateWithin: 2 * time.Second},
		"newest state": {query: newestStreamingList, wantStateWithin: 4 * time.Second},
		"slow probes": { // the load sends two probes, which take 8 s; the list needs no third one to prove the newest state
			query: newestStreamingList, probeDelay: 4 * time.Second, wantStateWithin: 9 * time.Second,
		},
		"loaded too late": {
			query: newestStreamingList, feedsFail: true, wantWhy: reason.Warming, wantForwardedAfter: maxWatchWait,
		},
		"the client leaves": {
			query: newestStreamingList, feedsFail: true, leaveAfter: 3 * time.Second,
			wantWhy: reason.Warming, wantForwardedAfter: 3 * time.Second,
		},
		"watch without the state": { // does not wait
			query: "watch=true&resourceVersion=" + newestRevision, probeDelay: time.Second,
			wantWhy: reason.Warming, wantForwardedAfter: 0,
		},

		// The resource was loaded, and its state was lost.
		"lost, any state":    {query: anyStreamingList, lostFor: 2 * time.Second, wantStateWithin: 8 * time.Second},
		"lost, newest state": {query: newestStreamingList, lostFor: 2 * time.Second, wantStateWithin: 8 * time.Second},
		"lost for too long": {
			query: newestStreamingList, lostFor: time.Hour, wantWhy: reason.Warming, wantForwardedAfter: maxWatchWait,
		},
		"lost during the proof": {
			query: newestStreamingList, probeDelay: time.Second, lostAfter: 500 * time.Millisecond, wantStateWithin: 8 * time.Second,
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newModelWorld(t)
			w.feedsFail = tt.feedsFail
			w.probeDelay = tt.probeDelay
			if tt.lostFor > 0 || tt.lostAfter > 0 {
				w.load(t)
			}
			time.Sleep(time.Minute) // until listproxy knows everything else that it needs, such as the definitions
			if tt.lostFor > 0 {
				w.loseState(tt.lostFor)
				synctest.Wait()
			}
			if tt.lostAfter > 0 {
				time.AfterFunc(tt.lostAfter, func() { w.loseState(time.Second) })
			}
			c := w.open(t, tt.query)
			if tt.leaveAfter > 0 {
				time.AfterFunc(tt.leaveAfter, c.leave)
			}
			if tt.wantWhy == reason.None {
				time.Sleep(tt.wantStateWithin)
				synctest.Wait()
				expect.Says(t, c.received(t), "initial-events-end")
				return // the watch goes on
			}
			expect.Same(t, tt.wantForwardedAfter, <-c.done)
			expect.Same(t, tt.wantWhy, c.why)
			expect.Same(t, "", c.received(t))
		})
	}
}

// TestStreamingListAfterAWaitInVain: once a streaming list has waited for a load in vain, later ones are forwarded at once.
func TestStreamingListAfterAWaitInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newModelWorld(t)
		w.feedsFail = true
		time.Sleep(time.Minute) // until listproxy knows everything else that it needs
		for _, wantForwardedAfter := range []time.Duration{maxWatchWait, 0} {
			c := w.open(t, newestStreamingList)
			expect.Same(t, wantForwardedAfter, <-c.done)
			expect.Same(t, reason.Warming, c.why)
		}
	})
}

// TestCrowdAtAColdResource: if 20 lists come while their resource is loaded, 4 are forwarded at once. The other 16 wait for the
// load, for at most 10 s (maxListWait). A list of a single object does not wait. Neither does a request for a revision that may
// be older than the load.
func TestCrowdAtAColdResource(t *testing.T) {
	const (
		crowd = 20
		slots = 4 // the number of lists that are forwarded at once (forwardSlotsPerLoad in package snapshot)
	)
	for name, tt := range map[string]struct {
		query     string
		feedsFail bool          // the resource cannot be loaded
		lost      bool          // the resource was loaded, but its state was just lost, and cannot be loaded again
		wantWait  bool          // all but 4 of the lists wait; if false, all are forwarded at once
		wantWhy   reason.Reason // why a list is forwarded after its wait; None: memory answers it
	}{
		"any state":                 {query: anyState, wantWait: true},
		"not older than a revision": {query: "resourceVersion=" + newestRevision, wantWait: true},
		"newest state":              {wantWait: true},
		"newest state, by a label":  {query: "labelSelector=a%3Db", wantWait: true},
		"first page":                {query: "resourceVersion=0&limit=1", wantWait: true},
		"any state, never loaded":   {query: anyState, feedsFail: true, wantWait: true, wantWhy: reason.Warming},
		"any state, lost":           {query: anyState, lost: true, wantWait: true, wantWhy: reason.Warming},
		"single object":             {query: "resourceVersion=0&fieldSelector=metadata.name%3Da,metadata.namespace%3Dn"},
		"exact revision":            {query: "resourceVersionMatch=Exact&resourceVersion=" + newestRevision},
		"watch from a revision":     {query: "watch=true&resourceVersion=" + newestRevision},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newModelWorld(t)
			w.feedsFail = tt.feedsFail
			if tt.lost {
				w.load(t)
			}
			time.Sleep(time.Minute) // until listproxy knows everything else that it needs
			if tt.lost {
				w.loseState(time.Hour)
				synctest.Wait()
			}
			w.changeAndCutFeeds(func() { w.probeDelay = time.Second }) // so that the load takes some seconds
			// The crowd comes at once, and a later list when the load is over or has failed.
			var all []*client
			for range crowd {
				all = append(all, w.open(t, tt.query))
			}
			time.Sleep(maxListWait)
			synctest.Wait()
			later := w.open(t, tt.query)
			forwardedAtOnce := 0
			for _, c := range all {
				waited := <-c.done
				if waited == 0 {
					forwardedAtOnce++
					expect.Same(t, reason.Warming, c.why)
					continue
				}
				expect.Same(t, tt.wantWhy, c.why)
				if waited > maxListWait {
					t.Errorf("a list waited for %v, want at most %v", waited, maxListWait)
				}
			}
			if !tt.wantWait {
				expect.Same(t, crowd, forwardedAtOnce)
				return
			}
			expect.Same(t, slots, forwardedAtOnce)
			if waited := <-later.done; waited >= maxListWait {
				t.Errorf("a later list waited for %v, want less than %v", waited, maxListWait)
			}
			expect.Same(t, tt.wantWhy, later.why)
		})
	}
}

// TestReviewedAgain: a right may expire while the answer waits for its proof or for room (6 s here). Then the right is reviewed
// again before the answer is sent. If the second review says no, the request is forwarded.
func TestReviewedAgain(t *testing.T) {
	const (
		room = 1 << 20         // bytes, in all
		wait = 6 * time.Second // for the proof or for room
	)
	for request, query := range map[string]string{ // by what the request waits for
		"list that waits for the proof":           "",
		"streaming list that waits for the proof": newestStreamingList + "&timeoutSeconds=20",
		"list that waits for room":                anyState,
	} {
		waitsForRoom := query == anyState
		for name, tt := range map[string]struct {
			ttl         time.Duration // the time for which a right is remembered
			yeses       int           // the number of reviews that say yes; all later ones say no
			wantReviews int
			wantWhy     reason.Reason // why the request is forwarded; None: memory answers it
		}{
			"right still valid":          {ttl: 10 * time.Second, yeses: 1, wantReviews: 1},
			"right expired":              {ttl: 5 * time.Second, yeses: 2, wantReviews: 2},
			"right never remembered":     {ttl: notRemembered, yeses: 2, wantReviews: 2},
			"right expired, then denied": {ttl: 5 * time.Second, yeses: 1, wantReviews: 2, wantWhy: reason.NotAllowed},
		} {
			proxytest.Bubble(t, request+", "+name, func(t *testing.T) {
				w := newModelWorld(t)
				w.handler.ConsistentWait = time.Minute
				if waitsForRoom {
					w.writeBulk(room / 2)
				} else {
					w.probeDelay = wait
				}
				w.load(t)
				w.setRoom(room, time.Minute)
				if waitsForRoom {
					time.AfterFunc(wait, w.takeRoom(t, room))
				}
				reviews := 0
				w.setReviews(tt.ttl, func() bool {
					reviews++
					return reviews <= tt.yeses
				})
				c := w.open(t, query)
				<-c.done
				got := c.received(t)
				expect.Same(t, tt.wantWhy, c.why)
				if isForwarded := tt.wantWhy != reason.None; (got == "") != isForwarded {
					t.Errorf("got %d bytes from memory, want none: %t", len(got), isForwarded)
				}
				expect.Same(t, tt.wantReviews, reviews)
			})
		}
	}
}
