package proxy

import (
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

// TestRefusalsAreSeen: every request that listproxy itself refuses is counted in the metrics, and logged in the access log. Its
// answer has no Cache-Status, since neither memory nor the upstream was asked.
func TestRefusalsAreSeen(t *testing.T) {
	o, metrics := observetest.New(nil)
	lines := &logbuffer.Buffer{}
	log := telemetry.NewLogger(lines, telemetry.FormatJSON, telemetry.LevelAccess)
	api := proxytest.StartUpstream(t, proxytest.HTTP2, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	up, err := upstream.New(api.Config())
	expect.NoError(t, err)
	forwarder, caller := forward.New(up, proxytest.DiscardLog()), proxytest.Identify(auth.NewAuthenticator(nil), "Bearer known")
	// This handler does what Handler.respond does to forward a request.
	handler := o.Observe(serve.OnlyPaths(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		observe.RecordOf(r.Context()).SetDecision(&policy.Request{}, "", reason.NotList)
		w.Header().Set(kubehttp.CacheStatusHeader, kubehttp.CacheForwarded(reason.NotList))
		forwarder.ServeAs(w, r, caller, nil)
	})), log)
	targets, err := serve.NewTargets(&url.URL{Host: "api.example:6443"}, nil)
	expect.NoError(t, err)
	var serving sync.WaitGroup
	start := func(server *http.Server) *httptest.Server {
		inner := server.Handler
		server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			serving.Add(1)
			defer serving.Done()
			inner.ServeHTTP(w, r)
		})
		return proxytest.Serve(t, server, proxytest.HTTP1)
	}
	main := start(serve.New(handler, nil, proxytest.DiscardLog()))
	connect := start(serve.NewConnectServer(serve.NewTunnels(targets, &tls.Config{MinVersion: tls.VersionTLS12}), nil, o, log))

	sent, counted := 0, map[string]int{}
	var logged []string
	refused := func(name string, res *http.Response, code int, reason, verb string) {
		t.Helper()
		sent += len(proxytest.ReadAll(t, res.Body))
		if status := res.Header.Get("Cache-Status"); res.StatusCode != code || status != "" {
			t.Errorf("%s: %s with Cache-Status %q, want %d without one", name, res.Status, status, code)
		}
		counted[fmt.Sprintf("code=%d,decision=refuse,reason=%s,resource=other,semantics=none,verb=%s", code, reason, verb)]++
		logged = append(logged, fmt.Sprintf("%s %d", reason, code))
	}
	for name, tt := range map[string]struct {
		to            *httptest.Server
		request, body string
		code          int
		reason, verb  string
	}{
		"CONNECT":  {to: main, request: "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n", code: 405, reason: "connect", verb: "other"},
		"full URL": {to: main, request: "GET http://a/x HTTP/1.1\r\nHost: a\r\n", code: 400, reason: "target", verb: "other"},
		"asterisk": {to: main, request: "GET * HTTP/1.1\r\nHost: a\r\n", code: 400, reason: "target", verb: "other"},
		"identity header in Connection": {
			to: main, request: "GET /api/v1/pods HTTP/1.1\r\nHost: a\r\nConnection: authorization\r\n", code: 400,
			reason: "connection-header", verb: "list",
		},
		"malformed body": {
			to: main, request: "POST /api/v1/namespaces/a/pods HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n",
			body: "zz\r\n", code: 400, reason: "malformed", verb: "other",
		},
		"tunnel port: GET":               {to: connect, request: "GET /api HTTP/1.1\r\nHost: a\r\n", code: 400, reason: "no-connect", verb: "other"},
		"tunnel port: GET of a full URL": {to: connect, request: "GET http://a/x HTTP/1.1\r\nHost: a\r\n", code: 400, reason: "no-connect", verb: "other"},
		"tunnel port: CONNECT elsewhere": {to: connect, request: "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n", code: 403, reason: "connect", verb: "other"},
		"tunnel port: CONNECT with a body": {
			to: connect, request: "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nContent-Length: 1\r\n", body: "0", code: 400,
			reason: "connect", verb: "other",
		},
	} {
		res, _, _ := proxytest.SendRaw(t, tt.to, tt.request+"\r\n"+tt.body)
		refused(name, res, tt.code, tt.reason, tt.verb)
	}

	serving.Wait()
	got := proxytest.Gather(t, metrics)
	var want []string
	for series, n := range counted {
		want = append(want, fmt.Sprint(series, " ", n))
	}
	slices.Sort(want)
	expect.Same(t, want, proxytest.Series(got["listproxy_requests_total"]))
	expect.Same(t, []string(nil), proxytest.Series(got["listproxy_upstream_requests_total"]))
	expect.Same(t, []string{fmt.Sprintf("decision=refuse,resource=other %d", sent)}, proxytest.Series(got["listproxy_response_body_bytes_total"]))
	var access []string
	for line := range strings.Lines(lines.String()) {
		var entry map[string]any
		if json.Unmarshal([]byte(line), &entry) != nil || entry["msg"] != "request" {
			continue
		}
		access = append(access, fmt.Sprintf("%s %v", entry["refused"], entry["code"]))
		if entry["cacheStatus"] != nil {
			t.Errorf("the access line is %s", line)
		}
	}
	slices.Sort(access)
	slices.Sort(logged)
	expect.Same(t, logged, access)
}
