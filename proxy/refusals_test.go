package proxy

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/authn"
	"github.com/listproxy/listproxy/proxy/forward"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/proxy/serve"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/telemetry"
	"github.com/listproxy/listproxy/test/authntest"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/logbuffer"
	"github.com/listproxy/listproxy/test/observetest"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestRefusalsAreSeen: whatever listproxy refuses for itself is counted, has its line in the access
// log, and no Cache-Status, since it was neither in the cache nor asked of the upstream.
func TestRefusalsAreSeen(t *testing.T) {
	api := proxytest.StartUpstream(t, true, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	targets := tunnelTargets(t)
	for _, tt := range []struct {
		name, request, reason string
		code                  int
		connect               bool   // at the port for CONNECT
		verb                  string // other if it is empty
	}{
		{name: "a CONNECT", request: "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n", reason: "connect", code: 405},
		{name: "a whole URL", request: "GET http://a/x HTTP/1.1\r\nHost: a\r\n", reason: "target", code: 400},
		{name: "an asterisk", request: "GET * HTTP/1.1\r\nHost: a\r\n", reason: "target", code: 400},
		{name: "a Connection", request: "GET /api/v1/pods HTTP/1.1\r\nHost: a\r\nConnection: authorization\r\n", reason: "connection-header", code: 400, verb: "list"},
		{name: "a broken body", request: "POST /api/v1/namespaces/a/pods HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nX-Broken: yes\r\n", reason: "malformed", code: 400},
		{name: "no CONNECT", request: "GET /api HTTP/1.1\r\nHost: a\r\n", reason: "no-connect", code: 400, connect: true},
		{name: "no CONNECT, a whole URL", request: "GET http://a/x HTTP/1.1\r\nHost: a\r\n", reason: "no-connect", code: 400, connect: true},
		{name: "a CONNECT elsewhere", request: "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n", reason: "connect", code: 403, connect: true},
		{name: "a CONNECT with a body", request: "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nContent-Length: 1\r\n", reason: "connect", code: 400, connect: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o, metrics := observetest.New(nil)
			lines := &logbuffer.Buffer{}
			log := telemetry.NewLogger(lines, telemetry.FormatJSON, telemetry.LevelAccess)
			caller := authntest.Identify(authntest.New(t), "Bearer known")
			up, err := upstream.New(api.Config())
			expect.NoError(t, err)
			forwarder := forward.New(up, proxytest.DiscardLog())
			// As Handler.respond, for what is forwarded.
			handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				record := observe.RecordOf(r.Context())
				record.Decided(policy.Request{}, "", reason.NotList)
				w.Header().Set(kubehttp.CacheStatusHeader, kubehttp.CacheForwarded(reason.NotList))
				forwarder.ServeAs(w, r, caller, nil)
			})
			front := httptest.NewUnstartedServer(nil)
			front.Config = serve.New(o.Observe(serve.OnlyPaths(handler), log), nil, slog.New(slog.DiscardHandler))
			if tt.connect {
				front.Config = serve.NewConnect(serve.NewTunnels(targets, &tls.Config{MinVersion: tls.VersionTLS12}), nil, o, log)
			}
			observed, served := front.Config.Handler, make(chan struct{})
			front.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(served)
				observed.ServeHTTP(w, r)
			})
			front.StartTLS()
			defer front.Close()
			request := tt.request + "\r\n"
			switch {
			case strings.Contains(tt.request, "X-Broken"):
				request += "zz\r\n"
			case strings.Contains(tt.request, "chunked"):
				request += "b\r\n01234567890\r\n0\r\n\r\n"
			case strings.Contains(tt.request, "Content-Length"):
				request += "01234567890"
			}
			res, _, _ := proxytest.SendRaw(t, front, request)
			if res.StatusCode != tt.code || res.Header.Get("Cache-Status") != "" {
				t.Errorf("%s, Cache-Status %q", res.Status, res.Header.Get("Cache-Status"))
			}
			body := proxytest.ReadAll(t, res.Body)
			<-served
			got := proxytest.Gather(t, metrics)
			want := []string{fmt.Sprintf("code=%d,decision=refuse,reason=%s,resource=other,semantics=none,verb=%s 1", tt.code, tt.reason, cmp.Or(tt.verb, "other"))}
			if diff := gocmp.Diff(want, proxytest.Series(got["listproxy_requests_total"])); diff != "" {
				t.Errorf("counted (-want +got):\n%s", diff)
			}
			expect.Same(t, []string(nil), proxytest.Series(got["listproxy_upstream_requests_total"]))
			if sent := proxytest.Series(got["listproxy_response_body_bytes_total"]); !slices.Equal(sent, []string{fmt.Sprintf("decision=refuse,resource=other %d", len(body))}) {
				t.Errorf("%d bytes are counted as %v", len(body), sent)
			}
			if !slices.Contains(RefusalReasons(), tt.reason) {
				t.Errorf("%s is not one of RefusalReasons", tt.reason)
			}
			access := 0
			for line := range strings.Lines(lines.String()) {
				var entry map[string]any
				if json.Unmarshal([]byte(line), &entry) != nil || entry["msg"] != "request" {
					continue
				}
				access++
				if entry["refused"] != tt.reason || entry["code"] != float64(tt.code) || entry["cacheStatus"] != nil {
					t.Errorf("the access line is %s", line)
				}
			}
			if access != 1 {
				t.Errorf("%d access lines", access)
			}
		})
	}
}

// TestMisdirectedIsSeen by the way of a tunnel.
func TestMisdirectedIsSeen(t *testing.T) {
	o, metrics := observetest.New(nil)
	log := slog.New(slog.DiscardHandler)
	front := o.Observe(serve.OnlyPaths(http.NotFoundHandler()), log)
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
	r.Host = "elsewhere.example"
	ctx := kubehttp.WithTunnel(t.Context(), tunnelTargets(t).AllowHost)
	w := httptest.NewRecorder()
	front.ServeHTTP(w, r.WithContext(ctx))
	want := []string{"code=421,decision=refuse,reason=misdirected,resource=other,semantics=none,verb=list 1"}
	if diff := gocmp.Diff(want, proxytest.Series(proxytest.Gather(t, metrics)["listproxy_requests_total"])); diff != "" || w.Code != http.StatusMisdirectedRequest {
		t.Errorf("%d, counted (-want +got):\n%s", w.Code, diff)
	}
}

// tunnelTargets are what tunnels may lead to: one API server.
func tunnelTargets(t *testing.T) serve.Targets {
	t.Helper()
	targets, err := serve.NewTargets(&url.URL{Host: "api.example:6443"}, nil)
	expect.NoError(t, err)
	return targets
}

// TestAccessLineIsOptIn: at info requests have no line, and a refused one has its line at access.
func TestAccessLineIsOptIn(t *testing.T) {
	clients := proxytest.NewCA(t)
	identifier, err := authn.New(authn.Config{ClientCA: clients.Options})
	expect.NoError(t, err)
	certificate := clients.Issue(t, pkix.Name{CommonName: "alice"}, nil)
	for level, want := range map[slog.Level]int{slog.LevelInfo: 0, telemetry.LevelAccess: 1, slog.LevelDebug: 1} {
		var out bytes.Buffer
		h := &Handler{
			Authenticator: identifier, Log: telemetry.NewLogger(&out, telemetry.FormatText, level),
			Observer:    observetest.Unread(),
			Collections: &snapshot.Collections{}, Draining: func() bool { return false },
		}
		r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate}}
		r.Header.Set("Impersonate-User", "root") // beside a certificate: refused
		h.Chain().ServeHTTP(httptest.NewRecorder(), r)
		if got := strings.Count(out.String(), "level=ACCESS msg=request "); got != want {
			t.Errorf("at %v: %d lines: %s", level, got, &out)
		}
	}
}
