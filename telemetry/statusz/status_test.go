package statusz

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"

	"github.com/listproxy/listproxy/test/expect"
)

var update = flag.Bool("update", false, "write the golden files anew")

// hostile is what a client may try to write into the page.
const hostile = "<script>alert(1)</script>\"'&\x1b"

// sample has something in every part.
func sample() Status {
	lag, share, recent := 0.42, 0.75, 0.9
	checked, wrong := 120.0, 300.0
	return Status{
		Version: "v0.1.0", GoVersion: "go1.26.0", Upstream: "https://10.0.0.1:443",
		Time: time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC), Uptime: 3725,
		UpstreamState: &UpstreamState{
			State: "unreachable", Meaning: "not reachable", Seconds: 70, Answered: new(71.5), User: "system:serviceaccount:listproxy:listproxy",
			Error: "dial: " + hostile, Advice: "see whether it runs",
		},
		Ends: []End{
			{Name: "token for kube-apiserver", At: time.Date(2026, 5, 6, 8, 8, 9, 0, time.UTC), Left: 3600, Soon: true},
			{Name: "certificate serving", At: time.Date(2027, 5, 6, 7, 8, 9, 0, time.UTC), Left: 365 * 86400},
		},
		Checks: []Check{
			{Name: "serving", OK: true},
			{Name: "feeds", Message: "nothing new was heard of these: " + hostile},
		},
		Endpoints: []Endpoint{
			{Address: "10.0.0.1:6443", State: "up", Meaning: "up", Seconds: 3725, Version: "v1.36.3", Connections: 3},
			{Address: "10.0.0.2:6443", State: "not-ready", Meaning: "not ready", Seconds: 70, Version: "v1.35.4", Connections: 1, Error: "/readyz answered 500"},
			{Address: "10.0.0.3:6443", State: "unreachable", Meaning: "down", Seconds: 10, Error: "dial: " + hostile},
			{Address: "10.0.0.4:6443", State: EndpointUnknown, Meaning: "not checked yet", Seconds: 1},
		},
		Lists: Lists{
			Answered: 1500, Forwarded: 400, Streaming: 100, Refused: 2, Other: 12345, Share: &share, SavedBytes: 5 << 30,
			Reasons: []Reason{{Reason: "most-recent", Lists: 400, Meaning: "the state at this moment"}},
			Newest:  Newest{Proven: 1200, Forwarded: 400, Estimated: 350, WouldAnswer: 300},
		},
		Recent: Traffic{
			Seconds: 300, Answered: 90, Forwarded: 10, Share: &recent, Other: 6000, TooMany: 2, UpstreamTooMany: 1,
			Memory:   Latency{Requests: 90, Median: 0.004, P99: 0.2},
			Upstream: Latency{Requests: 10, Median: 0.3, P99: 12},
			Reviews:  Latency{Requests: 9, Median: 0.002, P99: 1.5}, ReviewsKnown: 81,
		},
		Total:    Traffic{Seconds: 3725, Answered: 1500, Forwarded: 400, Streaming: 100, Share: &share, Other: 12345, Refused: 2},
		Inflight: Inflight{Requests: 3, LongRunning: 40, Bytes: 5 << 20, Waiting: 1},
		Collections: []Collection{
			{
				Resource: "pods", Version: "v1", Representation: "json", State: StateLive, Objects: 3000, Versions: 41, Bytes: 24 << 20,
				Revision: 1234567, Lag: &lag, Bound: 90, Idle: 1, History: 75, Window: 150, Restarts: 1, Watches: 12,
				Spans:     []Span{{From: 1000000, To: 1100000}, {From: 1200000, To: 1234567}},
				SelfCheck: SelfCheck{Result: "agrees", Age: &checked, Mismatches: 2, MismatchAge: &wrong},
			},
			{
				Resource: "deployments.apps", Version: "v1", Representation: "protobuf", State: "warming",
				Spans: []Span{}, Window: 150, SelfCheck: SelfCheck{Result: SelfCheckNone},
			},
		},
		SelfChecks: SelfChecks{Interval: 300, Mismatches: []Mismatch{
			{Resource: hostile, Version: "v1", Representation: "json", Mismatches: 1, Last: time.Date(2026, 5, 6, 6, 8, 9, 0, time.UTC), Age: 3600},
			{Resource: "pods", Version: "v1", Representation: "json", Mismatches: 2, Last: time.Date(2026, 5, 6, 7, 3, 9, 0, time.UTC), Age: 300},
		}},
		Resources: []Resource{
			{Resource: "pods", Answered: 1500, Forwarded: 400, Streaming: 99, Share: &share, Reason: "most-recent", ReasonLists: 400},
			{Resource: "other", Streaming: 1, Share: new(float64), Reason: "streaming", ReasonLists: 1},
		},
		Policy: Policy{File: "/etc/" + hostile, SHA256: "0123abcd", Rules: []Rule{
			{Resource: "pods", Cache: "eager", Representations: []string{"json", "protobuf"}, History: 300, MaxBytes: 1 << 30, LimitAtZero: LimitHonoured, ConsistentLists: "always", Source: "policy.yaml:3"},
			{Resource: EverythingElse, Cache: "onDemand", Representations: []string{"json"}, History: 150, Idle: 900, SameForEveryone: true, ConsistentLists: ConsistentFaster, Watches: true, NewestAsAny: 3, Source: "built in"},
			{Resource: "secrets", Cache: CacheNever, Source: "built in"},
		}},
		Eager:   []Eager{{Resource: "pods", Version: "v1", Representation: "json"}},
		Runtime: Runtime{Memory: 900 << 20, MemoryLimit: 3 << 30, GCPercent: 50, Processors: 4},
		Traces:  Traces{Enabled: true, Sampler: "traceidratio 0.1"},
		Memory:  Memory{Stored: 512 << 20, StoredBound: 2 << 30, Compressed: 1 << 20},
		Callers: []Caller{{UserAgent: "kubectl/v1.36.3", Lists: 300, Reason: "most-recent"}, {UserAgent: hostile, Lists: 7, Excess: 6, Reason: "selector"}},
		Flags:   []Flag{{Name: "config", Value: hostile, Set: true}, {Name: "secure-port", Value: "8443"}},
	}
}

func get(t *testing.T, s Status, target, accept string) *httptest.ResponseRecorder {
	t.Helper()
	handler, err := Handler(func() Status { return s }, slog.New(slog.DiscardHandler))
	expect.NoError(t, err)
	r := httptest.NewRequest(http.MethodGet, target, nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return w
}

// golden compares with a file, or writes it with -update.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := "testdata/" + name
	if *update {
		expect.NoError(t, os.WriteFile(path, got, 0o600))
	}
	want, err := os.ReadFile(path)
	expect.NoError(t, err)
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got; go test ./telemetry -update):\n%s", name, diff)
	}
}

// The members are promised in docs/observability.md.
func TestStatusJSON(t *testing.T) {
	w := get(t, sample(), "/statusz?format=json", "text/html")
	if kind := w.Header().Get("Content-Type"); kind != "application/json" {
		t.Errorf("Content-Type is %q", kind)
	}
	golden(t, "statusz.golden.json", w.Body.Bytes())
	var again Status
	expect.NoError(t, json.Unmarshal(w.Body.Bytes(), &again))
	want := sample()
	want.Sort()
	if diff := cmp.Diff(want, again); diff != "" {
		t.Errorf("read again (-want +got):\n%s", diff)
	}
}

func TestStatusForm(t *testing.T) {
	for _, tt := range []struct{ target, accept, want string }{
		{"/statusz", "", "text/html; charset=utf-8"},
		{"/statusz", "*/*", "text/html; charset=utf-8"},
		{"/statusz", "text/html,application/xhtml+xml,*/*;q=0.8", "text/html; charset=utf-8"},
		{"/statusz", "application/json", "application/json"},
		{"/statusz", "application/json, */*;q=0.1", "application/json"},
		{"/statusz?format=json", "text/html", "application/json"},
		{"/statusz?format=html", "application/json", "text/html; charset=utf-8"},
	} {
		if got := get(t, sample(), tt.target, tt.accept).Header().Get("Content-Type"); got != tt.want {
			t.Errorf("%s for %q: %q, want %q", tt.target, tt.accept, got, tt.want)
		}
	}
}

func TestStatusText(t *testing.T) {
	s := sample()
	s.Sort()
	var text bytes.Buffer
	expect.NoError(t, s.WriteText(&text))
	golden(t, "statusz.golden.txt", text.Bytes())
	if strings.ContainsAny(text.String(), "\x1b\r\x07") {
		t.Error("control characters reach the terminal")
	}
	// Nor can one cell look like several, or like a line of its own.
	s.Checks[1].Message = "x\nlistproxy v9\thealthy\u202e\u009b" + strings.Repeat("y", 1000)
	text.Reset()
	if err := s.WriteText(&text); err != nil || strings.ContainsAny(text.String(), "\u202e\u009b") || strings.Contains(text.String(), "\nlistproxy v9") {
		t.Errorf("%v: a message breaks out of its cell:\n%s", err, &text)
	}
	for line := range strings.Lines(text.String()) {
		if len([]rune(line)) > 210 {
			t.Errorf("%d characters in a line", len(line))
		}
	}
	text.Reset()
	if err := (Status{Version: "v0", Healthy: true}).WriteText(&text); err != nil || !strings.Contains(text.String(), "nobody has asked") {
		t.Errorf("with nothing in it: %v\n%s", err, &text)
	}
}

// nodes are the elements of a page.
func nodes(t *testing.T, page string) []*html.Node {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	expect.NoError(t, err)
	var all []*html.Node
	for n := range root.Descendants() {
		if n.Type == html.ElementNode {
			all = append(all, n)
		}
	}
	return all
}

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func textOf(n *html.Node) string {
	var text strings.Builder
	for child := range n.Descendants() {
		if child.Type == html.TextNode {
			text.WriteString(child.Data + " ")
		}
	}
	return strings.Join(strings.Fields(text.String()), " ")
}

func byID(t *testing.T, all []*html.Node, id string) *html.Node {
	t.Helper()
	for _, n := range all {
		if attr(n, "id") == id {
			return n
		}
	}
	t.Fatalf("there is no #%s", id)
	return nil
}

func TestStatusPageSays(t *testing.T) {
	all := nodes(t, get(t, sample(), "/statusz", "").Body.String())
	for id, words := range map[string][]string{
		"health":      {"not healthy"},
		"problems":    {"nothing new was heard of these"},
		"share":       {"75.0 %"},
		"collections": {"pods v1, json live agrees, 2m00s ago 2 mismatches, last 5m00s ago 3,000 24 MiB 1234567 verified 0.4s ago (bound 1m30s)", "1m15s of 2m30s, 1 gap", "deployments.apps v1, protobuf warming not checked yet 0", "never verified"},
		"warning": {
			"Something wrong may have been answered", "pods v1, json: 2 mismatches, last 5m00s ago (2026-05-06 07:03:09 UTC) " + hostile + " v1, json: 1 mismatch, last 1h00m ago",
		},
		"endpoints": {
			"10.0.0.1:6443 up for 1h02m v1.36.3 3 ok", "10.0.0.2:6443 not ready for 1m10s v1.35.4 1 /readyz answered 500",
			"10.0.0.3:6443 down for 10s unheard 0 dial: " + hostile, "10.0.0.4:6443 not checked yet for 1.0s unheard 0 –",
		},
		"reasons":   {"most-recent 400 the state at this moment"},
		"callers":   {"kubectl/v1.36.3 300 most-recent", hostile + " ≤ 7 selector"},
		"states":    {"1 live , 1 warming ."},
		"resources": {"pods 75.0 % 1,500 of 1,999 most-recent 400", "all others 0.0 % 0 of 1 streaming 1"},
		"policy": {
			"pods eager, json protobuf, history 5m00s, at most 1.0 GiB, limit honoured at resourceVersion=0, the newest state policy.yaml:3",
			"everything else onDemand, json, history 2m30s, given up after 15m00s, same for everyone, the newest state where faster, watches, any for 3 named built in", "secrets never built in",
		},
		"policy-digest": {"0123abcd"},
		"eager":         {"pods v1, json"},
		"process":       {"900 MiB", "(GOMEMLIMIT) 3.0 GiB", "GOGC 50", "GOMAXPROCS 4", "sampler traceidratio 0.1", "go1.26.0"},
		"flags":         {"--config " + hostile + " the command line", "--secure-port 8443 default"},
	} {
		text := textOf(byID(t, all, id))
		for _, word := range words {
			if !strings.Contains(text, word) {
				t.Errorf("#%s does not say %q: %s", id, word, text)
			}
		}
	}
	s := sample()
	s.Healthy = true
	if all = nodes(t, get(t, s, "/statusz", "").Body.String()); !strings.Contains(textOf(byID(t, all, "health")), "✓ healthy") {
		t.Error("it is healthy, and does not say so")
	}
	// Nothing at all is no error either.
	for _, n := range nodes(t, get(t, Status{}, "/statusz", "").Body.String()) {
		if attr(n, "id") == "endpoints" {
			t.Error("there are API servers, though --upstream names none")
		}
	}
}

// The page loads nothing, runs nothing but its own script, and screen readers find their way.
func TestStatusPageIsSafeAndAccessible(t *testing.T) {
	w := get(t, sample(), "/statusz", "")
	policy := w.Header().Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none'; ") || strings.Contains(policy, "unsafe") || strings.Contains(policy, "http") {
		t.Errorf("Content-Security-Policy: %s", policy)
	}
	scripts, tables := 0, 0
	for _, n := range nodes(t, w.Body.String()) {
		for _, a := range n.Attr {
			switch {
			case a.Key == "style", strings.HasPrefix(a.Key, "on"):
				t.Errorf("<%s %s=…> is against the policy", n.Data, a.Key)
			case a.Key == "src", a.Key == "href" && !slices.Contains([]string{"data:,", "metrics", "flagz", "readyz?verbose", "statusz?format=json"}, a.Val):
				t.Errorf("<%s %s=%q> is from elsewhere", n.Data, a.Key, a.Val)
			}
		}
		switch n.Data {
		case "script", "style":
			scripts++
			if digest := sha256.Sum256([]byte(n.FirstChild.Data)); !strings.Contains(policy, n.Data+"-src 'sha256-"+base64.StdEncoding.EncodeToString(digest[:])+"'") {
				t.Errorf("<%s> is not what the policy allows: %s", n.Data, policy)
			}
		case "table":
			tables++
			if attr(n, "aria-labelledby") == "" {
				t.Error("a table has no name")
			}
		case "th":
			if attr(n, "scope") == "" {
				t.Errorf("<th>%s</th> has no scope", textOf(n))
			}
		case "svg":
			if attr(n, "role") != "img" || attr(n, "aria-label") == "" {
				t.Error("a picture has no words")
			}
		case "html":
			if attr(n, "lang") == "" {
				t.Error("no language")
			}
		}
	}
	if scripts != 2 || tables != 8 {
		t.Errorf("%d scripts and styles, %d tables", scripts, tables)
	}
}

// However many ask, the status is read once a second, and one reader gets what the other does.
func TestStatusIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads, reading := 0, 0
		handler, err := Handler(func() Status {
			reads++
			reading++
			if reading > 1 {
				t.Error("it is read twice at a time")
			}
			time.Sleep(3 * time.Second) // a bubble's
			reading--
			s := sample()
			s.Version = fmt.Sprint("version ", reads)
			return s
		}, slog.New(slog.DiscardHandler))
		expect.NoError(t, err)
		flood := func(want int) {
			t.Helper()
			var all sync.WaitGroup
			for i := range 50 {
				all.Go(func() {
					target := "/statusz?format=json"
					if i%2 == 0 {
						target = "/statusz"
					}
					w := httptest.NewRecorder()
					handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
					if !strings.Contains(w.Body.String(), fmt.Sprint("version ", want)) {
						t.Errorf("%s is not of version %d", target, want)
					}
				})
			}
			all.Wait()
			if reads != want {
				t.Errorf("the status was read %d times, want %d", reads, want)
			}
		}
		flood(1)
		flood(1)
		time.Sleep(statusAge)
		flood(2)
	})
}

// Of many collections those that somebody ought to look at come first, and the others are a click
// away.
func TestStatusPageOfMany(t *testing.T) {
	s := sample()
	s.Collections, s.Resources = nil, nil
	for i := range 500 {
		c := Collection{Resource: fmt.Sprintf("r%03d.example.com", i), Version: "v1", Representation: "json", State: StateLive}
		if i == 499 {
			c.State = "not-permitted"
		}
		s.Collections = append(s.Collections, c)
		s.Resources = append(s.Resources, Resource{Resource: c.Resource, Answered: int64(i)})
	}
	all := nodes(t, get(t, s, "/statusz", "").Body.String())
	if got := textOf(byID(t, all, "states")); !strings.HasPrefix(got, "499 live , 1 not-permitted .") {
		t.Errorf("states: %s", got)
	}
	shown, hidden := textOf(byID(t, all, "collections")), textOf(byID(t, all, "more-collections"))
	if !strings.Contains(shown, "r499") || !strings.Contains(shown, "r018") || strings.Contains(shown, "r019") {
		t.Errorf("shown are %s", shown)
	}
	if !strings.HasPrefix(hidden, "480 more ") || !strings.Contains(hidden, "r498") {
		t.Errorf("a click away are %.100s", hidden)
	}
	shown, hidden = textOf(byID(t, all, "resources")), textOf(byID(t, all, "more-resources"))
	if !strings.Contains(shown, "r499") || strings.Contains(shown, "r484") || !strings.HasPrefix(hidden, "485 more ") || !strings.Contains(hidden, "r484") {
		t.Errorf("lists by resource: %s", shown)
	}
}
