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

	"github.com/listproxy/listproxy/proxy/auth"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestUnanswered: where the API server gives no answer, clients hear whether they may repeat what they
// have sent (Retry-After): whenever it was not carried out, and always if it only reads. The API server
// hears of it again if it has not looked at it, or if it only reads.
func TestUnanswered(t *testing.T) {
	const (
		untouched = "Nothing was carried out"
		maybe     = "may or may not have been carried out"
		noAnswer  = "listproxy got no answer"
		tooMany   = "Too many requests"
	)
	for name, test := range map[string]struct {
		method  string
		header  http.Header
		body    int
		chunked bool  // nothing says how long the body is
		unkept  bool  // there is no room for the body
		down    bool  // the upstream is not reached
		closing int32 // that many connections close (GOAWAY) when a part of the body has come
		dies    int32 // that many times the connection ends when the request has come

		code  int
		again bool
		says  string
		heard int32 // how often the upstream has heard of it
	}{
		"down, a write":           {method: "POST", body: 2, down: true, code: 503, again: true, says: untouched},
		"down, a read":            {method: "GET", down: true, code: 503, again: true, says: untouched},
		"down, an upgrade":        {method: "POST", header: upgrade("SPDY/3.1"), down: true, code: 503, again: true, says: untouched},
		"a read dies once":        {method: "GET", dies: 1, code: 200, heard: 2},
		"a HEAD dies once":        {method: "HEAD", dies: 1, code: 200, heard: 2},
		"a read dies twice":       {method: "GET", dies: 2, code: 503, again: true, says: noAnswer, heard: 2},
		"a POST dies":             {method: "POST", body: 2, dies: 1, code: 503, says: maybe, heard: 1},
		"a PUT dies":              {method: "PUT", body: 2, dies: 1, code: 503, says: maybe, heard: 1},
		"a DELETE dies":           {method: "DELETE", dies: 1, code: 503, says: maybe, heard: 1},
		"an exec dies":            {method: "GET", header: upgrade("websocket"), dies: 1, code: 503, says: maybe, heard: 1},
		"a body is not looked at": {method: "PUT", body: maxKept, closing: 1, code: 200, heard: 1},
		"and was not kept":        {method: "PUT", body: 1 << 20, closing: 1, unkept: true, code: 429, again: true, says: tooMany},
		"and is too long":         {method: "PUT", body: maxKept + 1, closing: 1, code: 429, again: true, says: tooMany},
		"and may be too long":     {method: "PUT", body: 1, chunked: true, closing: 1, code: 429, again: true, says: tooMany},
		"and so each time":        {method: "PUT", body: 2, closing: 1000, code: 503, says: maybe},
	} {
		t.Run(name, func(t *testing.T) {
			sent := bytes.Repeat([]byte("x"), test.body)
			var heard atomic.Int32
			var taken atomic.Int64 // bytes that are kept
			api := proxytest.StartUpstream(t, true, func(_ http.ResponseWriter, r *http.Request) {
				if heard.Add(1) <= test.dies {
					panic(http.ErrAbortHandler)
				}
				if got, err := io.ReadAll(r.Body); !bytes.Equal(got, sent) || err != nil {
					t.Errorf("%d bytes of the body, %v", len(got), err)
				}
			})
			config, closing := api.Config(), closesAtFirstData(t, api.TLS.Certificates)
			var dialed atomic.Int32
			config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				switch n := dialed.Add(1); {
				case test.down:
					return nil, errors.New("connect to https://u:hunter2@inner: refused")
				case n <= test.closing:
					address = closing
				}
				return (&net.Dialer{}).DialContext(ctx, network, address)
			}
			var records proxytest.Recorder
			k := newLoggedForwarder(t, config, slog.New(&records))
			front := startProxy(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Cache-Status", "listproxy; fwd=bypass; detail=not-list")
				k.ServeAs(w, r, k.caller, func(bytes int64) (func(), bool) {
					expect.Same(t, int64(test.body), taken.Add(bytes))
					return func() { taken.Add(-bytes) }, !test.unkept
				})
				if n := taken.Load(); n != 0 && !test.unkept {
					t.Errorf("%d bytes are not given back", n)
				}
			}), false)
			r := httptest.NewRequestWithContext(t.Context(), test.method, front.URL+"/api/v1/namespaces/a/pods/b", bytes.NewReader(sent))
			maps.Copy(r.Header, test.header)
			if test.chunked {
				r.ContentLength = -1
			}
			res := proxytest.Do(t, front.Client(), r)
			body := proxytest.ReadAll(t, res.Body)
			if res.StatusCode != test.code || (res.Header.Get("Retry-After") == "1") != test.again || heard.Load() != test.heard {
				t.Errorf("%s, Retry-After %q, heard %d times: %s", res.Status, res.Header.Get("Retry-After"), heard.Load(), body)
			}
			if n := dialed.Load(); n > 2*maxAttempts { // net/http also dials where it then takes another connection
				t.Errorf("%d connections were opened for it", n)
			}
			if test.code == http.StatusOK {
				return
			}
			var got metav1.Status
			if err := json.Unmarshal([]byte(body), &got); err != nil {
				t.Fatalf("%v in %q", err, body)
			}
			if got.Code != int32(test.code) || !strings.Contains(got.Message, test.says) || strings.Contains(body, "hunter2") {
				t.Errorf("it is not told %q: %s", test.says, body)
			}
			expect.Same(t, "listproxy; fwd=bypass; detail=not-list", res.Header.Get("Cache-Status"))
			if got := records.Above(slog.LevelInfo); len(got) != 1 {
				t.Errorf("logged %q, want one warning", got)
			}
		})
	}
}

// closesAtFirstData speaks HTTP/2 on each connection until a part of a body comes. Then it says that it has
// looked at no request, and at none that comes.
func closesAtFirstData(t *testing.T, certificates []tls.Certificate) (address string) {
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

// TestUnauthorized: a 401 about listproxy's own credentials is not told to those whom it impersonates, as if
// it were theirs; a caller with a token gets the answer as it is. What a Service or an API server behind
// kube-apiserver answers says nothing of any credentials.
func TestUnauthorized(t *testing.T) {
	api := proxytest.StartUpstream(t, true, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/apis/metrics.k8s.io/") { // kube-apiserver knows the caller, and has asked another
			w.Header().Set("X-Kubernetes-Pf-Flowschema-Uid", "2")
		}
		w.WriteHeader(http.StatusUnauthorized)
	})
	for target, want := range map[string]struct {
		wantForToken, wantForCertificate int // the answer's code
		wantVerdict                      auth.Verdict
	}{
		"/api": {wantForToken: 401, wantForCertificate: 503, wantVerdict: auth.Refused},
		"/api/v1/namespaces/a/services/grafana:80/proxy/login": {
			wantForToken: 401, wantForCertificate: 401, wantVerdict: auth.Accepted,
		},
		"/api/v1/proxy/namespaces/a/pods/b/login": {
			wantForToken: 401, wantForCertificate: 401, wantVerdict: auth.Accepted,
		},
		"/apis/metrics.k8s.io/v1beta1/pods": {wantForToken: 401, wantForCertificate: 401, wantVerdict: auth.Accepted},
	} {
		f, own := newForwarder(t, api.Config()), api.Config()
		own.BearerToken = "listproxy"
		expect.NoError(t, f.up.Impersonate(own))
		for who, code := range map[*auth.Identity]int{&f.caller: want.wantForToken, new(proxytest.Jane(auth.NewAuthenticator(nil))): want.wantForCertificate} {
			w := httptest.NewRecorder()
			f.ServeAs(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, target, strings.NewReader("user=x")), *who, nil)
			own, again := strings.Contains(w.Body.String(), "own account (401)"), w.Header().Get("Retry-After") != ""
			if w.Code != code || own != (code == 503) || again != own {
				t.Errorf("%s, impersonated %t: %d %v %s", target, who.VerifiedUser() != nil, w.Code, w.Header(), w.Body)
			}
		}
		if verdict, _ := f.up.VerdictOn(f.caller, "192.0.2.1:1"); verdict != want.wantVerdict {
			t.Errorf("%s: the token is %v", target, verdict)
		}
	}
}

// TestTooManyIsTheUpstreams: a caller whom kube-apiserver turns away hears it as kube-apiserver said it, and
// is not asked for again in its place.
func TestTooManyIsTheUpstreams(t *testing.T) {
	const says = "Too many requests, please try again later.\n"
	heard := 0
	k := newForwarder(t, proxytest.StartUpstream(t, true, func(w http.ResponseWriter, _ *http.Request) {
		heard++
		w.Header().Set("Retry-After", "7")
		http.Error(w, strings.TrimSpace(says), http.StatusTooManyRequests)
	}).Config())
	for _, method := range []string{"GET", "POST", "PATCH", "DELETE"} {
		heard = 0
		w := httptest.NewRecorder()
		k.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "/api/v1/namespaces/a/pods/b", nil))
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "7" || w.Body.String() != says || heard != 1 {
			t.Errorf("%s: %d, %v, heard %d times: %s", method, w.Code, w.Header(), heard, w.Body)
		}
	}
}

// TestWritesAreSentOnce: a write whose connection ends before its answer is not sent again,
// whatever key it brings. The upstream gets that key.
func TestWritesAreSentOnce(t *testing.T) {
	var writes []string
	forwarder := newForwarder(t, proxytest.StartUpstream(t, false, func(_ http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			writes = append(writes, r.Header.Get("Idempotency-Key")+r.Header.Get("X-Idempotency-Key"))
			panic(http.ErrAbortHandler)
		}
	}).Config())
	// The connection is used before: net/http sends again only then.
	forwarder.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api", nil))
	w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/namespaces/a/pods", strings.NewReader("{}"))
	r.Header = http.Header{"Idempotency-Key": {"k"}, "X-Idempotency-Key": {"l"}}
	forwarder.ServeHTTP(w, r)
	if len(writes) != 1 || writes[0] != "kl" || w.Code != http.StatusServiceUnavailable {
		t.Errorf("the upstream saw %q, status %d", writes, w.Code)
	}
}
