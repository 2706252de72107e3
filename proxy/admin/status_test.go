package admin

import (
	"bytes"
	"encoding/json"
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
	"github.com/listproxy/listproxy/snapshot/checks"
	"github.com/listproxy/listproxy/snapshot/watch"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/observetest"
	"github.com/listproxy/listproxy/test/proxytest"
)

var update = flag.Bool("update", false, "write the golden file anew")

// hostile is what somebody may try to write into the page.
const hostile = "<script>alert(1)</script>\"'&\x1b"

// kept are collections that say what a test wants.
type kept struct {
	stats      []snapshot.CollectionStats
	changes    []snapshot.Change
	mismatched map[snapshot.Resource]checks.Stats
}

func (k *kept) Stats() []snapshot.CollectionStats              { return k.stats }
func (k *kept) Stored() (bytes, bound int64)                   { return 512 << 20, 2 << 30 }
func (k *kept) Changes() []snapshot.Change                     { return k.changes }
func (k *kept) Mismatched() map[snapshot.Resource]checks.Stats { return k.mismatched }

func named(group, name string, form media.Representation) snapshot.Resource {
	return snapshot.Resource{
		GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: name}, Representation: form,
	}
}

// live is a collection whose newest state is that of a while ago.
func live(r snapshot.Resource, heard time.Duration) snapshot.CollectionStats {
	now := time.Now()
	return snapshot.CollectionStats{
		Resource: r, Objects: 3, Bytes: 24 << 20, Interval: snapshot.Interval{From: 6, To: 9},
		Heard: now.Add(-heard), Oldest: now.Add(-75 * time.Second), Used: now.Add(-time.Second), Watches: watch.Stats{Open: 12},
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
	s.Ready.Eager = func() []proxy.EagerStats { return []proxy.EagerStats{{Name: "pods"}, {Name: "nodes", Waits: hostile}} }
	k.stats = []snapshot.CollectionStats{
		live(named("", "pods", media.JSON), 420*time.Millisecond),
		{Resource: named("apps", "deployments", media.Protobuf), Absence: reason.Warming, Used: time.Now()},
		live(named("", "nodes", media.JSON), time.Hour),
	}
	k.changes = []snapshot.Change{{At: begun, Of: hostile, What: hostile, Cause: reason.Schema}}
	k.mismatched = map[snapshot.Resource]checks.Stats{named("", hostile, media.JSON): {Mismatches: 2, Mismatched: begun}}
	const list, watch = "/api/v1/pods?resourceVersion=0", "/api/v1/pods?watch=1"
	for _, r := range []struct {
		target string
		times  int
		why    reason.Reason
	}{
		{list, 6, reason.None},
		{list, 2, reason.MostRecent},
		{list, 1, reason.Representation},
		{watch, 1, reason.None},
		{watch, 3, reason.Representation},
		{"/api/v1/namespaces/a/pods/b", 5, reason.NotList},
	} {
		for range r.times {
			observetest.Request(o, httptest.NewRequest(http.MethodGet, r.target, nil), func(rec *observe.Record, w http.ResponseWriter) {
				rec.Decided(policy.Request{Version: "v1", Resource: "pods"}, "", r.why)
				w.WriteHeader(http.StatusOK)
			})
		}
	}
	observetest.Request(o, httptest.NewRequest(http.MethodGet, list, nil), func(rec *observe.Record, w http.ResponseWriter) {
		rec.Refused("time-out")
		w.WriteHeader(http.StatusTooManyRequests)
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
		var read Status
		expect.NoError(t, json.Unmarshal(w.Body.Bytes(), &read))
	})
}

// TestStatusIsHealthy: what makes it ill, and what does not.
func TestStatusIsHealthy(t *testing.T) {
	for name, tt := range map[string]struct {
		change  func(*Source, *kept)
		problem string // the check that is not OK
		says    string
	}{
		"well": {func(_ *Source, k *kept) {
			k.stats = []snapshot.CollectionStats{live(named("", "pods", media.JSON), 0)}
		}, "", ""},
		"silent": {func(_ *Source, k *kept) {
			k.stats = []snapshot.CollectionStats{live(named("", "pods", media.JSON), time.Hour)}
		}, "feeds", "pods/json"},
		"many silent": {func(_ *Source, k *kept) {
			for name := range strings.SplitSeq("abcdefgh", "") {
				k.stats = append(k.stats, live(named("", name, media.JSON), time.Hour))
			}
		}, "feeds", "e/json and 3 more"},
		"not permitted": {func(_ *Source, k *kept) {
			k.stats = []snapshot.CollectionStats{{Resource: named("", "pods", media.JSON), Absence: reason.NotPermitted}}
		}, "", ""},
		"a mismatch once": {func(_ *Source, k *kept) {
			k.mismatched = map[snapshot.Resource]checks.Stats{named("", "pods", media.JSON): {Mismatches: 1}}
		}, "", ""},
		"not ready": {func(s *Source, _ *kept) { s.Ready.Schemas = func() bool { return false } }, "schemas", "the log"},
		"an upstream that other replicas cannot use either": {func(s *Source, _ *kept) {
			s.Ready.Upstream = func() upstream.HealthStats {
				return upstream.HealthStats{Condition: upstream.ConditionUnauthorized, Problem: "401", Advice: "renew it"}
			}
		}, "upstream", "(401): renew it"},
		"metrics": {func(s *Source, _ *kept) {
			s.Metrics = prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return nil, errors.New("broken") })
		}, "metrics", "broken"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, k := newSource(t)
			tt.change(s, k)
			got := s.Read()
			if got.Healthy != (tt.problem == "") {
				t.Errorf("healthy is %v", got.Healthy)
			}
			for _, c := range got.Checks {
				if c.OK != (c.Name != tt.problem) || !c.OK && !strings.Contains(c.Message, tt.says) {
					t.Errorf("check %+v", c)
				}
			}
		})
	}
}

// TestPage: a browser gets a page that says what the JSON says, whatever somebody tries to write
// into it, with the style that its policy allows and nothing else; programs get JSON.
func TestPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := troubled(t)
		port := New(Config{Ready: s.Ready, Metrics: http.NotFoundHandler(), Status: s})
		ask := func(accept string) *httptest.ResponseRecorder {
			w, r := httptest.NewRecorder(), adminRequest(http.MethodGet, "/statusz")
			r.Header.Set("Accept", accept)
			port.ServeHTTP(w, r)
			return w
		}
		for accept, want := range map[string]string{
			"": "text/html; charset=utf-8", "*/*": "text/html; charset=utf-8", "application/json": "application/json",
			"text/html,application/xhtml+xml,application/json;q=0.9,*/*;q=0.8": "text/html; charset=utf-8",
		} {
			if got := ask(accept).Header().Get("Content-Type"); got != want {
				t.Errorf("for %q: %s, want %s", accept, got, want)
			}
		}
		w := ask("text/html")
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
			"✗ not healthy", "collection/nodes : " + "<script>alert(1)</script>", "66.7 %", "3 forwarded", "512 MiB", "of 2.0 GiB", "unreachable", "dial: <script>",
			"75s of 2m30s", "6 to 9", "warming", "stale", "most-recent", "2 times, the last 62m ago", "schema (" + hostile[:len(hostile)-1],
		} {
			if !strings.Contains(text.String(), words) {
				t.Errorf("the page does not say %q:\n%s", words, text.String())
			}
		}
	})
}

// TestSilentIsNotLive: the metric says of a collection what the page says.
func TestSilentIsNotLive(t *testing.T) {
	_, metrics := observetest.New(nil)
	state := wholeState(t)
	state.Staleness, state.Collections = 90*time.Second, func() []snapshot.CollectionStats {
		return []snapshot.CollectionStats{live(named("", "pods", media.JSON), 91*time.Second), live(named("", "nodes", media.JSON), 0)}
	}
	metrics.MustRegister(state)
	want := []string{
		"reason=none,representation=json,resource=nodes,version=v1 1", "reason=stale,representation=json,resource=pods,version=v1 0",
	}
	expect.Same(t, want, proxytest.Series(proxytest.Gather(t, metrics)["listproxy_collection_live"]))
}

// TestReady: each thing by itself keeps clients away, and is named; with ?verbose all are. A trouble
// with the upstream that other replicas have, too, is named only.
func TestReady(t *testing.T) {
	yes, no := func() bool { return true }, func() bool { return false }
	health := func(own bool) func() upstream.HealthStats {
		return func() upstream.HealthStats {
			return upstream.HealthStats{Condition: upstream.ConditionUnauthorized, Problem: "401", Own: own}
		}
	}
	for name, tt := range map[string]struct {
		change  func(*Readiness)
		verbose string
		code    int
		body    string
	}{
		"ready":               {func(*Readiness) {}, "", 200, "ok"},
		"verbose":             {func(*Readiness) {}, "?verbose", 200, "[+]serving ok\n[+]discovery ok\n[+]schemas ok\n[+]servers ok\n[+]upstream ok\n[+]collection/pods ok\n" + "ok"},
		"draining":            {func(r *Readiness) { r.Draining = yes }, "", 503, "[-]serving not ready: draining\nnot ready"},
		"discovery":           {func(r *Readiness) { r.Discovery = no }, "", 503, "[-]discovery not ready: the API server has not said yet which resources it has: see whether it can be reached, and the log\nnot ready"},
		"schemas":             {func(r *Readiness) { r.Schemas = no }, "", 503, "[-]schemas not ready: the definitions of custom resources are not read yet: see whether the API server can be reached, and the log\nnot ready"},
		"servers":             {func(r *Readiness) { r.Servers = no }, "", 503, "[-]servers not ready: the API servers behind the upstream are not known yet: see whether it can be reached, and the log\nnot ready"},
		"own fault":           {func(r *Readiness) { r.Upstream = health(true) }, "", 503, "[-]upstream not ready: kube-apiserver is " + upstream.ConditionUnauthorized.Meaning() + " (401)\nnot ready"},
		"no fault of its own": {func(r *Readiness) { r.Upstream = health(false) }, "?verbose", 200, "[+]serving ok\n[+]discovery ok\n[+]schemas ok\n[+]servers ok\n[+]upstream ok: kube-apiserver is " + upstream.ConditionUnauthorized.Meaning() + " (401)\n[+]collection/pods ok\n" + "ok"},
		"loading": {func(r *Readiness) {
			r.Eager = func() []proxy.EagerStats { return []proxy.EagerStats{{Name: "pods", Waits: "warming"}} }
		}, "", 503, "[-]collection/pods not ready: warming\nnot ready"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, _ := newSource(t)
			ready := s.Ready
			ready.Eager = func() []proxy.EagerStats { return []proxy.EagerStats{{Name: "pods"}} }
			tt.change(&ready)
			w := httptest.NewRecorder()
			New(Config{Ready: ready, Metrics: http.NotFoundHandler(), Status: s}).ServeHTTP(w, adminRequest(http.MethodGet, "/readyz"+tt.verbose))
			if w.Code != tt.code || w.Body.String() != tt.body {
				t.Errorf("%d %q, want %d %q", w.Code, w.Body, tt.code, tt.body)
			}
		})
	}
}
