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

// TestCompressedWatch: a watch is compressed exactly if the upstream would compress it: the upstream compresses streaming
// lists, and the client accepts gzip and asks for the state and for bookmarks. The events are the same with gzip and without.
func TestCompressedWatch(t *testing.T) {
	const withoutBookmarks = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0"
	for name, tt := range map[string]struct {
		upstream     bool // the upstream compresses streaming lists
		encoding     string
		query        string
		wantGzip     bool
		wantBookmark bool // at the end of the state
	}{
		"streaming list": {upstream: true, encoding: "gzip", query: newestStreamingList + "&resourceVersion=0", wantGzip: true, wantBookmark: true},
		"streaming list by default": {
			upstream: true, encoding: "br, gzip", query: "watch=true&resourceVersion=0&allowWatchBookmarks=true", wantGzip: true, wantBookmark: true,
		},
		"older upstream":    {encoding: "gzip", query: newestStreamingList + "&resourceVersion=0", wantBookmark: true},
		"without bookmarks": {upstream: true, encoding: "gzip", query: withoutBookmarks},
		"without the state": {
			upstream: true, encoding: "gzip", query: "watch=true&resourceVersion=" + newestRevision + "&allowWatchBookmarks=true",
		},
		"gzip not accepted":   {upstream: true, encoding: "identity", query: newestStreamingList + "&resourceVersion=0", wantBookmark: true},
		"gzip with a quality": {upstream: true, encoding: "gzip;q=1", query: newestStreamingList + "&resourceVersion=0", wantBookmark: true},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newModelWorld(t)
			w.compresses = tt.upstream
			w.load(t)
			// Both watches begin at the same revision, and get one change.
			without := &client{}
			with := &client{encoding: tt.encoding}
			w.openAs(t, without, tt.query+"&timeoutSeconds=2")
			w.openAs(t, with, tt.query+"&timeoutSeconds=2")
			w.write()
			for _, c := range []*client{without, with} {
				if <-c.done; c.why != "" {
					t.Fatalf("forwarded: %s", c.why)
				}
			}
			wantHeader := [2]string{}
			if tt.wantGzip {
				wantHeader = [2]string{"gzip", "Accept-Encoding"}
			}
			expect.Same(t, wantHeader, [2]string{with.Header().Get("Content-Encoding"), with.Header().Get("Vary")})
			events := with.received(t)
			expect.Same(t, without.received(t), events)
			expect.Says(t, events, "MODIFIED")
			if strings.Contains(events, "initial-events-end") != tt.wantBookmark {
				t.Errorf("got %q, want the bookmark at the end of the state: %t", events, tt.wantBookmark)
			}
		})
	}
}

// TestTimeoutBeginsWithTheRequest: the timeout of a watch includes its wait for the proof. A streaming list may wait longer
// for the proof than a list, since forwarding it would cost the upstream more.
func TestTimeoutBeginsWithTheRequest(t *testing.T) {
	for name, tt := range map[string]struct {
		query          string
		proof          time.Duration // how long the proof takes
		wantEndedAfter time.Duration // the request
	}{
		"watch":                       {query: "watch=true&timeoutSeconds=20&resourceVersion=" + newestRevision, wantEndedAfter: 20 * time.Second},
		"streaming list":              {query: newestStreamingList + "&timeoutSeconds=20", wantEndedAfter: 20 * time.Second},
		"streaming list after a wait": {query: newestStreamingList + "&timeoutSeconds=20", proof: 6 * time.Second, wantEndedAfter: 20 * time.Second},
		"timeout shorter than the wait": {
			query: newestStreamingList + "&timeoutSeconds=4", proof: 6 * time.Second, wantEndedAfter: 6 * time.Second,
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newModelWorld(t)
			w.probeDelay = tt.proof
			w.load(t)
			c := w.open(t, tt.query)
			expect.Same(t, watch.EndTimeout, c.end(t, time.Minute))
			expect.Same(t, tt.wantEndedAfter, c.ended)
		})
	}
}

// TestStreamingListOfAColdResource: a streaming list waits until its resource is loaded, since a forwarded watch would stay
// at the upstream for minutes. If the load takes too long, the streaming list is forwarded, and later ones are forwarded at
// once. The same is true while a lost state is loaded again.
func TestStreamingListOfAColdResource(t *testing.T) {
	const anyState, never = "&resourceVersion=0", time.Hour
	for name, tt := range map[string]struct {
		query     string
		away      bool          // the resource cannot be loaded
		probe     time.Duration // how long a probe takes
		lostFor   time.Duration // if set, the state is lost before the request, and cannot be loaded for this time
		losesAt   time.Duration // if set, the state is lost at this time after the request, for a second
		leaveAt   time.Duration // if set, the client leaves at this time after the request
		wantAfter time.Duration // the request: when it is forwarded, or when it has been answered (a load and its probes)
		wantWhy   reason.Reason // why it is forwarded; None: it is answered
	}{
		"any state":           {query: newestStreamingList + anyState, wantAfter: 2 * time.Second},
		"newest state":        {query: newestStreamingList, wantAfter: 4 * time.Second},
		"loaded too late":     {query: newestStreamingList, away: true, wantAfter: maxWatchWait, wantWhy: reason.Warming},
		"the client leaves":   {query: newestStreamingList, away: true, leaveAt: 3 * time.Second, wantAfter: 3 * time.Second, wantWhy: reason.Warming},
		"watch without state": {query: "watch=true&resourceVersion=" + newestRevision, probe: time.Second, wantWhy: reason.Warming},
		"list":                {query: "resourceVersion=0", probe: time.Second, wantWhy: reason.Warming},

		// The load has two probes, and proves the newest state itself: a third probe would come too late.
		"slow probes": {query: newestStreamingList, probe: 4 * time.Second, wantAfter: 9 * time.Second},

		"lost, any state":       {query: newestStreamingList + anyState, lostFor: 2 * time.Second, wantAfter: 8 * time.Second},
		"lost, newest state":    {query: newestStreamingList, lostFor: 2 * time.Second, wantAfter: 8 * time.Second},
		"lost for too long":     {query: newestStreamingList, lostFor: never, wantAfter: maxWatchWait, wantWhy: reason.Warming},
		"lost, list":            {query: "resourceVersion=0", lostFor: never, wantWhy: reason.Warming},
		"lost during the proof": {query: newestStreamingList, probe: time.Second, losesAt: 500 * time.Millisecond, wantAfter: 8 * time.Second},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newModelWorld(t)
			w.feedsFail = tt.away
			w.probeDelay = tt.probe
			if tt.lostFor > 0 || tt.losesAt > 0 {
				w.load(t)
			}
			time.Sleep(time.Minute) // until everything but the resource is known
			if tt.lostFor > 0 {
				w.loseState(tt.lostFor)
				synctest.Wait()
			}
			if tt.losesAt > 0 {
				time.AfterFunc(tt.losesAt, func() { w.loseState(time.Second) })
			}
			c := w.open(t, tt.query)
			if tt.leaveAt > 0 {
				time.AfterFunc(tt.leaveAt, c.leave)
			}
			time.Sleep(tt.wantAfter)
			synctest.Wait()
			answered := tt.wantWhy == reason.None
			if got := c.received(t); strings.Contains(got, "initial-events-end") != answered {
				t.Fatalf("after %v: got %q, want the whole state: %t", tt.wantAfter, got, answered)
			}
			if answered {
				return // the watch goes on
			}
			if ended := <-c.done; c.why != tt.wantWhy || ended != tt.wantAfter {
				t.Errorf("got reason %q after %v, want %q after %v", c.why, ended, tt.wantWhy, tt.wantAfter)
			}
			next := w.open(t, tt.query)
			// It waits, too, if the first did not wait for its whole time.
			if ended := <-next.done; next.why != tt.wantWhy || ended != 0 && tt.leaveAt == 0 {
				t.Errorf("the next request: got reason %q after %v, want %q at once", next.why, ended, tt.wantWhy)
			}
		})
	}
}

// TestCrowdAtAColdResource: while a resource is loaded, a few lists are forwarded at once, and the others wait for at most
// maxListWait. Requests that the load will not help do not wait, nor does a list of a single object.
func TestCrowdAtAColdResource(t *testing.T) {
	const crowd = 20
	for name, tt := range map[string]struct {
		query    string
		away     bool // the resource cannot be loaded
		lost     bool // the state was just lost, and cannot be loaded
		wantWait bool
		wantWhy  reason.Reason // after the wait
	}{
		"any state":                 {query: "resourceVersion=0", wantWait: true},
		"not older than a revision": {query: "resourceVersion=" + newestRevision, wantWait: true},
		"newest state":              {wantWait: true},
		"newest state, by a label":  {query: "labelSelector=a%3Db", wantWait: true},
		"first page":                {query: "resourceVersion=0&limit=1", wantWait: true},
		"any state, never loaded":   {query: "resourceVersion=0", away: true, wantWait: true, wantWhy: reason.Warming},
		"any state, lost":           {query: "resourceVersion=0", lost: true, wantWait: true, wantWhy: reason.Warming},
		"single object":             {query: "resourceVersion=0&fieldSelector=metadata.name%3Da,metadata.namespace%3Dn"},
		"exact revision":            {query: "resourceVersionMatch=Exact&resourceVersion=" + newestRevision},
		"watch from a revision":     {query: "watch=true&resourceVersion=" + newestRevision},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newModelWorld(t)
			w.feedsFail = tt.away
			if tt.lost {
				w.load(t)
			}
			time.Sleep(time.Minute) // until everything but the resource is known
			if tt.lost {
				w.loseState(time.Hour)
				synctest.Wait()
			}
			w.changeAndCutFeeds(func() { w.probeDelay = time.Second }) // so that the load takes some seconds
			var all []*client
			for range crowd {
				all = append(all, w.open(t, tt.query))
			}
			time.Sleep(maxListWait)
			synctest.Wait()
			late := w.open(t, tt.query)
			atOnce := 0
			for i, c := range all {
				after := <-c.done
				switch {
				case after == 0 && c.why == reason.Warming:
					atOnce++
				case after == 0 || after > maxListWait || c.why != tt.wantWhy:
					t.Errorf("request %d: got reason %q after %v, want %q after a wait", i, c.why, after, tt.wantWhy)
				}
			}
			wantAtOnce := crowd
			if tt.wantWait {
				wantAtOnce = 4 // forwardSlotsPerLoad of package snapshot
			}
			if atOnce != wantAtOnce {
				t.Errorf("got %d requests forwarded at once, want %d", atOnce, wantAtOnce)
			}
			// A later request does not wait as long.
			if after := <-late.done; tt.wantWait && (after >= maxListWait || late.why != tt.wantWhy) {
				t.Errorf("a later request: got reason %q after %v, want %q after less than %v", late.why, after, tt.wantWhy, maxListWait)
			}
		})
	}
}

// TestReviewedAgain: if the right expires while the answer waits for its proof or for room, it is reviewed again. If the
// second review says no, the request is forwarded.
func TestReviewedAgain(t *testing.T) {
	const (
		room    = 1 << 20             // bytes, in all
		wait    = 6 * time.Second     // for the proof or for room
		forRoom = "resourceVersion=0" // a list that waits for room
	)
	for request, query := range map[string]string{
		"list": "", "streaming list": newestStreamingList + "&timeoutSeconds=20", "list that waits for room": forRoom,
	} {
		for name, tt := range map[string]struct {
			ttl         time.Duration // of a right
			yes         int           // the number of reviews that say yes, before the others say no
			wantReviews int
			wantWhy     reason.Reason
		}{
			"right still valid":          {ttl: 10 * time.Second, yes: 1, wantReviews: 1},
			"right expired":              {ttl: 5 * time.Second, yes: 2, wantReviews: 2},
			"no TTL":                     {yes: 2, wantReviews: 2},
			"right expired, then denied": {ttl: 5 * time.Second, yes: 1, wantReviews: 2, wantWhy: reason.NotAllowed},
		} {
			proxytest.Bubble(t, request+", "+name, func(t *testing.T) {
				w := newModelWorld(t)
				w.handler.ConsistentWait = time.Minute
				if query == forRoom {
					w.bulk = randomText(room / 2)
				} else {
					w.probeDelay = wait
				}
				w.load(t)
				w.setRoom(room, time.Minute)
				if query == forRoom {
					time.AfterFunc(wait, w.takeRoom(t, room))
				}
				reviews := 0
				w.setReviews(tt.ttl, func() bool {
					reviews++
					return reviews <= tt.yes
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
