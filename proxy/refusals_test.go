package proxy

import (
	"cmp"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/auth"
	"github.com/listproxy/listproxy/proxy/forward"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/proxy/serve"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/telemetry"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/logbuffer"
	"github.com/listproxy/listproxy/test/observetest"
	"github.com/listproxy/listproxy/test/proxytest"
)

// refusing is a listproxy of two servers, one of them for CONNECT, with its metrics and its log.
type refusing struct {
	main, connect *httptest.Server
	metrics       prometheus.Gatherer
	log           *logbuffer.Buffer
	serving       sync.WaitGroup // requests; one is counted after its answer is sent
}

func newRefusing(t *testing.T) *refusing {
	t.Helper()
	f := &refusing{log: &logbuffer.Buffer{}}
	o, metrics := observetest.New(nil)
	f.metrics = metrics
	log := telemetry.NewLogger(f.log, telemetry.FormatJSON, telemetry.LevelAccess)
	api := proxytest.StartUpstream(t, proxytest.HTTP2, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	up, err := upstream.New(api.Config())
	expect.NoError(t, err)
	forwarder := forward.New(up, proxytest.DiscardLog())
	caller := proxytest.Identify(auth.NewAuthenticator(nil), "Bearer known")
	// This handler does what Handler.respond does to forward a request.
	handler := o.Observe(serve.OnlyPaths(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		observe.RecordOf(r.Context()).SetDecision(&policy.Request{}, "", reason.NotList)
		w.Header().Set(kubehttp.CacheStatusHeader, kubehttp.CacheForwarded(reason.NotList))
		forwarder.ServeAs(w, r, caller, nil)
	})), log)
	targets, err := serve.NewTargets(&url.URL{Host: "api.example:6443"}, nil)
	expect.NoError(t, err)
	start := func(server *http.Server) *httptest.Server {
		inner := server.Handler
		server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			f.serving.Add(1)
			defer f.serving.Done()
			inner.ServeHTTP(w, r)
		})
		return proxytest.Serve(t, server, proxytest.HTTP1)
	}
	f.main = start(serve.New(handler, nil, proxytest.DiscardLog()))
	f.connect = start(serve.NewConnectServer(serve.NewTunnels(targets, &tls.Config{MinVersion: tls.VersionTLS12}), nil, o, log))
	return f
}

// TestRefusalsAreSeen: every request that listproxy refuses before it decides who answers is counted in the metrics, and logged
// in the access log, with its reason. Its answer has no Cache-Status, since neither memory nor the upstream was asked.
func TestRefusalsAreSeen(t *testing.T) {
	f := newRefusing(t)
	bodyBytes := 0
	wantSeries := map[string]int{} // of the metric, with their counts
	var wantLines []string         // of the access log, each "REASON CODE"
	for name, tt := range map[string]struct {
		to             *httptest.Server
		target, header string // of a request with the Host a, and further lines of its header
		body           string
		wantCode       int
		wantReason     string
		wantVerb       string // of the metric; "": other
	}{
		"CONNECT":  {to: f.main, target: "CONNECT a:1", wantCode: 405, wantReason: "connect"},
		"full URL": {to: f.main, target: "GET http://a/x", wantCode: 400, wantReason: "target"},
		"asterisk": {to: f.main, target: "GET *", wantCode: 400, wantReason: "target"},
		"identity header in Connection": {
			to: f.main, target: "GET /api/v1/pods", header: "Connection: authorization\r\n",
			wantCode: 400, wantReason: "connection-header", wantVerb: "list",
		},
		"malformed body": {
			to: f.main, target: "POST /api/v1/namespaces/a/pods", header: "Transfer-Encoding: chunked\r\n", body: "zz\r\n",
			wantCode: 400, wantReason: "malformed",
		},
		"tunnel port: GET":               {to: f.connect, target: "GET /api", wantCode: 400, wantReason: "no-connect"},
		"tunnel port: GET of a full URL": {to: f.connect, target: "GET http://a/x", wantCode: 400, wantReason: "no-connect"},
		"tunnel port: CONNECT elsewhere": {to: f.connect, target: "CONNECT a:1", wantCode: 403, wantReason: "connect"},
		"tunnel port: CONNECT with a body": {
			to: f.connect, target: "CONNECT a:1", header: "Content-Length: 1\r\n", body: "0",
			wantCode: 400, wantReason: "connect",
		},
	} {
		res, _, _ := proxytest.SendRaw(t, tt.to, tt.target+" HTTP/1.1\r\nHost: a\r\n"+tt.header+"\r\n"+tt.body)
		bodyBytes += len(proxytest.ReadAll(t, res.Body))
		if status := res.Header.Get("Cache-Status"); res.StatusCode != tt.wantCode || status != "" {
			t.Errorf("%s: %s with Cache-Status %q, want %d without one", name, res.Status, status, tt.wantCode)
		}
		wantSeries[fmt.Sprintf("code=%d,decision=refuse,reason=%s,resource=other,semantics=none,verb=%s",
			tt.wantCode, tt.wantReason, cmp.Or(tt.wantVerb, "other"))]++
		wantLines = append(wantLines, fmt.Sprintf("%s %d", tt.wantReason, tt.wantCode))
	}
	f.serving.Wait()
	f.checkMetrics(t, wantSeries, bodyBytes)
	f.checkAccessLog(t, wantLines)
}

// checkMetrics requires these counts of requests, and this number of bytes of answers.
func (f *refusing) checkMetrics(t *testing.T, counts map[string]int, bodyBytes int) {
	t.Helper()
	got := proxytest.Gather(t, f.metrics)
	var want []string
	for series, n := range counts {
		want = append(want, fmt.Sprint(series, " ", n))
	}
	slices.Sort(want)
	expect.Same(t, want, proxytest.Series(got["listproxy_requests_total"]))
	expect.Same(t, []string(nil), proxytest.Series(got["listproxy_upstream_requests_total"]))
	wantBytes := []string{fmt.Sprintf("decision=refuse,resource=other %d", bodyBytes)}
	expect.Same(t, wantBytes, proxytest.Series(got["listproxy_response_body_bytes_total"]))
}

// checkAccessLog requires these lines, each "REASON CODE", in any order.
func (f *refusing) checkAccessLog(t *testing.T, want []string) {
	t.Helper()
	var got []string
	for line := range strings.Lines(f.log.String()) {
		var entry map[string]any
		if json.Unmarshal([]byte(line), &entry) != nil || entry["msg"] != "request" {
			continue
		}
		got = append(got, fmt.Sprintf("%s %v", entry["refused"], entry["code"]))
		if entry["cacheStatus"] != nil {
			t.Errorf("the access line of a refusal has a cacheStatus: %s", line)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	expect.Same(t, want, got)
}
