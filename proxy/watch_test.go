package proxy

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot/watch"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestCompressedWatch: a watch comes with gzip exactly if the upstream would send it so: it compresses streaming lists,
// and the client takes gzip and wants the state and bookmarks. The events are the same without.
func TestCompressedWatch(t *testing.T) {
	const quiet = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0"
	for name, tt := range map[string]struct {
		upstream bool
		encoding string
		query    string
		want     bool
	}{
		"streaming": {upstream: true, encoding: "gzip", query: streaming + "&resourceVersion=0", want: true},
		"taken for streaming": {
			upstream: true, encoding: "br, gzip", query: "watch=true&resourceVersion=0&allowWatchBookmarks=true", want: true,
		},
		"by an older upstream": {encoding: "gzip", query: streaming + "&resourceVersion=0"},
		"without bookmarks":    {upstream: true, encoding: "gzip", query: quiet},
		"not the state": {
			upstream: true, encoding: "gzip", query: "watch=true&resourceVersion=" + now + "&allowWatchBookmarks=true",
		},
		"no gzip":          {upstream: true, encoding: "identity", query: streaming + "&resourceVersion=0"},
		"another spelling": {upstream: true, encoding: "gzip;q=1", query: streaming + "&resourceVersion=0"},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newModelWorld(t)
			w.compresses = tt.upstream
			w.load(t)
			// Both begin at the same revision, and see one change.
			without, with := &client{}, &client{encoding: tt.encoding}
			w.openAs(t, without, tt.query+"&timeoutSeconds=2")
			w.openAs(t, with, tt.query+"&timeoutSeconds=2")
			w.write()
			for _, c := range []*client{without, with} {
				if <-c.done; c.why != "" {
					t.Fatalf("forwarded: %s", c.why)
				}
			}
			wantHeader := [2]string{}
			if tt.want {
				wantHeader = [2]string{"gzip", "Accept-Encoding"}
			}
			expect.Same(t, wantHeader, [2]string{with.Header().Get("Content-Encoding"), with.Header().Get("Vary")})
			told := with.told(t)
			expect.Same(t, without.told(t), told)
			streams := strings.Contains(tt.query, "allowWatchBookmarks") && !strings.Contains(tt.query, now)
			if ends := strings.Contains(told, "initial-events-end"); ends != streams || !strings.Contains(told, "MODIFIED") {
				t.Errorf("told %q", told)
			}
		})
	}
}

// TestTimeoutBeginsWithTheRequest: what a watch has waited for is part of its timeout. A streaming list waits longer
// for the proof than a list does: forwarding it would cost the upstream more.
func TestTimeoutBeginsWithTheRequest(t *testing.T) {
	for name, tt := range map[string]struct {
		query string
		proof time.Duration // it takes
		want  time.Duration // until the end
	}{
		"a watch":          {query: "watch=true&timeoutSeconds=20&resourceVersion=" + now, want: 20 * time.Second},
		"a streaming list": {query: streaming + "&timeoutSeconds=20", want: 20 * time.Second},
		"one that waited":  {query: streaming + "&timeoutSeconds=20", proof: 6 * time.Second, want: 20 * time.Second},
		"one that waited longer than it asks": {
			query: streaming + "&timeoutSeconds=4", proof: 6 * time.Second, want: 6*time.Second + time.Nanosecond,
		},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newModelWorld(t)
			w.probeTakes = tt.proof
			w.load(t)
			c := w.open(t, tt.query)
			if end := c.end(t, time.Minute); end != watch.EndTimeout || c.ended != tt.want {
				t.Errorf("it ended after %v: %q", c.ended, end)
			}
		})
	}
}

// TestStreamingListOfAColdResource: the first streaming list of a resource waits until it is loaded,
// since the upstream would have the watch for minutes if it were forwarded. If that takes too long, it
// is forwarded, and so are all that follow. It is the same where the state is lost, and loaded again.
func TestStreamingListOfAColdResource(t *testing.T) {
	const all, never = "&resourceVersion=0", time.Hour
	for name, tt := range map[string]struct {
		query string
		away  bool          // the resource cannot be loaded
		takes time.Duration // a probe does
		lost  time.Duration // the resource was loaded, and its state is lost: that long before it can be loaded again
		loses time.Duration // when its state is lost after the request, if it is then, for a second
		leave time.Duration // when the client leaves, if it does
		after time.Duration // when the request is answered, at the latest, or forwarded
		want  reason.Reason
	}{
		"of any state":         {query: streaming + all, after: 2 * time.Second},
		"of the newest state":  {query: streaming, after: 4 * time.Second},
		"loaded too late":      {query: streaming, away: true, after: maxStreamWait, want: reason.Warming},
		"the client leaves":    {query: streaming, away: true, leave: 3 * time.Second, after: 3 * time.Second, want: reason.Warming},
		"a watch, not a state": {query: "watch=true&resourceVersion=" + now, takes: time.Second, want: reason.Warming},
		"a list":               {query: "resourceVersion=0", takes: time.Second, want: reason.Warming},

		// Two probes belong to the load, which is the proof: another probe would come too late.
		"with slow probes": {query: streaming, takes: 4 * time.Second, after: 9 * time.Second},

		"lost":                          {query: streaming + all, lost: 2 * time.Second, after: 8 * time.Second},
		"lost, of the newest state":     {query: streaming, lost: 2 * time.Second, after: 8 * time.Second},
		"lost for too long":             {query: streaming, lost: never, after: maxStreamWait, want: reason.Warming},
		"lost, and a list":              {query: "resourceVersion=0", lost: never, want: reason.Warming},
		"lost while the proof is asked": {query: streaming, takes: time.Second, loses: 500 * time.Millisecond, after: 8 * time.Second},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			w := newModelWorld(t)
			w.away, w.probeTakes = tt.away, tt.takes
			if tt.lost > 0 || tt.loses > 0 {
				w.load(t)
			}
			time.Sleep(time.Minute) // all but the resource is known
			if tt.lost > 0 {
				w.lose(tt.lost)
				synctest.Wait()
			}
			if tt.loses > 0 {
				time.AfterFunc(tt.loses, func() { w.lose(time.Second) })
			}
			c := w.open(t, tt.query)
			if tt.leave > 0 {
				time.AfterFunc(tt.leave, c.leave)
			}
			time.Sleep(tt.after)
			synctest.Wait()
			if told := c.told(t); strings.Contains(told, "initial-events-end") != (tt.want == "") {
				t.Fatalf("told %q", told)
			}
			if tt.want == "" {
				return // it goes on
			}
			if ended := <-c.done; c.why != tt.want || ended != tt.after {
				t.Errorf("forwarded after %v: %q", ended, c.why)
			}
			next := w.open(t, tt.query)
			if ended := <-next.done; next.why != tt.want || ended != 0 && tt.leave == 0 {
				t.Errorf("the next was forwarded after %v: %q", ended, next.why)
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
			var all []*client
			for range crowd {
				all = append(all, w.open(t, tt.query))
			}
			time.Sleep(maxListWait)
			synctest.Wait()
			late := w.open(t, tt.query)
			atOnce := 0
			for i, c := range all {
				switch after := <-c.done; {
				case after == 0 && c.why == reason.Warming:
					atOnce++
				case after == 0 || after > maxListWait || c.why != tt.answer:
					t.Errorf("request %d: after %v %q", i, after, c.why)
				}
			}
			if want := map[bool]int{true: 4, false: crowd}[tt.waits]; atOnce != want {
				t.Errorf("%d were forwarded at once, want %d", atOnce, want)
			}
			if after := <-late.done; tt.waits && (after >= maxListWait || late.why != tt.answer) {
				t.Errorf("one that came later: after %v %q", after, late.why)
			}
		})
	}
}

// TestReviewedAgain: a yes that has expired while the answer waited for its proof, or for room, is asked for
// once more. If it is a no by then, nothing is answered.
func TestReviewedAgain(t *testing.T) {
	const room, forRoom, takes = 1 << 20, "resourceVersion=0", 6 * time.Second // the proof, or the wait for room
	for request, query := range map[string]string{"a list": "", "a streaming list": streaming + "&timeoutSeconds=20", "a list that waits for room": forRoom} {
		for name, tt := range map[string]struct {
			ttl   time.Duration // of a yes
			yes   int           // that many reviews are answered with, before a no
			asked int
			want  reason.Reason
		}{
			"in time":        {ttl: 10 * time.Second, yes: 1, asked: 1},
			"late":           {ttl: 5 * time.Second, yes: 2, asked: 2},
			"nothing kept":   {yes: 2, asked: 2},
			"late, then not": {ttl: 5 * time.Second, yes: 1, asked: 2, want: reason.NotAllowed},
		} {
			proxytest.Bubble(t, request+", "+name, func(t *testing.T) {
				w := newModelWorld(t)
				w.handler.ConsistentWait = time.Minute
				if query == forRoom {
					w.bulk = randomText(room / 2)
				} else {
					w.probeTakes = takes
				}
				w.load(t)
				w.bound(t, room, time.Minute)
				if query == forRoom {
					time.AfterFunc(takes, w.takeRoom(t, room))
				}
				asked := 0
				w.review(t, tt.ttl, func(r *http.Request) (*http.Response, error) {
					asked++
					return proxytest.AnswerReview(r, authorizationv1.SubjectAccessReviewStatus{Allowed: asked <= tt.yes})
				})
				c := w.open(t, query)
				<-c.done
				if told := c.told(t); c.why != tt.want || asked != tt.asked || (told != "") != (tt.want == "") {
					t.Errorf("%q, want %q; %d reviews, %d bytes", c.why, tt.want, asked, len(told))
				}
			})
		}
	}
}
