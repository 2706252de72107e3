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

// refusingProxy is a listproxy with two ports: the main port for requests, and the tunnel port for CONNECT. A test reads its
// metrics and its log.
type refusingProxy struct {
	mainPort, tunnelPort *httptest.Server
	metrics              prometheus.Gatherer
	log                  *logbuffer.Buffer
	running              sync.WaitGroup // the running handlers; a request is counted and logged after its answer
}

// startRefusingProxy starts both ports. The main port forwards every request that it does not refuse.
func startRefusingProxy(t *testing.T) *refusingProxy {
	t.Helper()
	buffer := &logbuffer.Buffer{}
	log := telemetry.NewLogger(buffer, telemetry.FormatJSON, telemetry.LevelAccess)
	observer, metrics := observetest.New(nil)
	targets, err := serve.NewTargets(&url.URL{Host: "api.example:6443"}, nil)
	expect.NoError(t, err)
	tunnels := serve.NewTunnels(targets, &tls.Config{MinVersion: tls.VersionTLS12})
	mainHandler := observer.Observe(serve.OnlyPaths(forwardAll(t)), log)

	p := &refusingProxy{metrics: metrics, log: buffer}
	p.mainPort = p.start(t, serve.New(mainHandler, nil, proxytest.DiscardLog()))
	p.tunnelPort = p.start(t, serve.NewConnectServer(tunnels, nil, observer, log))
	return p
}

// forwardAll returns a handler that forwards each request to an API server that answers all with nothing. It records what
// Handler.respond records.
func forwardAll(t *testing.T) http.HandlerFunc {
	t.Helper()
	api := proxytest.StartUpstream(t, proxytest.HTTP2, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	up, err := upstream.New(api.Config(), false)
	expect.NoError(t, err)
	forwarder := forward.New(up, proxytest.DiscardLog())
	caller := proxytest.Identify(auth.NewAuthenticator(nil), "Bearer known")
	return func(w http.ResponseWriter, r *http.Request) {
		observe.RecordOf(r.Context()).SetDecision(&policy.Request{}, "", reason.NotList)
		w.Header().Set(kubehttp.CacheStatusHeader, kubehttp.CacheForwarded(reason.NotList))
		forwarder.ServeAs(w, r, caller, nil)
	}
}

// start starts a server. p.running.Wait waits for its running handlers.
func (p *refusingProxy) start(t *testing.T, server *http.Server) *httptest.Server {
	t.Helper()
	handler := server.Handler
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.running.Add(1)
		defer p.running.Done()
		handler.ServeHTTP(w, r)
	})
	return proxytest.Serve(t, server, proxytest.HTTP1)
}

// accessLine returns the only line of the access log.
func (p *refusingProxy) accessLine(t *testing.T) map[string]any {
	t.Helper()
	var lines []map[string]any
	for text := range strings.Lines(p.log.String()) {
		var line map[string]any
		expect.NoError(t, json.Unmarshal([]byte(text), &line))
		if line["msg"] == "request" {
			lines = append(lines, line)
		}
	}
	if len(lines) != 1 {
		t.Fatalf("got the access log %v, want one line", lines)
	}
	return lines[0]
}

// TestRefusalsAreSeen: every request that listproxy refuses before it decides who answers is counted in the metrics, and logged
// in the access log, with its reason. Its answer has no Cache-Status, since neither memory nor the upstream was asked.
func TestRefusalsAreSeen(t *testing.T) {
	for name, tt := range map[string]struct {
		tunnelPort bool   // the request comes to the tunnel port
		request    string // the request line, and the header apart from Host
		body       string
		wantCode   int
		wantReason string // in the metrics, and in the access log
		wantVerb   string // in the metrics; "": other
	}{
		"CONNECT":  {request: "CONNECT a:1 HTTP/1.1\r\n", wantCode: 405, wantReason: "connect"},
		"full URL": {request: "GET http://a/x HTTP/1.1\r\n", wantCode: 400, wantReason: "target"},
		"asterisk": {request: "GET * HTTP/1.1\r\n", wantCode: 400, wantReason: "target"},
		"identity header in Connection": {
			request:  "GET /api/v1/pods HTTP/1.1\r\nConnection: authorization\r\n",
			wantCode: 400, wantReason: "connection-header", wantVerb: "list",
		},
		"malformed body": {
			request: "POST /api/v1/namespaces/a/pods HTTP/1.1\r\nTransfer-Encoding: chunked\r\n", body: "zz\r\n",
			wantCode: 400, wantReason: "malformed",
		},
		"tunnel port: GET":               {tunnelPort: true, request: "GET /api HTTP/1.1\r\n", wantCode: 400, wantReason: "no-connect"},
		"tunnel port: GET of a full URL": {tunnelPort: true, request: "GET http://a/x HTTP/1.1\r\n", wantCode: 400, wantReason: "no-connect"},
		"tunnel port: CONNECT elsewhere": {tunnelPort: true, request: "CONNECT a:1 HTTP/1.1\r\n", wantCode: 403, wantReason: "connect"},
		"tunnel port: CONNECT with a body": {
			tunnelPort: true, request: "CONNECT a:1 HTTP/1.1\r\nContent-Length: 1\r\n", body: "0",
			wantCode: 400, wantReason: "connect",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := startRefusingProxy(t)
			server := p.mainPort
			if tt.tunnelPort {
				server = p.tunnelPort
			}
			res, _, _ := proxytest.SendRaw(t, server, tt.request+"Host: a\r\n\r\n"+tt.body)
			answer := proxytest.ReadAll(t, res.Body)
			p.running.Wait()
			expect.Same(t, tt.wantCode, res.StatusCode)
			expect.Same(t, "", res.Header.Get("Cache-Status"))

			line := p.accessLine(t)
			expect.Same(t, any(tt.wantReason), line["refused"])
			expect.Same(t, any(float64(tt.wantCode)), line["code"])
			expect.Same(t, nil, line["cacheStatus"])

			got := proxytest.Gather(t, p.metrics)
			for metric, want := range map[string][]string{
				"listproxy_requests_total": {fmt.Sprintf("code=%d,decision=refuse,reason=%s,resource=other,semantics=none,verb=%s 1",
					tt.wantCode, tt.wantReason, cmp.Or(tt.wantVerb, "other"))},
				"listproxy_response_body_bytes_total": {fmt.Sprintf("decision=refuse,resource=other %d", len(answer))},
				"listproxy_upstream_requests_total":   nil,
			} {
				expect.Same(t, want, proxytest.Series(got[metric]))
			}
		})
	}
}
