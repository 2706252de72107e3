package proxy

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/limits"
	"github.com/listproxy/listproxy/snapshot/gzip"
	"github.com/listproxy/listproxy/snapshot/watch"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/observetest"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestCompressedWatch: a watch comes with gzip exactly if the upstream would send it so: it
// compresses streaming lists, the client takes gzip, and wants the state and bookmarks. It is told the same.
func TestCompressedWatch(t *testing.T) {
	const quiet = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0"
	for name, tt := range map[string]struct {
		upstream bool
		encoding string
		query    string
		want     bool
	}{
		"streaming":            {true, "gzip", streaming + "&resourceVersion=0", true},
		"taken for streaming":  {true, "br, gzip", "watch=true&resourceVersion=0&allowWatchBookmarks=true", true},
		"by an older upstream": {false, "gzip", streaming + "&resourceVersion=0", false},
		"without bookmarks":    {true, "gzip", quiet, false},
		"not the state":        {true, "gzip", "watch=true&resourceVersion=" + now + "&allowWatchBookmarks=true", false},
		"no gzip":              {true, "identity", streaming + "&resourceVersion=0", false},
		"another spelling":     {true, "gzip;q=1", streaming + "&resourceVersion=0", false},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newModelWorld(t)
			w.compresses = tt.upstream
			var err error
			w.handler.Compressor, err = gzip.NewCompressor(0)
			expect.NoError(t, err)
			w.load(t)
			// Both begin at the same revision, and see one change.
			without, with := httptest.NewRecorder(), httptest.NewRecorder()
			all := []*openWatch{
				w.open(t, without, tt.query+"&timeoutSeconds=2", ""), w.open(t, with, tt.query+"&timeoutSeconds=2", tt.encoding),
			}
			w.write()
			for _, o := range all {
				if <-o.done; o.why != "" {
					t.Fatalf("forwarded: %s", o.why)
				}
			}
			wantHeader := [2]string{}
			if tt.want {
				wantHeader = [2]string{"gzip", "Accept-Encoding"}
			}
			expect.Same(t, wantHeader, [2]string{with.Header().Get("Content-Encoding"), with.Header().Get("Vary")})
			told := plain(t, with)
			expect.Same(t, plain(t, without), told)
			streams := strings.Contains(tt.query, "allowWatchBookmarks") && !strings.Contains(tt.query, now)
			if ends := strings.Contains(told, "initial-events-end"); ends != streams || !strings.Contains(told, "MODIFIED") {
				t.Errorf("told %q", told)
			}
		})
	}
}

// TestStreamingListWaitsForTheProof: a streaming list waits longer for the proof than a list does.
// Forwarding it would cost the upstream more.
func TestStreamingListWaitsForTheProof(t *testing.T) {
	for query, want := range map[string]reason.Reason{streaming + "&timeoutSeconds=20": "", "": reason.NotProven} {
		proxytest.Bubble(t, query, func(t *testing.T) {
			w := newModelWorld(t)
			w.handler.ConsistentWait = 1500 * time.Millisecond
			w.probeTakes = 6 * time.Second
			w.load(t)
			o := w.open(t, httptest.NewRecorder(), query, "")
			defer o.leave()
			time.Sleep(time.Minute)
			synctest.Wait()
			expect.Same(t, want, o.why)
		})
	}
}

// TestNoWatchBeginsAtTheEnd: while the process ends, watches are forwarded, and lists are not.
func TestNoWatchBeginsAtTheEnd(t *testing.T) {
	for query, want := range map[string]reason.Reason{
		"watch=true&timeoutSeconds=20&resourceVersion=" + now: reason.Watch,
		"watch=true&timeoutSeconds=20&resourceVersion=0":      reason.Watch,
		"resourceVersion=0": "",
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newModelWorld(t)
			w.handler.Draining = func() bool { return true }
			w.load(t)
			o := w.open(t, httptest.NewRecorder(), query, "")
			o.leave()
			synctest.Wait()
			expect.Same(t, want, o.why)
		})
	}
}

// TestTimeoutBeginsWithTheRequest: what a watch has waited for is part of its timeout.
func TestTimeoutBeginsWithTheRequest(t *testing.T) {
	for name, tt := range map[string]struct {
		query       string
		proof, want time.Duration
	}{
		"a watch":                             {"watch=true&timeoutSeconds=20&resourceVersion=" + now, 0, 20 * time.Second},
		"a streaming list":                    {streaming + "&timeoutSeconds=20", 0, 20 * time.Second},
		"one that waited":                     {streaming + "&timeoutSeconds=20", 6 * time.Second, 20 * time.Second},
		"one that waited longer than it asks": {streaming + "&timeoutSeconds=4", 6 * time.Second, 6*time.Second + time.Nanosecond},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newModelWorld(t)
			w.handler.Observer, _ = observetest.New(nil)
			w.probeTakes = tt.proof
			w.load(t)
			o := w.open(t, httptest.NewRecorder(), tt.query, "")
			defer o.leave()
			if end := o.end(t, time.Minute); end != watch.EndTimeout || o.ended != tt.want {
				t.Errorf("it ended after %v: %q", o.ended, end)
			}
		})
	}
}

// TestStreamingListOfAColdResource: the first streaming list of a resource waits until it is loaded,
// since the upstream would have the watch for minutes if it were forwarded. If that takes too long, it
// is forwarded, and so are all that follow. It is the same where the state is lost, and loaded again.
func TestStreamingListOfAColdResource(t *testing.T) {
	cold := []reason.Reason{reason.Warming}
	for name, tt := range map[string]struct {
		query string
		away  bool            // the resource cannot be loaded
		takes time.Duration   // a probe does
		lost  bool            // the resource was loaded, and its state is lost
		loses time.Duration   // when its state is lost after the request, if it is then
		again time.Duration   // when it can be loaded again, after it was lost
		leave time.Duration   // when the client leaves, if it does
		want  []reason.Reason // of one request after the other
		after time.Duration   // when the first is answered or forwarded, at the latest
	}{
		"of any state":         {query: streaming + "&resourceVersion=0", want: []reason.Reason{""}, after: 2 * time.Second},
		"of the newest state":  {query: streaming, want: []reason.Reason{""}, after: 4 * time.Second},
		"loaded too late":      {query: streaming, away: true, want: []reason.Reason{reason.Warming, reason.Warming}, after: longestStreamWait},
		"the client leaves":    {query: streaming, away: true, leave: 3 * time.Second, want: cold, after: 3 * time.Second},
		"a watch, not a state": {query: "watch=true&resourceVersion=" + now, takes: time.Second, want: cold},
		"a list":               {query: "resourceVersion=0", takes: time.Second, want: cold},

		// Two probes belong to the load, which is the proof: another probe would come too late.
		"with slow probes": {query: streaming, takes: 4 * time.Second, want: []reason.Reason{""}, after: 9 * time.Second},

		"lost":                          {query: streaming + "&resourceVersion=0", lost: true, again: 2 * time.Second, want: []reason.Reason{""}, after: 8 * time.Second},
		"lost, of the newest state":     {query: streaming, lost: true, again: 2 * time.Second, want: []reason.Reason{""}, after: 8 * time.Second},
		"lost for too long":             {query: streaming, lost: true, again: time.Hour, want: []reason.Reason{reason.Warming, reason.Warming}, after: longestStreamWait},
		"lost, and a list":              {query: "resourceVersion=0", lost: true, again: time.Hour, want: cold},
		"lost while the proof is asked": {query: streaming, takes: time.Second, loses: 500 * time.Millisecond, again: time.Second, want: []reason.Reason{""}, after: 8 * time.Second},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newModelWorld(t)
			w.away, w.probeTakes = tt.away, tt.takes
			if tt.lost || tt.loses > 0 {
				w.load(t)
			}
			time.Sleep(time.Minute) // all but the resource is known
			switch {
			case tt.lost:
				w.lose(tt.again)
				synctest.Wait()
			case tt.loses > 0:
				time.AfterFunc(tt.loses, func() { w.lose(tt.again) })
			}
			for i, want := range tt.want {
				out := newTold()
				o := w.open(t, out, tt.query, "")
				defer o.leave()
				if tt.leave > 0 {
					time.AfterFunc(tt.leave, o.leave)
				}
				time.Sleep(tt.after)
				synctest.Wait()
				if text := out.String(); strings.Contains(text, "initial-events-end") != (want == "") {
					t.Fatalf("request %d: told %q", i, text)
				}
				if want == "" {
					continue // it goes on
				}
				after := tt.after
				if i > 0 {
					after = 0
				}
				if ended := <-o.done; o.why != want || ended != after {
					t.Errorf("request %d: forwarded after %v: %q", i, ended, o.why)
				}
			}
		})
	}
}

// TestCrowdAtAColdResource: while a resource is loaded, a few lists are forwarded, and all others wait,
// ten seconds at most. Who would get nothing from the state that is loaded does not wait, nor who asks
// for one object.
func TestCrowdAtAColdResource(t *testing.T) {
	const crowd = 20
	for name, tt := range map[string]struct {
		query  string
		away   bool // the resource cannot be loaded
		lost   bool // the resource was loaded, and has just lost its state
		waits  bool
		answer reason.Reason // of who has waited
	}{
		"any state":                    {query: "resourceVersion=0", waits: true},
		"not older":                    {query: "resourceVersion=" + now, waits: true},
		"the newest state":             {waits: true},
		"the newest state, by a label": {query: "labelSelector=a%3Db", waits: true},
		"in pages":                     {query: "resourceVersion=0&limit=1", waits: true},
		"it is not loaded":             {query: "resourceVersion=0", away: true, waits: true, answer: reason.Warming},
		"lost":                         {query: "resourceVersion=0", lost: true, waits: true, answer: reason.Warming},
		"one object":                   {query: "resourceVersion=0&fieldSelector=metadata.name%3Da,metadata.namespace%3Dn"},
		"exactly":                      {query: "resourceVersionMatch=Exact&resourceVersion=" + now},
		"a watch from a revision on":   {query: "watch=true&resourceVersion=" + now},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newModelWorld(t)
			w.away = tt.away
			if tt.lost {
				w.load(t)
			}
			time.Sleep(time.Minute) // all but the resource is known
			if tt.lost {
				w.lose(time.Hour)
				synctest.Wait()
			}
			w.cut(func() { w.probeTakes = time.Second }) // so the load takes some seconds
			var all []*openWatch
			for range crowd {
				o := w.open(t, newTold(), tt.query, "")
				defer o.leave()
				all = append(all, o)
			}
			time.Sleep(longestWait)
			synctest.Wait()
			late := w.open(t, newTold(), tt.query, "")
			defer late.leave()
			atOnce := 0
			for i, o := range all {
				switch after := <-o.done; {
				case after == 0 && o.why == reason.Warming:
					atOnce++
				case after == 0 || after > longestWait || o.why != tt.answer:
					t.Errorf("request %d: after %v %q", i, after, o.why)
				}
			}
			if want := map[bool]int{true: 4, false: crowd}[tt.waits]; atOnce != want {
				t.Errorf("%d were forwarded at once, want %d", atOnce, want)
			}
			if after := <-late.done; tt.waits && (after >= longestWait || late.why != tt.answer) {
				t.Errorf("one that came later: after %v %q", after, late.why)
			}
		})
	}
}

// TestManyWatchesAreReviewed: where thousands of watches of one caller begin at once, each with a
// selector of its own, all are reviewed. Another caller's does not wait behind them.
func TestManyWatchesAreReviewed(t *testing.T) { synctest.Test(t, testManyWatchesAreReviewed) }

func testManyWatchesAreReviewed(t *testing.T) {
	const (
		watches = 2000
		takes   = 50 * time.Millisecond
	)
	w := newModelWorld(t)
	var mu sync.Mutex
	reviews, underWay, most := 0, 0, 0
	w.review(t, time.Hour, func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		reviews++
		underWay++
		most = max(most, underWay)
		mu.Unlock()
		time.Sleep(takes)
		mu.Lock()
		underWay--
		mu.Unlock()
		return proxytest.AnswerReview(r, authorizationv1.SubjectAccessReviewStatus{})
	})
	said, who := map[reason.Reason]int{}, w.caller(t)
	watch := func(share byte, name int) {
		who := who
		who.flow = limits.Flow{share}
		_, _, why := w.handler.decide(w.request(t.Context(), fmt.Sprint("watch=true&resourceVersion=1&fieldSelector=metadata.name%3D", name)), who)
		mu.Lock()
		said[why]++
		mu.Unlock()
	}
	var all sync.WaitGroup
	for name := range watches {
		all.Go(func() { watch(1, name) })
	}
	synctest.Wait()
	begun := time.Now()
	watch(2, watches)
	if waited := time.Since(begun); waited != takes {
		t.Errorf("another caller's watch was reviewed after %v, alone it is after %v", waited, takes)
	}
	all.Wait()
	expect.Same(t, map[reason.Reason]int{reason.NotAllowed: watches + 1}, said)
	if reviews != watches+1 || most > 128 {
		t.Errorf("%d reviews, %d at once", reviews, most)
	}
}

// TestReviewedAgain: a yes that has expired while the answer waited for its proof, or for room, is asked for
// once more. If it is a no by then, nothing is answered.
func TestReviewedAgain(t *testing.T) {
	const room, forRoom = 1 << 20, "resourceVersion=0"
	for request, query := range map[string]string{"a list": "", "a streaming list": streaming + "&timeoutSeconds=20", "a list that waits for room": forRoom} {
		for name, tt := range map[string]struct {
			ttl, takes time.Duration // of a yes, and of the proof or the wait for room
			yes        int           // that many reviews are answered with, before a no
			asked      int
			want       reason.Reason
		}{
			"in time":        {10 * time.Second, 6 * time.Second, 1, 1, ""},
			"late":           {5 * time.Second, 6 * time.Second, 2, 2, ""},
			"nothing kept":   {0, 6 * time.Second, 2, 2, ""},
			"late, then not": {5 * time.Second, 6 * time.Second, 1, 2, reason.NotAllowed},
		} {
			proxytest.Bubble(t, request+", "+name, func(t *testing.T) {
				w := newModelWorld(t)
				w.handler.ConsistentWait = time.Minute
				if query == forRoom {
					w.bulk = randomText(room / 2)
				} else {
					w.probeTakes = tt.takes
				}
				w.load(t)
				w.bound(t, room, time.Minute)
				if query == forRoom {
					time.AfterFunc(tt.takes, w.takeRoom(t, room))
				}
				asked := 0
				w.review(t, tt.ttl, func(r *http.Request) (*http.Response, error) {
					asked++
					return proxytest.AnswerReview(r, authorizationv1.SubjectAccessReviewStatus{Allowed: asked <= tt.yes})
				})
				out := httptest.NewRecorder()
				o := w.open(t, out, query, "")
				defer o.leave()
				<-o.done
				if diff := cmp.Diff(tt.want, o.why); diff != "" || asked != tt.asked || (out.Body.Len() > 0) != (tt.want == "") {
					t.Errorf("%d reviews, %d bytes (-want +got):\n%s", asked, out.Body.Len(), diff)
				}
			})
		}
	}
}
