package forward

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/proxy/authn"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

func TestTargetIsForwardedByteForByte(t *testing.T) {
	targets := []string{
		"/", "/?", "/x?", "/x??", "/x?&&", "//", "//double//slashes/", "/api/v1//x/%2f?a;b&c=%zz", "/%41%2F%2f?%41",
		"/a/../b/./c", "/a%20b+c?d+e%20f", "/ns/name:x@y,z=(1)!*'", "/%C3%BC?%C3%BC", "/x?https://y/?z",
		"/api/v1/namespaces/a/pods/b/exec?command=sh&command=-c&command=echo%20%24%28id%29&stdin=true",
		"/api/v1/pods?limit=5&limit=6&resourceVersion=&labelSelector=a%3Db%2Cc",
	}
	seen := func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.RequestURI) }
	overAllProtocols(t, seen, func(t *testing.T, front *httptest.Server) {
		for _, target := range targets {
			u, err := url.ParseRequestURI(target)
			expect.NoError(t, err)
			u.Scheme, u.Host = "https", front.Listener.Addr().String()
			res := proxytest.Do(t, front.Client(), (&http.Request{Method: http.MethodGet, URL: u, Header: http.Header{}}).WithContext(t.Context()))
			expect.Same(t, target, proxytest.ReadAll(t, res.Body))
		}
	})

	// What no Go client sends. Two slashes at the beginning and a byte that has
	// to be escaped can only be said with a whole URL.
	raw := map[string]string{"/a\"b<c>": "/a\"b<c>", "/\xfc?\xfc": "/\xfc?\xfc", "/x#y": "/x#y", "//a\"b?c": "https://HOST//a\"b?c"}
	for _, http2 := range []bool{false, true} {
		upstream := proxytest.StartUpstream(t, http2, seen)
		front := startProxy(t, newForwarder(t, upstream.Config()), false)
		for target, want := range raw {
			res, _, _ := proxytest.SendRaw(t, front, "GET "+target+" HTTP/1.1\r\nHost: x\r\n\r\n")
			want = strings.ReplaceAll(want, "HOST", upstream.Listener.Addr().String())
			if http2 {
				want = target
			}
			if got := proxytest.ReadAll(t, res.Body); got != want {
				t.Errorf("http2=%t: the upstream saw %q, want %q", http2, got, want)
			}
		}
	}
}

// TestSpaceInTarget: a target that HTTP/2 can have, and HTTP/1.1 cannot, is not cut in two.
func TestSpaceInTarget(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		upstream := proxytest.StartUpstream(t, http2, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.RequestURI) })
		forwarder := newForwarder(t, upstream.Config())
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.RequestURI = "/a HTTP/1.1?b c"
		w := httptest.NewRecorder()
		forwarder.ServeHTTP(w, r)
		if got, want := w.Body.String(), "/a%20HTTP/1.1?b%20c"; got != want {
			t.Errorf("http2=%t: the upstream saw %q, want %q", http2, got, want)
		}
	}
}

// TestImpersonatedUpgrades: a connection with the proxy's credentials is only upgraded to what
// Kubernetes speaks.
func TestImpersonatedUpgrades(t *testing.T) {
	came := 0
	forwarder, impersonated := impersonating(t, proxytest.StartUpstream(t, false, func(w http.ResponseWriter, _ *http.Request) {
		came++
		w.WriteHeader(http.StatusForbidden)
	}))
	for protocol, known := range map[string]bool{
		"websocket": true, "WebSocket": true, "SPDY/3.1": true, "h2c": false, "websocket, h2c": false,
	} {
		for _, id := range []authn.Identity{impersonated, forwarder.caller} {
			came = 0
			w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/exec", nil)
			r.Header = upgrade(protocol)
			forwarder.ServeAs(w, r, id, nil)
			refused := came == 0 && w.Code == http.StatusBadRequest
			if want := !known && id.Impersonated() != nil; refused != want {
				t.Errorf("%s, impersonated %t: refused %t (%d), want %t", protocol, id.Impersonated() != nil, refused, w.Code, want)
			}
		}
	}
}

// TestWritesAreSentOnce: a write whose connection ends before its answer is not sent again,
// whatever key it brings. The upstream gets that key.
func TestWritesAreSentOnce(t *testing.T) {
	keys := http.Header{"Idempotency-Key": {"k"}, "X-Idempotency-Key": {"l"}}
	for method, body := range map[string]string{http.MethodPost: "{}", http.MethodDelete: ""} {
		var writes []string
		upstream := proxytest.StartUpstream(t, false, func(_ http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			writes = append(writes, r.Header.Get("Idempotency-Key")+r.Header.Get("X-Idempotency-Key"))
			panic(http.ErrAbortHandler)
		})
		forwarder := newForwarder(t, upstream.Config())
		// The connection is used before: net/http sends again only then.
		forwarder.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api", nil))
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), method, "/api/v1/namespaces/a/pods", strings.NewReader(body))
		r.Header = keys.Clone()
		forwarder.ServeHTTP(w, r)
		if len(writes) != 1 || writes[0] != "kl" || w.Code != http.StatusServiceUnavailable {
			t.Errorf("%s: the upstream saw %q, status %d", method, writes, w.Code)
		}
	}
}
