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

// kept are collections that say what a test wants.
type kept struct {
	stats      []snapshot.CollectionStats
	changes    []snapshot.Change
	mismatched map[snapshot.CollectionKey]snapshot.CheckStats
}

func (k *kept) Stats() []snapshot.CollectionStats                          { return k.stats }
func (k *kept) Stored() (bytes, bound int64)                               { return 512 << 20, 2 << 30 }
func (k *kept) Changes() []snapshot.Change                                 { return k.changes }
func (k *kept) Mismatched() map[snapshot.CollectionKey]snapshot.CheckStats { return k.mismatched }

func named(group, name string, form media.Representation) snapshot.CollectionKey {
	return snapshot.CollectionKey{
		GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: name}, Representation: form,
	}
}

// live is a collection whose newest state is that of a while ago.
func live(r snapshot.CollectionKey, currentAt time.Duration) snapshot.CollectionStats {
	now := time.Now()
	return snapshot.CollectionStats{
		Resource: r, Objects: 3, Bytes: 24 << 20, Interval: snapshot.Interval{From: 6, To: 9},
		CurrentAt: now.Add(-currentAt), Oldest: now.Add(-75 * time.Second), Used: now.Add(-time.Second), Watches: watch.Stats{Open: 12},
	}
}

func eager(resource, waits string, ready bool) proxy.EagerStats {
	r := named("", resource, media.JSON)
	return proxy.EagerStats{
		EagerCollection: proxy.EagerCollection{GroupVersionResource: r.GroupVersionResource, Representation: r.Representation}, Waits: waits, Ready: ready,
	}
}

// newSource is one where all is well and nothing is kept.
func newSource(t *testing.T) (*Source, *observe.Observer, *kept) {
	t.Helper()
	o, metrics := observetest.New(nil)
	yes, no := func() bool { return true }, func() bool { return false }
	k := &kept{}
	return &Source{
		Version: "v0.1.0", Upstream: "https://10.0.0.1:443", Started: time.Now(),
		Ready: Readiness{
			Draining: no, Discovery: yes, Schemas: yes, Servers: yes,
			Upstream: func() upstream.HealthStats {
				return upstream.HealthStats{Condition: upstream.ConditionOK, Since: time.Now()}
			},
			Eager: func() []proxy.EagerStats { return nil },
		},
		// What the process and the runtime say of themselves is always different.
		Metrics: prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
			families, err := metrics.Gather()
			return slices.DeleteFunc(families, func(f *dto.MetricFamily) bool { return !strings.HasPrefix(f.GetName(), "listproxy_") }), err
		}),
		Collections: k, Staleness: 90 * time.Second,
		Window: func(schema.GroupVersionResource) time.Duration { return 150 * time.Second },
	}, o, k
}

// troubled has something in every part.
func troubled(t *testing.T) *Source {
	t.Helper()
	s, o, k := newSource(t)
	begun := time.Now()
	time.Sleep(3725 * time.Second) // in synctest
	s.Ready.Upstream = func() upstream.HealthStats {
		return upstream.HealthStats{
			Condition: upstream.ConditionUnreachable, Since: begun.Add(time.Hour), Answered: begun.Add(time.Hour - 2*time.Second),
			Problem: "dial: " + hostile, Advice: "see whether it runs",
		}
	}
	s.Ready.Eager = func() []proxy.EagerStats {
		return []proxy.EagerStats{eager("pods", "", true), eager("nodes", hostile, false)}
	}
	k.stats = []snapshot.CollectionStats{
		live(named("", "pods", media.JSON), 420*time.Millisecond),
		{Resource: named("apps", "deployments", media.Protobuf), Unavailable: reason.Warming, Used: time.Now()},
		live(named("", "nodes", media.JSON), time.Hour),
	}
	k.changes = []snapshot.Change{{At: begun, Of: hostile, What: hostile, Cause: reason.Schema}}
	k.mismatched = map[snapshot.CollectionKey]snapshot.CheckStats{named("", hostile, media.JSON): {Mismatches: 2, Mismatched: begun}}
	const list, watch = "/api/v1/pods?resourceVersion=0", "/api/v1/pods?watch=1"
	for _, r := range []struct {
		target string
		times  int
		why    reason.Reason
	}{
		{list, 6, reason.None},
		{list, 2, reason.Consistent},
		{list, 1, reason.Representation},
		{watch, 1, reason.None},
		{watch, 3, reason.Representation},
		{"/api/v1/namespaces/a/pods/b", 5, reason.NotList},
	} {
		for range r.times {
			observetest.Request(o, httptest.NewRequest(http.MethodGet, r.target, nil), func(s observetest.Seen) {
				s.Decided(&policy.Request{Version: "v1", Resource: "pods"}, "", r.why)
				s.WriteHeader(http.StatusOK)
			})
		}
	}
	observetest.Request(o, httptest.NewRequest(http.MethodGet, list, nil), func(s observetest.Seen) {
		s.Refused("time-out")
		s.WriteHeader(http.StatusTooManyRequests)
	})
	return s
}

// TestStatus: the JSON has what the parts and the metrics say, and its members keep their names.
func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := httptest.NewRecorder()
		troubled(t).serve(w, httptest.NewRequest(http.MethodGet, "/statusz?format=json", nil))
		const path = "testdata/statusz.golden.json"
		if *update {
			expect.NoError(t, os.WriteFile(path, w.Body.Bytes(), 0o600))
		}
		want, err := os.ReadFile(path)
		expect.NoError(t, err)
		expect.Same(t, string(want), w.Body.String())
	})
}

// TestChecks: what makes a replica ill, and what keeps clients away from it. A trouble with the upstream that
// other replicas have, too, only makes it ill.
func TestChecks(t *testing.T) {
	no := func() bool { return false }
	refused := func(own bool) func() upstream.HealthStats {
		return func() upstream.HealthStats {
			return upstream.HealthStats{Condition: upstream.ConditionUnauthorized, Problem: "401", Advice: "renew it", NeverOK: own}
		}
	}
	loading := []proxy.EagerStats{eager("nodes", "", true), eager("pods", "warming", false)}
	pods, silent := named("", "pods", media.JSON), live(named("", "pods", media.JSON), time.Hour)
	for name, tt := range map[string]struct {
		change   func(*Source, *kept)
		ill      string // the check that is not OK
		says     string
		notReady bool
	}{
		"well":   {change: func(_ *Source, k *kept) { k.stats = []snapshot.CollectionStats{live(pods, 0)} }},
		"silent": {change: func(_ *Source, k *kept) { k.stats = []snapshot.CollectionStats{silent} }, ill: "feeds", says: "pods/json"},
		"many silent": {change: func(_ *Source, k *kept) {
			for name := range strings.SplitSeq("abcdefgh", "") {
				k.stats = append(k.stats, live(named("", name, media.JSON), time.Hour))
			}
		}, ill: "feeds", says: "e/json and 3 more"},
		"not permitted": {change: func(_ *Source, k *kept) {
			k.stats = []snapshot.CollectionStats{{Resource: pods, Unavailable: reason.NotPermitted}}
		}},
		"a mismatch once": {change: func(_ *Source, k *kept) {
			k.mismatched = map[snapshot.CollectionKey]snapshot.CheckStats{pods: {Mismatches: 1}}
		}},
		"metrics": {change: func(s *Source, _ *kept) {
			s.Metrics = prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return nil, errors.New("broken") })
		}, ill: "metrics", says: "broken"},
		"an upstream of no use": {
			change: func(s *Source, _ *kept) { s.Ready.Upstream = refused(false) }, ill: "upstream", says: "(401): renew it",
		},
		"an upstream that never was of use": {
			change: func(s *Source, _ *kept) { s.Ready.Upstream = refused(true) }, ill: "upstream", says: "(401): renew it",
			notReady: true,
		},
		"draining": {
			change: func(s *Source, _ *kept) { s.Ready.Draining = func() bool { return true } }, ill: "serving",
			says: "draining", notReady: true,
		},
		"resources that are not known yet": {
			change: func(s *Source, _ *kept) { s.Ready.Discovery = no }, ill: "discovery", says: "the log", notReady: true,
		},
		"definitions that are not known yet": {change: func(s *Source, _ *kept) { s.Ready.Schemas = no }, ill: "schemas", says: "the log", notReady: true},
		"API servers that are not known yet": {change: func(s *Source, _ *kept) { s.Ready.Servers = no }, ill: "servers", says: "the log", notReady: true},
		"an eager resource that is not loaded": {
			change: func(s *Source, _ *kept) { s.Ready.Eager = func() []proxy.EagerStats { return loading } },
			ill:    "collection/pods.v1", says: "warming", notReady: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, k := newSource(t)
			tt.change(s, k)
			got := s.Read()
			if got.Healthy != (tt.ill == "") {
				t.Errorf("healthy is %v", got.Healthy)
			}
			for _, c := range got.Checks {
				if c.OK != (c.Name != tt.ill) || !c.OK && !strings.Contains(c.Message, tt.says) {
					t.Errorf("check %+v", c)
				}
			}
			code, begins := 200, "ok"
			if tt.notReady {
				code, begins = 503, "[-]"+tt.ill+" not ready: "
			}
			w := ask(New(Config{Ready: s.Ready, Metrics: http.NotFoundHandler(), Status: s}), http.MethodGet, "/readyz", nil)
			if w.Code != code || !strings.HasPrefix(w.Body.String(), begins) || tt.notReady && !strings.HasSuffix(w.Body.String(), "\nnot ready") {
				t.Errorf("readyz: %d %q, want %d %q", w.Code, w.Body, code, begins)
			}
		})
	}
}

// TestReadyVerbose names all that is looked at, and what is wrong with it.
func TestReadyVerbose(t *testing.T) {
	s, _, _ := newSource(t)
	s.Ready.Eager = func() []proxy.EagerStats {
		return []proxy.EagerStats{eager("pods", "", true), eager("gone", "unknown-resource", true)}
	}
	s.Ready.Upstream = func() upstream.HealthStats {
		return upstream.HealthStats{Condition: upstream.ConditionUnauthorized, Problem: "401"}
	}
	w := ask(New(Config{Ready: s.Ready, Metrics: http.NotFoundHandler(), Status: s}), http.MethodGet, "/readyz?verbose", nil)
	expect.Same(t, "[+]serving ok\n[+]discovery ok\n[+]schemas ok\n[+]servers ok\n[+]upstream ok: kube-apiserver is "+
		upstream.ConditionUnauthorized.Meaning()+" (401)\n[+]collection/pods.v1 ok\n[+]collection/gone.v1 ok: unknown-resource\n"+"ok", w.Body.String())
}

// TestPage: a browser gets a page that says what the JSON says, whatever somebody tries to write
// into it, with the style that its policy allows and nothing else; programs get JSON.
func TestPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := troubled(t)
		port := New(Config{Ready: s.Ready, Metrics: http.NotFoundHandler(), Status: s})
		page := func(accept string) *httptest.ResponseRecorder {
			return ask(port, http.MethodGet, "/statusz", func(r *http.Request) { r.Header.Set("Accept", accept) })
		}
		for accept, want := range map[string]string{
			"": "text/html; charset=utf-8", "*/*": "text/html; charset=utf-8", "application/json": "application/json",
			"text/html,application/xhtml+xml,application/json;q=0.9,*/*;q=0.8": "text/html; charset=utf-8",
		} {
			if got := page(accept).Header().Get("Content-Type"); got != want {
				t.Errorf("for %q: %s, want %s", accept, got, want)
			}
		}
		w := page("text/html")
		doc, err := html.Parse(bytes.NewReader(w.Body.Bytes()))
		expect.NoError(t, err)
		var text strings.Builder
		for n := range doc.Descendants() {
			switch {
			case n.Type == html.TextNode && n.Parent.Data == "style":
				if policy := w.Header().Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'; style-src 'sha256-"+digest(n.Data)+"';") {
					t.Errorf("the policy is %s", policy)
				}
			case n.Type == html.TextNode:
				text.WriteString(n.Data + " ")
			case n.Type == html.ElementNode && slices.Contains([]string{"script", "img", "link", "iframe", "object", "form"}, n.Data):
				t.Errorf("there is <%s>", n.Data)
			}
			for _, a := range n.Attr {
				if strings.HasPrefix(a.Key, "on") || a.Key == "style" || a.Key == "src" || a.Key == "href" && strings.Contains(a.Val, ":") {
					t.Errorf("there is %s=%q", a.Key, a.Val)
				}
			}
		}
		for _, words := range []string{
			"✗ not healthy", "collection/nodes.v1 : " + "<script>alert(1)</script>", "66.7 %", "3 forwarded", "512 MiB", "of 2.0 GiB", "unreachable", "dial: <script>",
			"75s of 2m30s", "6 to 9", "warming", "stale", "consistent", "2 times, the last 62m ago", "schema (" + hostile[:len(hostile)-1],
		} {
			if !strings.Contains(text.String(), words) {
				t.Errorf("the page does not say %q:\n%s", words, text.String())
			}
		}
	})
}
