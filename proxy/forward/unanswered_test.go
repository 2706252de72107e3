package forward

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	h2 "golang.org/x/net/http2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/proxy/auth"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// unansweredCase is a request to which kube-apiserver gives no answer at first.
type unansweredCase struct {
	method     string
	header     http.Header
	bodyLength int
	chunked    bool // the body has no Content-Length
	noRoom     bool // listproxy has no room to keep the body

	// What the upstream does, before it answers with 200.
	down    bool  // no connection can be opened
	goAways int32 // it ends this many connections with a GOAWAY, after a part of the body
	aborts  int32 // it reads this many requests, and breaks them off without an answer

	wantCode       int
	wantRetryAfter string
	wantMessage    string // a part of the Status's message
	wantRequests   int32  // the number of requests that the upstream reads, without those that end with a GOAWAY
}

const (
	nothingDone = "Nothing was carried out"
	maybeDone   = "may or may not have been carried out"
	noAnswer    = "listproxy got no answer"
	tooMany     = "Too many requests"
	secret      = "hunter2" // in the error of a dial; no client may see it
)

// TestUnanswered: a request without an answer is sent again in two cases: it only reads, or a GOAWAY says that kube-apiserver
// has not looked at it. If the request cannot be sent again, or there still is no answer, the client gets an error:
//
//   - A 429 after a GOAWAY if listproxy has not kept the body: it is longer than 3 MiB (maxKept), or of unknown length, or
//     there was no room for it.
//   - A 503 in all other cases.
//
// The error has Retry-After if it is certain that no write was carried out. Its message has no secrets. A warning is logged.
func TestUnanswered(t *testing.T) {
	for name, tt := range map[string]unansweredCase{
		"down, a POST": {
			method: "POST", bodyLength: 2, down: true, wantCode: 503, wantRetryAfter: "1", wantMessage: nothingDone,
		},
		"down, an upgrade": {
			method: "POST", header: upgradeHeader("SPDY/3.1"), down: true, wantCode: 503, wantRetryAfter: "1", wantMessage: nothingDone,
		},
		"aborted once, a GET":  {method: "GET", aborts: 1, wantCode: 200, wantRequests: 2},
		"aborted once, a HEAD": {method: "HEAD", aborts: 1, wantCode: 200, wantRequests: 2},
		"aborted twice, a GET": {
			method: "GET", aborts: 2, wantCode: 503, wantRetryAfter: "1", wantMessage: noAnswer, wantRequests: 2,
		},
		"aborted once, a POST":   {method: "POST", bodyLength: 2, aborts: 1, wantCode: 503, wantMessage: maybeDone, wantRequests: 1},
		"aborted once, a DELETE": {method: "DELETE", aborts: 1, wantCode: 503, wantMessage: maybeDone, wantRequests: 1},
		"aborted once, an exec": {
			method: "GET", header: upgradeHeader("websocket"), aborts: 1, wantCode: 503, wantMessage: maybeDone, wantRequests: 1,
		},
		"GOAWAY before a body was read": {method: "PUT", bodyLength: maxKept, goAways: 1, wantCode: 200, wantRequests: 1},
		"GOAWAY, and no room to keep the body": {
			method: "PUT", bodyLength: 1 << 20, goAways: 1, noRoom: true, wantCode: 429, wantRetryAfter: "1", wantMessage: tooMany,
		},
		"GOAWAY, and the body is too long to keep": {
			method: "PUT", bodyLength: maxKept + 1, goAways: 1, wantCode: 429, wantRetryAfter: "1", wantMessage: tooMany,
		},
		"GOAWAY, and a body of unknown length": {
			method: "PUT", bodyLength: 1, chunked: true, goAways: 1, wantCode: 429, wantRetryAfter: "1", wantMessage: tooMany,
		},
		// The attempt after the last allowed one is broken off, and may have arrived.
		"GOAWAY each time": {method: "PUT", bodyLength: 2, goAways: 1000, wantCode: 503, wantMessage: maybeDone},
	} {
		t.Run(name, tt.test)
	}
}

// test sends the request of the case through a forwarder, and checks the answer.
func (tt unansweredCase) test(t *testing.T) {
	const cacheStatus = "listproxy; fwd=bypass; detail=not-list"
	sent := bytes.Repeat([]byte("x"), tt.bodyLength)
	upstream := tt.startFlakyUpstream(t, sent)
	var records proxytest.Recorder
	forwarder := newLoggedForwarder(t, upstream.config, slog.New(&records))
	var keptBytes atomic.Int64
	reserve := func(length int64) (release func(), ok bool) {
		expect.Same(t, int64(tt.bodyLength), keptBytes.Add(length))
		return func() { keptBytes.Add(-length) }, !tt.noRoom
	}
	front := startProxy(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Status", cacheStatus)
		forwarder.ServeAs(w, r, forwarder.caller, reserve)
		if n := keptBytes.Load(); n != 0 && !tt.noRoom {
			t.Errorf("%d bytes are still kept", n)
		}
	}), proxytest.HTTP1)
	r, err := http.NewRequestWithContext(t.Context(), tt.method, front.URL+"/api/v1/namespaces/a/pods/b", bytes.NewReader(sent))
	expect.NoError(t, err)
	maps.Copy(r.Header, tt.header)
	if tt.chunked {
		r.ContentLength = -1
	}
	res := proxytest.Do(t, front.Client(), r)
	body := proxytest.ReadAll(t, res.Body)
	expect.Same(t, tt.wantCode, res.StatusCode)
	expect.Same(t, tt.wantRetryAfter, res.Header.Get("Retry-After"))
	expect.Same(t, tt.wantRequests, upstream.requests.Load())
	// There are at most eight attempts (maxAttempts). There may be more dials: net/http also dials for a request that then
	// takes another connection.
	if n := upstream.dials.Load(); n > 2*maxAttempts {
		t.Errorf("the request opened %d connections, want at most %d", n, 2*maxAttempts)
	}
	if tt.wantCode == http.StatusOK {
		return
	}
	var got metav1.Status
	expect.NoError(t, json.Unmarshal([]byte(body), &got))
	expect.Same(t, int32(tt.wantCode), got.Code)
	expect.Says(t, got.Message, tt.wantMessage)
	proxytest.AssertNotContains(t, body, secret)
	expect.Same(t, cacheStatus, res.Header.Get("Cache-Status"))
	if warnings := records.Above(slog.LevelInfo); len(warnings) != 1 {
		t.Errorf("logged %q, want one warning", warnings)
	}
}

// flakyUpstream is an API server that fails as its unansweredCase says.
type flakyUpstream struct {
	config   *rest.Config
	requests atomic.Int32 // the number of requests that arrived
	dials    atomic.Int32 // the number of connections
}

// startFlakyUpstream starts the case's upstream, which requires wantBody of each request that it answers.
func (tt unansweredCase) startFlakyUpstream(t *testing.T, wantBody []byte) *flakyUpstream {
	t.Helper()
	f := new(flakyUpstream)
	api := proxytest.StartUpstream(t, proxytest.HTTP2, func(_ http.ResponseWriter, r *http.Request) {
		if f.requests.Add(1) <= tt.aborts {
			panic(http.ErrAbortHandler)
		}
		if got, err := io.ReadAll(r.Body); !bytes.Equal(got, wantBody) || err != nil {
			t.Errorf("the upstream read %d bytes of the body and the error %v, want all %d", len(got), err, len(wantBody))
		}
	})
	goAwayAddress := startGoAways(t, api.TLS.Certificates)
	f.config = api.Config()
	f.config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		n := f.dials.Add(1)
		if tt.down {
			return nil, errors.New("connect to https://u:" + secret + "@inner: refused")
		}
		if n <= tt.goAways {
			address = goAwayAddress
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	return f
}

// startGoAways starts a server that ends each HTTP/2 connection with a GOAWAY when a part of a body comes. The GOAWAY says that
// the server has looked at no request.
func startGoAways(t *testing.T, certificates []tls.Certificate) (address string) {
	t.Helper()
	serve := func(_ *http.Server, conn *tls.Conn, _ http.Handler) {
		if _, err := io.ReadFull(conn, make([]byte, len(h2.ClientPreface))); err != nil {
			return
		}
		framer := h2.NewFramer(conn, conn)
		_ = framer.WriteSettings()
		for {
			frame, err := framer.ReadFrame()
			if err != nil {
				return
			}
			if _, ok := frame.(*h2.DataFrame); ok {
				_ = framer.WriteGoAway(0, h2.ErrCodeNo, nil)
			}
		}
	}
	server := httptest.NewUnstartedServer(nil)
	server.TLS = &tls.Config{Certificates: certificates, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}
	server.Config.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){"h2": serve}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// TestUnauthorized: a 401 about listproxy's own credentials becomes a 503 for a caller whom it impersonates. A caller with a
// token gets kube-apiserver's 401, and is refused from then on. A 401 of a Service, or of an aggregated API server, says
// nothing about the caller's credentials.
func TestUnauthorized(t *testing.T) {
	const aggregated = "/apis/metrics.k8s.io/v1beta1/pods"
	api := proxytest.StartUpstream(t, proxytest.HTTP2, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == aggregated {
			// kube-apiserver has accepted the caller, and has passed the request on.
			w.Header().Set("X-Kubernetes-Pf-Flowschema-Uid", "2")
		}
		w.WriteHeader(http.StatusUnauthorized)
	})
	for name, tt := range map[string]struct {
		target             string
		wantCodeWithToken  int          // for a caller with a token
		wantCodeOfVerified int          // for a caller whom listproxy impersonates
		wantVerdict        auth.Verdict // on the token
	}{
		"kube-apiserver": {
			target: "/api", wantCodeWithToken: 401, wantCodeOfVerified: 503, wantVerdict: auth.Refused,
		},
		"a Service": {
			target:            "/api/v1/namespaces/a/services/grafana:80/proxy/login",
			wantCodeWithToken: 401, wantCodeOfVerified: 401, wantVerdict: auth.Accepted,
		},
		"a pod, by the old path": {
			target:            "/api/v1/proxy/namespaces/a/pods/b/login",
			wantCodeWithToken: 401, wantCodeOfVerified: 401, wantVerdict: auth.Accepted,
		},
		"an aggregated API server": {
			target: aggregated, wantCodeWithToken: 401, wantCodeOfVerified: 401, wantVerdict: auth.Accepted,
		},
	} {
		t.Run(name, func(t *testing.T) {
			ownAccount := api.Config()
			ownAccount.BearerToken = "listproxy"
			f := newForwarder(t, ownAccount)
			forwardAs := func(id auth.Identity) *httptest.ResponseRecorder {
				w := httptest.NewRecorder()
				f.ServeAs(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, tt.target, strings.NewReader("user=x")), id, nil)
				return w
			}
			withToken := forwardAs(f.caller)
			expect.Same(t, tt.wantCodeWithToken, withToken.Code)
			expect.Same(t, "", withToken.Header().Get("Retry-After"))
			verified := forwardAs(proxytest.Jane(auth.NewAuthenticator(nil)))
			expect.Same(t, tt.wantCodeOfVerified, verified.Code)
			if tt.wantCodeOfVerified == http.StatusServiceUnavailable {
				expect.Same(t, "1", verified.Header().Get("Retry-After"))
				expect.Says(t, verified.Body.String(), "own account (401)")
			}
			verdict, _ := f.up.VerdictOn(f.caller, "192.0.2.1:1")
			expect.Same(t, tt.wantVerdict, verdict)
		})
	}
}

// TestTooManyRequestsPasses: a 429 of kube-apiserver reaches the caller as it is, and the request is not sent again.
func TestTooManyRequestsPasses(t *testing.T) {
	const wantBody, wantRetryAfter = "Too many requests, please try again later.\n", "7"
	requests := 0 // that the upstream gets
	forwarder := newForwarder(t, proxytest.StartUpstream(t, proxytest.HTTP2, func(w http.ResponseWriter, _ *http.Request) {
		requests++
		w.Header().Set("Retry-After", wantRetryAfter)
		http.Error(w, strings.TrimSpace(wantBody), http.StatusTooManyRequests)
	}).Config())
	w := httptest.NewRecorder()
	forwarder.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/namespaces/a/pods/b", nil))
	expect.Same(t, http.StatusTooManyRequests, w.Code)
	expect.Same(t, wantRetryAfter, w.Header().Get("Retry-After"))
	expect.Same(t, wantBody, w.Body.String())
	expect.Same(t, 1, requests)
}

// TestWritesAreSentOnce: a write whose connection ends before the answer is not repeated, even with an Idempotency-Key, for
// which net/http would repeat it over HTTP/1.1. The upstream still gets the key.
func TestWritesAreSentOnce(t *testing.T) {
	var keys []string // of each write
	forwarder := newForwarder(t, proxytest.StartUpstream(t, proxytest.HTTP1, func(_ http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			keys = append(keys, r.Header.Get("Idempotency-Key")+" "+r.Header.Get("X-Idempotency-Key"))
			panic(http.ErrAbortHandler)
		}
	}).Config())
	// net/http repeats a request only on a connection that was used before.
	forwarder.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api", nil))
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/namespaces/a/pods", strings.NewReader("{}"))
	r.Header = http.Header{"Idempotency-Key": {"k"}, "X-Idempotency-Key": {"l"}}
	forwarder.ServeHTTP(w, r)
	expect.Same(t, []string{"k l"}, keys)
	expect.Same(t, http.StatusServiceUnavailable, w.Code)
}
