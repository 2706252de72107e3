package admin

import (
	"bytes"
	"errors"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
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
	"github.com/listproxy/listproxy/snapshot/watch"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/observetest"
)

var update = flag.Bool("update", false, "write the golden file anew")

// hostile is what somebody may try to write into the page.
const hostile = "<script>alert(1)</script>\"'&\x1b"

// fakeCollections returns what a test sets.
type fakeCollections struct {
	stats      []snapshot.CollectionStats
	changes    []snapshot.Change
	mismatches map[snapshot.CollectionKey]snapshot.Mismatches
}

func (c *fakeCollections) Stats() []snapshot.CollectionStats { return c.stats }
func (c *fakeCollections) Stored() (bytes, bound int64)      { return 512 << 20, 2 << 30 }
func (c *fakeCollections) Changes() []snapshot.Change        { return c.changes }
func (c *fakeCollections) Mismatches() map[snapshot.CollectionKey]snapshot.Mismatches {
	return c.mismatches
}

func (c *fakeCollections) SelfChecks() map[snapshot.CheckResult]uint64 {
	return map[snapshot.CheckResult]uint64{snapshot.CheckAgrees: 1}
}

// keyOf returns the key of a collection of a resource of group, at version v1.
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
		Resource: key, Objects: 3, Bytes: 24 << 20, Interval: snapshot.Interval{From: 6, To: 9},
		CurrentAt: now.Add(-age), Oldest: now.Add(-75 * time.Second), Used: now.Add(-time.Second),
		Watches: watch.Stats{Open: 12}, Window: 150 * time.Second,
	}
}

// staleStats returns the stats of a collection of the core group in JSON whose feed has heard nothing for an hour.
func staleStats(resource string) snapshot.CollectionStats {
	stats := liveStats(keyOf("", resource, media.JSON), time.Hour)
	stats.Unavailable = reason.Stale
	return stats
}

// eagerStats returns the stats of an eager resource of the core group.
func eagerStats(resource, waits string, ready bool) proxy.EagerStats {
	key := keyOf("", resource, media.JSON)
	return proxy.EagerStats{
		EagerCollection: proxy.EagerCollection{
			GroupVersionResource: key.GroupVersionResource, Representation: key.Representation,
		},
		Waits: waits, Ready: ready,
	}
}

// newHealthySource returns a Source of a healthy listproxy without collections, the Observer that counts in its metrics,
// and the collections that it reads.
func newHealthySource(t *testing.T) (*Source, *observe.Observer, *fakeCollections) {
	t.Helper()
	o, metrics := observetest.New(nil)
	yes, no := func() bool { return true }, func() bool { return false }
	collections := &fakeCollections{}
	return &Source{
		Version: "v0.1.0", Address: "https://10.0.0.1:443", Started: time.Now(),
		Draining: no, Discovery: yes, Schemas: yes, Servers: yes,
		Health: func() upstream.HealthStats {
			return upstream.HealthStats{Condition: upstream.ConditionOK, Since: time.Now()}
		},
		Eager: func() []proxy.EagerStats { return nil },
		// The metrics of the process and of Go's runtime differ each time.
		Metrics: prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
			families, err := metrics.Gather()
			notOurs := func(f *dto.MetricFamily) bool { return !strings.HasPrefix(f.GetName(), "listproxy_") }
			return slices.DeleteFunc(families, notOurs), err
		}),
		Collections: collections,
	}, o, collections
}

// newTroubledSource returns a Source that has something to say in every part.
func newTroubledSource(t *testing.T) *Source {
	t.Helper()
	s, o, collections := newHealthySource(t)
	begun := time.Now()
	time.Sleep(3725 * time.Second) // in synctest
	s.Health = func() upstream.HealthStats {
		return upstream.HealthStats{
			Condition: upstream.ConditionUnreachable, Problem: "dial: " + hostile, Advice: "see whether it runs",
			Since: begun.Add(time.Hour), Answered: begun.Add(time.Hour - 2*time.Second),
		}
	}
	s.Eager = func() []proxy.EagerStats {
		return []proxy.EagerStats{eagerStats("pods", "", true), eagerStats("nodes", hostile, false)}
	}
	collections.stats = []snapshot.CollectionStats{
		liveStats(keyOf("", "pods", media.JSON), 420*time.Millisecond),
		{Resource: keyOf("apps", "deployments", media.Protobuf), Unavailable: reason.Warming, Used: time.Now(), Window: 150 * time.Second},
		staleStats("nodes"),
	}
	collections.changes = []snapshot.Change{{At: begun, Of: hostile, What: hostile, Cause: reason.Schema}}
	collections.mismatches = map[snapshot.CollectionKey]snapshot.Mismatches{
		keyOf("", hostile, media.JSON): {Count: 2, Last: begun},
	}
	const list, watch = "/api/v1/pods?resourceVersion=0", "/api/v1/pods?watch=1"
	for _, r := range []struct {
		target string
		times  int
		why    reason.Reason // to forward it
	}{
		{target: list, times: 6, why: reason.None},
		{target: list, times: 2, why: reason.Consistent},
		{target: list, times: 1, why: reason.Representation},
		{target: watch, times: 1, why: reason.None},
		{target: watch, times: 3, why: reason.Representation},
		{target: "/api/v1/namespaces/a/pods/b", times: 5, why: reason.NotList},
	} {
		for range r.times {
			observetest.Request(o, httptest.NewRequest(http.MethodGet, r.target, nil), func(s observetest.Seen) {
				s.SetDecision(&policy.Request{Version: "v1", Resource: "pods"}, "", r.why)
				s.WriteHeader(http.StatusOK)
			})
		}
	}
	observetest.Request(o, httptest.NewRequest(http.MethodGet, list, nil), func(s observetest.Seen) {
		s.SetRefused("time-out")
		s.WriteHeader(http.StatusTooManyRequests)
	})
	return s
}

// TestStatus: the JSON has what the parts and the metrics say, and its members keep their names.
func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := httptest.NewRecorder()
		writeStatus(w, httptest.NewRequest(http.MethodGet, "/statusz?format=json", nil), newTroubledSource(t).Read())
		const path = "testdata/statusz.golden.json"
		if *update {
			expect.NoError(t, os.WriteFile(path, w.Body.Bytes(), 0o600))
		}
		want, err := os.ReadFile(path)
		expect.NoError(t, err)
		expect.Same(t, string(want), w.Body.String())
	})
}

// TestChecks: one failed check makes a replica unhealthy. It is not ready only where another replica may serve clients
// better: not for a failure of the upstream that all replicas have.
func TestChecks(t *testing.T) {
	no := func() bool { return false }
	unauthorized := func(neverOK bool) func() upstream.HealthStats {
		return func() upstream.HealthStats {
			return upstream.HealthStats{
				Condition: upstream.ConditionUnauthorized, Problem: "401", Advice: "renew it", NeverOK: neverOK,
			}
		}
	}
	pods := keyOf("", "pods", media.JSON)
	for name, tt := range map[string]struct {
		change       func(*Source, *fakeCollections)
		wantFailed   string // the check that is not OK
		wantMessage  string // which it has among others
		wantNotReady bool
	}{
		"well": {change: func(_ *Source, c *fakeCollections) {
			c.stats = []snapshot.CollectionStats{liveStats(pods, 0)}
		}},
		"stale collections": {
			change: func(_ *Source, c *fakeCollections) {
				c.stats = []snapshot.CollectionStats{staleStats("pods"), liveStats(keyOf("", "secrets", media.JSON), 0), staleStats("nodes")}
			},
			wantFailed: "feeds", wantMessage: "of 2 of the collections",
		},
		"not permitted": {change: func(_ *Source, c *fakeCollections) {
			c.stats = []snapshot.CollectionStats{{Resource: pods, Unavailable: reason.NotPermitted}}
		}},
		"a mismatch once": {change: func(_ *Source, c *fakeCollections) {
			c.mismatches = map[snapshot.CollectionKey]snapshot.Mismatches{pods: {Count: 1}}
		}},
		"metrics": {
			change: func(s *Source, _ *fakeCollections) {
				s.Metrics = prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return nil, errors.New("broken") })
			},
			wantFailed: "metrics", wantMessage: "broken",
		},
		"an upstream that refuses us": {
			change:     func(s *Source, _ *fakeCollections) { s.Health = unauthorized(false) },
			wantFailed: "upstream", wantMessage: "(401): renew it",
		},
		"an upstream that has always refused us": {
			change:     func(s *Source, _ *fakeCollections) { s.Health = unauthorized(true) },
			wantFailed: "upstream", wantMessage: "(401): renew it", wantNotReady: true,
		},
		"draining": {
			change:     func(s *Source, _ *fakeCollections) { s.Draining = func() bool { return true } },
			wantFailed: "serving", wantMessage: "draining", wantNotReady: true,
		},
		"resources that are not known yet": {
			change:     func(s *Source, _ *fakeCollections) { s.Discovery = no },
			wantFailed: "discovery", wantMessage: "the log", wantNotReady: true,
		},
		"definitions that are not known yet": {
			change:     func(s *Source, _ *fakeCollections) { s.Schemas = no },
			wantFailed: "schemas", wantMessage: "the log", wantNotReady: true,
		},
		"API servers that are not known yet": {
			change:     func(s *Source, _ *fakeCollections) { s.Servers = no },
			wantFailed: "servers", wantMessage: "the log", wantNotReady: true,
		},
		"an eager resource that is not loaded": {
			change: func(s *Source, _ *fakeCollections) {
				s.Eager = func() []proxy.EagerStats {
					return []proxy.EagerStats{eagerStats("nodes", "", true), eagerStats("pods", "warming", false)}
				}
			},
			wantFailed: "collection/pods.v1", wantMessage: "warming", wantNotReady: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, collections := newHealthySource(t)
			tt.change(s, collections)
			got := s.Read()
			if want := tt.wantFailed == ""; got.Healthy != want {
				t.Errorf("healthy is %t, want %t", got.Healthy, want)
			}
			for _, c := range got.Checks {
				wantOK := c.Name != tt.wantFailed
				if c.OK != wantOK || !c.OK && !strings.Contains(c.Message, tt.wantMessage) {
					t.Errorf("check %+v, want OK: %t, or a message with %q", c, wantOK, tt.wantMessage)
				}
			}
			code, begins, ends := http.StatusOK, "ok", ""
			if tt.wantNotReady {
				code, begins, ends = http.StatusServiceUnavailable, "[-]"+tt.wantFailed+" not ready: ", "\nnot ready"
			}
			w := ask(New(Config{Source: s, Metrics: http.NotFoundHandler()}), http.MethodGet, "/readyz", nil)
			if body := w.Body.String(); w.Code != code || !strings.HasPrefix(body, begins) || !strings.HasSuffix(body, ends) {
				t.Errorf("readyz: %d %q, want %d %q…%q", w.Code, body, code, begins, ends)
			}
		})
	}
}

// TestReadyVerbose: /readyz?verbose names all checks, and what is wrong with each.
func TestReadyVerbose(t *testing.T) {
	s, _, _ := newHealthySource(t)
	s.Eager = func() []proxy.EagerStats {
		return []proxy.EagerStats{eagerStats("pods", "", true), eagerStats("gone", "unknown-resource", true)}
	}
	s.Health = func() upstream.HealthStats {
		return upstream.HealthStats{Condition: upstream.ConditionUnauthorized, Problem: "401"}
	}
	port := New(Config{Source: s, Metrics: http.NotFoundHandler()})
	w := ask(port, http.MethodGet, "/readyz?verbose", nil)
	expect.Same(t, strings.Join([]string{
		"[+]serving ok", "[+]discovery ok", "[+]schemas ok", "[+]servers ok",
		"[+]upstream ok: kube-apiserver is " + upstream.ConditionUnauthorized.Meaning() + " (401)",
		"[+]collection/pods.v1 ok", "[+]collection/gone.v1 ok: unknown-resource", "ok",
	}, "\n"), w.Body.String())
}

// TestPage: a browser gets a page that says what the JSON says, whatever somebody tries to write
// into it, with the style that its policy allows and nothing else; programs get JSON.
func TestPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTroubledSource(t)
		port := New(Config{Source: s, Metrics: http.NotFoundHandler()})
		page := func(accept string) *httptest.ResponseRecorder {
			return ask(port, http.MethodGet, "/statusz", func(r *http.Request) { r.Header.Set("Accept", accept) })
		}
		const htmlType = "text/html; charset=utf-8"
		for accept, want := range map[string]string{
			"": htmlType, "*/*": htmlType, "application/json": "application/json",
			"text/html,application/xhtml+xml,application/json;q=0.9,*/*;q=0.8": htmlType,
		} {
			if got := page(accept).Header().Get("Content-Type"); got != want {
				t.Errorf("Accept %q: %s, want %s", accept, got, want)
			}
		}
		w := page("text/html")
		doc, err := html.Parse(bytes.NewReader(w.Body.Bytes()))
		expect.NoError(t, err)
		forbiddenElements := []string{"script", "img", "link", "iframe", "object", "form"}
		var text strings.Builder
		for n := range doc.Descendants() {
			switch {
			case n.Type == html.TextNode && n.Parent.Data == "style":
				expect.Says(t, w.Header().Get("Content-Security-Policy"),
					"default-src 'none'; style-src 'sha256-"+digest(n.Data)+"';")
			case n.Type == html.TextNode:
				text.WriteString(n.Data + " ")
			case n.Type == html.ElementNode && slices.Contains(forbiddenElements, n.Data):
				t.Errorf("the page has <%s>", n.Data)
			}
			for _, a := range n.Attr {
				otherSite := a.Key == "href" && strings.Contains(a.Val, ":")
				if otherSite || strings.HasPrefix(a.Key, "on") || a.Key == "style" || a.Key == "src" {
					t.Errorf("the page has %s=%q", a.Key, a.Val)
				}
			}
		}
		expect.Says(t, text.String(),
			"✗ not healthy", "collection/nodes.v1 : "+"<script>alert(1)</script>", "66.7 %", "3 forwarded", "512 MiB",
			"of 2.0 GiB", "unreachable", "dial: <script>", "75s of 2m30s", "6 to 9", "warming", "stale", "consistent",
			"2 times, the last 62m ago", "schema ("+hostile[:len(hostile)-1],
		)
	})
}
