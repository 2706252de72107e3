package admin

import (
	"bytes"
	"flag"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/net/html"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/gzip"
	"github.com/listproxy/listproxy/snapshot/watch"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/observetest"
)

var update = flag.Bool("update", false, "write the golden file anew")

// hostile is a text by which somebody may try to put a script into the page.
const hostile = "<script>alert(1)</script>\"'&\x1b"

// fakeCollections stands for the collections of a Source. A test sets their stats and mismatches. Their sizes and self-checks
// are always the same.
type fakeCollections struct {
	stats      []snapshot.CollectionStats
	mismatches map[snapshot.CollectionKey]snapshot.MismatchStats
}

func (c *fakeCollections) Stats() []snapshot.CollectionStats { return c.stats }
func (c *fakeCollections) Stored() (bytes, bound int64)      { return 512 << 20, 2 << 30 }
func (c *fakeCollections) Mismatches() map[snapshot.CollectionKey]snapshot.MismatchStats {
	return c.mismatches
}

func (c *fakeCollections) SelfChecks() map[snapshot.CheckResult]uint64 {
	return map[snapshot.CheckResult]uint64{snapshot.CheckAgrees: 1}
}

// keyOf returns the key of a collection, which is the memory of one resource (here at v1) in one representation.
func keyOf(group, resource string, representation media.Representation) snapshot.CollectionKey {
	return snapshot.CollectionKey{
		GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource},
		Representation:       representation,
	}
}

// liveStats returns the stats of a collection that answers lists. Its newest state has the given age.
func liveStats(key snapshot.CollectionKey, age time.Duration) snapshot.CollectionStats {
	now := time.Now()
	return snapshot.CollectionStats{
		Key: key, Objects: 3, Bytes: 24 << 20, Interval: snapshot.Interval{From: 6, To: 9},
		CurrentAt: now.Add(-age), Oldest: now.Add(-75 * time.Second), LastUse: now.Add(-time.Second),
		Watches: watch.Stats{Open: 12}, Window: 150 * time.Second,
	}
}

// staleStats returns the stats of a collection of the core group in JSON whose feed has heard nothing for an hour.
func staleStats(resource string) snapshot.CollectionStats {
	stats := liveStats(keyOf("", resource, media.JSON), time.Hour)
	stats.Unavailable = reason.Stale
	return stats
}

// loaded is the WhyNotLoaded of an eager resource that is loaded.
const loaded = ""

// readyEager returns the stats of an eager resource of the core group: one that listproxy loads at its start. The replica no
// longer waits for the resource: it was loaded once, or kube-apiserver has refused it for a while.
func readyEager(resource, whyNotLoaded string) proxy.EagerStats {
	stats := unreadyEager(resource, whyNotLoaded)
	stats.Ready = true
	return stats
}

// unreadyEager returns the stats of an eager resource of the core group for which the replica still waits.
func unreadyEager(resource, whyNotLoaded string) proxy.EagerStats {
	key := keyOf("", resource, media.JSON)
	return proxy.EagerStats{
		EagerCollection: proxy.EagerCollection{
			GroupVersionResource: key.GroupVersionResource, Representation: key.Representation,
		},
		WhyNotLoaded: whyNotLoaded,
	}
}

// portOf returns the admin port's handler for the status of s, without metrics, flags and further hosts.
func portOf(s *Source) http.Handler { return New(s, http.NotFoundHandler(), nil, nil) }

// newHealthySource returns the Source of a healthy listproxy without collections.
func newHealthySource(t *testing.T) *Source {
	t.Helper()
	s, _, _ := newObservedSource(t)
	return s
}

// newObservedSource is newHealthySource, and also returns the Observer, which counts requests in the Source's metrics, and the
// Source's collections.
func newObservedSource(t *testing.T) (*Source, *observe.Observer, *fakeCollections) {
	t.Helper()
	o, metrics := observetest.New(nil)
	yes, no := func() bool { return true }, func() bool { return false }
	collections := &fakeCollections{}
	limit := debug.SetMemoryLimit(math.MaxInt64) // no limit, whatever GOMEMLIMIT says
	t.Cleanup(func() { debug.SetMemoryLimit(limit) })
	return &Source{
		Version: "v0.1.0", Address: "https://10.0.0.1:443", Started: time.Now(),
		Draining: no, DiscoveryReady: yes, DefinitionsReady: yes, ServersReady: yes,
		Health: func() upstream.Diagnosis {
			return upstream.Diagnosis{Condition: upstream.ConditionOK, Since: time.Now()}
		},
		Eager:       func() []proxy.EagerStats { return nil },
		Compression: func() gzip.CompressorStats { return gzip.CompressorStats{} },
		// The metrics of the process and of Go's runtime differ each time.
		Metrics: prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
			families, err := metrics.Gather()
			notOurs := func(f *dto.MetricFamily) bool { return !strings.HasPrefix(f.GetName(), "listproxy_") }
			return slices.DeleteFunc(families, notOurs), err
		}),
		Collections: collections,
	}, o, collections
}

// newTroubledSource returns a Source with a failure in every part of the status. The test must run in synctest, since an hour
// passes.
func newTroubledSource(t *testing.T) *Source {
	t.Helper()
	const uptime = 62*time.Minute + 5*time.Second
	s, o, collections := newObservedSource(t)
	started := time.Now()
	time.Sleep(uptime)
	// The API server has been unreachable for two minutes.
	s.Health = func() upstream.Diagnosis {
		return upstream.Diagnosis{
			Condition: upstream.ConditionUnreachable, Problem: "dial: " + hostile, Advice: "see whether it runs",
			Since: started.Add(time.Hour), Answered: started.Add(time.Hour - 2*time.Second),
		}
	}
	s.Eager = func() []proxy.EagerStats {
		return []proxy.EagerStats{readyEager("pods", loaded), unreadyEager("nodes", hostile)}
	}
	// One collection is live, one is being loaded, and one is stale. In a fourth, self-checks have found two differences.
	collections.stats = []snapshot.CollectionStats{
		liveStats(keyOf("", "pods", media.JSON), 420*time.Millisecond),
		{Key: keyOf("apps", "deployments", media.Protobuf), Unavailable: reason.Warming, LastUse: time.Now(), Window: 150 * time.Second},
		staleStats("nodes"),
	}
	collections.mismatches = map[snapshot.CollectionKey]snapshot.MismatchStats{
		keyOf("", hostile, media.JSON): {Count: 2, Last: started},
	}
	// Of ten lists, six were answered from memory, three were forwarded, and one was refused. Of four watches, one was answered
	// from memory. Other requests are not on the status page.
	const (
		listTarget  = "/api/v1/pods?resourceVersion=0"
		watchTarget = "/api/v1/pods?watch=1"
		podTarget   = "/api/v1/namespaces/a/pods/b"
	)
	for _, r := range []struct {
		target       string
		times        int
		forwardedFor reason.Reason // None: answered from memory
	}{
		{target: listTarget, times: 6, forwardedFor: reason.None},
		{target: listTarget, times: 2, forwardedFor: reason.Consistent},
		{target: listTarget, times: 1, forwardedFor: reason.Representation},
		{target: watchTarget, times: 1, forwardedFor: reason.None},
		{target: watchTarget, times: 3, forwardedFor: reason.Representation},
		{target: podTarget, times: 5, forwardedFor: reason.NotList},
	} {
		for range r.times {
			observetest.Request(o, httptest.NewRequest(http.MethodGet, r.target, nil), func(s observetest.Seen) {
				s.SetDecision(&policy.Request{Version: "v1", Resource: "pods"}, "", r.forwardedFor)
				s.WriteHeader(http.StatusOK)
			})
		}
	}
	observetest.Request(o, httptest.NewRequest(http.MethodGet, listTarget, nil), func(s observetest.Seen) {
		s.SetRefused("time-out")
		s.WriteHeader(http.StatusTooManyRequests)
	})
	return s
}

// TestStatus: the JSON of the status page is as in the golden file. So its members keep their names.
func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := httptest.NewRecorder()
		writeStatus(w, httptest.NewRequest(http.MethodGet, "/statusz?format=json", nil), newTroubledSource(t).ReadStatus())
		const path = "testdata/statusz.golden.json"
		if *update {
			expect.NoError(t, os.WriteFile(path, w.Body.Bytes(), 0o600))
		}
		want, err := os.ReadFile(path)
		expect.NoError(t, err)
		expect.Same(t, string(want), w.Body.String())
	})
}

// TestChecks: a replica with a failed check is unhealthy (Source.ReadStatus). It is unready (/readyz) only if another replica
// may serve clients better. So a failure of the API server, which all replicas see, makes no replica unready that was once
// ready.
func TestChecks(t *testing.T) {
	no := func() bool { return false }
	unauthorized := upstream.Diagnosis{Condition: upstream.ConditionUnauthorized, Problem: "401", Advice: "renew it"}
	unauthorizedSinceStart := unauthorized
	unauthorizedSinceStart.NeverOK = true
	pods := keyOf("", "pods", media.JSON)
	for name, tt := range map[string]struct {
		change       func(*Source, *fakeCollections)
		wantFailed   string // the name of the only check that is not OK
		wantMessage  string // a part of the failed check's message
		wantNotReady bool
	}{
		"all is well": {change: func(_ *Source, c *fakeCollections) {
			c.stats = []snapshot.CollectionStats{liveStats(pods, 0)}
		}},
		"stale collections": {
			change: func(_ *Source, c *fakeCollections) {
				c.stats = []snapshot.CollectionStats{staleStats("pods"), liveStats(keyOf("", "secrets", media.JSON), 0), staleStats("nodes")}
			},
			wantFailed: "feeds", wantMessage: "of 2 of the collections",
		},
		"a collection that may not be listed": {change: func(_ *Source, c *fakeCollections) {
			c.stats = []snapshot.CollectionStats{{Key: pods, Unavailable: reason.NotPermitted}}
		}},
		"a mismatch": {change: func(_ *Source, c *fakeCollections) {
			c.mismatches = map[snapshot.CollectionKey]snapshot.MismatchStats{pods: {Count: 1}}
		}},
		"an API server that refuses listproxy's account": {
			change: func(s *Source, _ *fakeCollections) {
				s.Health = func() upstream.Diagnosis { return unauthorized }
			},
			wantFailed: "upstream", wantMessage: "(401): renew it",
		},
		"an API server that has refused listproxy's account from the start": {
			change: func(s *Source, _ *fakeCollections) {
				s.Health = func() upstream.Diagnosis { return unauthorizedSinceStart }
			},
			wantFailed: "upstream", wantMessage: "(401): renew it", wantNotReady: true,
		},
		"draining": {
			change:     func(s *Source, _ *fakeCollections) { s.Draining = func() bool { return true } },
			wantFailed: "serving", wantMessage: "draining", wantNotReady: true,
		},
		"resources that are not known yet": {
			change:     func(s *Source, _ *fakeCollections) { s.DiscoveryReady = no },
			wantFailed: "discovery", wantMessage: "the log", wantNotReady: true,
		},
		"definitions that are not known yet": {
			change:     func(s *Source, _ *fakeCollections) { s.DefinitionsReady = no },
			wantFailed: "schemas", wantMessage: "the log", wantNotReady: true,
		},
		"API servers that are not known yet": {
			change:     func(s *Source, _ *fakeCollections) { s.ServersReady = no },
			wantFailed: "servers", wantMessage: "the log", wantNotReady: true,
		},
		"an eager resource that is not loaded": {
			change: func(s *Source, _ *fakeCollections) {
				s.Eager = func() []proxy.EagerStats {
					return []proxy.EagerStats{readyEager("nodes", loaded), unreadyEager("pods", "warming")}
				}
			},
			wantFailed: "collection/pods.v1", wantMessage: "warming", wantNotReady: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, collections := newObservedSource(t)
			tt.change(s, collections)

			// The status page: only the wanted check has failed.
			got := s.ReadStatus()
			if want := tt.wantFailed == ""; got.Healthy != want {
				t.Errorf("Healthy is %t, want %t", got.Healthy, want)
			}
			for _, c := range got.Checks {
				wantOK := c.Name != tt.wantFailed
				if c.OK != wantOK {
					t.Errorf("check %+v: want OK %t", c, wantOK)
				}
				if !c.OK && !strings.Contains(c.Message, tt.wantMessage) {
					t.Errorf("check %+v: want a message with %q", c, tt.wantMessage)
				}
			}

			// /readyz: a body "ok", or one that begins with the failed check.
			wantCode := http.StatusOK
			wantBegin, wantEnd := "ok", ""
			if tt.wantNotReady {
				wantCode = http.StatusServiceUnavailable
				wantBegin, wantEnd = "[-]"+tt.wantFailed+" not ready: ", "\nnot ready"
			}
			w := get(portOf(s), "/readyz")
			body := w.Body.String()
			if w.Code != wantCode || !strings.HasPrefix(body, wantBegin) || !strings.HasSuffix(body, wantEnd) {
				t.Errorf("/readyz answers %d %q, want %d %q…%q", w.Code, body, wantCode, wantBegin, wantEnd)
			}
		})
	}
}

// TestReadyVerbose: /readyz?verbose has a line for each check. The line says what is wrong, even if the check is OK, as for a
// failure of the API server.
func TestReadyVerbose(t *testing.T) {
	s := newHealthySource(t)
	s.Eager = func() []proxy.EagerStats {
		return []proxy.EagerStats{readyEager("pods", loaded), readyEager("gone", "unknown-resource")}
	}
	s.Health = func() upstream.Diagnosis {
		return upstream.Diagnosis{Condition: upstream.ConditionUnauthorized, Problem: "401"}
	}
	w := get(portOf(s), "/readyz?verbose")
	expect.Same(t, strings.Join([]string{
		"[+]serving ok", "[+]discovery ok", "[+]schemas ok", "[+]servers ok",
		"[+]upstream ok: kube-apiserver is " + upstream.ConditionUnauthorized.Meaning() + " (401)",
		"[+]collection/pods.v1 ok", "[+]collection/gone.v1 ok: unknown-resource", "ok",
	}, "\n"), w.Body.String())
}

// browserAccept is the Accept header of a browser, and htmlType the type of the page that it gets.
const (
	browserAccept = "text/html,application/xhtml+xml,application/json;q=0.9,*/*;q=0.8"
	htmlType      = "text/html; charset=utf-8"
)

// getStatus returns the response to a GET of the status of s with this Accept header.
func getStatus(s *Source, accept string) *httptest.ResponseRecorder {
	return ask(portOf(s), http.MethodGet, "/statusz", func(r *http.Request) { r.Header.Set("Accept", accept) })
}

// TestPageOrJSON: a browser gets the status as a page, and a program as JSON.
func TestPageOrJSON(t *testing.T) {
	for accept, want := range map[string]string{
		"": htmlType, "*/*": htmlType, browserAccept: htmlType, "application/json": "application/json",
	} {
		expect.Same(t, want, getStatus(newHealthySource(t), accept).Header().Get("Content-Type"))
	}
}

// TestPageIsInert: the page has no script, even if a text of the status is hostile, and only the style sheet that its
// Content-Security-Policy allows.
func TestPageIsInert(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := getStatus(newTroubledSource(t), browserAccept)
		doc, err := html.Parse(bytes.NewReader(w.Body.Bytes()))
		expect.NoError(t, err)
		for n := range doc.Descendants() {
			switch {
			case n.Type == html.TextNode && n.Parent.Data == "style":
				expect.Says(t, w.Header().Get("Content-Security-Policy"),
					"default-src 'none'; style-src 'sha256-"+digest(n.Data)+"';")
			case n.Type == html.ElementNode && slices.Contains([]string{"script", "img", "link", "iframe", "object", "form"}, n.Data):
				t.Errorf("the page has <%s>", n.Data)
			}
			for _, a := range n.Attr {
				otherSite := a.Key == "href" && strings.Contains(a.Val, ":") // a link with a scheme
				if otherSite || strings.HasPrefix(a.Key, "on") || a.Key == "style" || a.Key == "src" {
					t.Errorf("the page has %s=%q", a.Key, a.Val)
				}
			}
		}
	})
}

// TestPageText: the page has each part of the status.
func TestPageText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		doc, err := html.Parse(getStatus(newTroubledSource(t), browserAccept).Body)
		expect.NoError(t, err)
		var text strings.Builder
		for n := range doc.Descendants() {
			if n.Type == html.TextNode {
				text.WriteString(n.Data + " ")
			}
		}
		printed := strings.TrimSuffix(hostile, "\x1b") // HTML has no escape character
		expect.Says(t, text.String(),
			"✗ not healthy", "collection/nodes.v1 : "+printed, // checks
			"2 times, the last 62m ago",                             // mismatches
			"66.7 %", "6, and 3 forwarded", "512 MiB", "of 2.0 GiB", // counts and sizes
			"unreachable", "dial: "+printed, // API server
			"75s of 2m30s", "6 to 9", "warming", "stale", // collections
			"consistent", // reasons
		)
	})
}
