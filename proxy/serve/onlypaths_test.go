package serve

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

func TestProxyRequestsAreRefused(t *testing.T) {
	target, stop := proxytest.StartTarget(t)
	// Neither may the environment send listproxy anywhere.
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "https_proxy"} {
		t.Setenv(name, "http://"+target)
	}
	server := proxytest.Serve(t, New(OnlyPaths(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a proxy request came through")
	})), nil, slog.New(slog.DiscardHandler)), false)

	tests := map[string]struct {
		request string
		code    int
		reason  metav1.StatusReason
	}{
		"CONNECT":          {"CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n", 405, metav1.StatusReasonMethodNotAllowed},
		"CONNECT 1.0":      {"CONNECT " + target + " HTTP/1.0\r\n", 405, metav1.StatusReasonMethodNotAllowed},
		"CONNECT, a path":  {"CONNECT /api HTTP/1.1\r\nHost: x\r\n", 405, metav1.StatusReasonMethodNotAllowed},
		"whole URL":        {"GET http://" + target + "/x HTTP/1.1\r\nHost: " + target + "\r\n", 400, metav1.StatusReasonBadRequest},
		"whole https URL":  {"GET https://" + target + "/x HTTP/1.1\r\nHost: x\r\n", 400, metav1.StatusReasonBadRequest},
		"with a websocket": {"GET ws://" + target + "/x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n", 400, metav1.StatusReasonBadRequest},
		"with a body":      {"POST http://" + target + "/x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n", 400, metav1.StatusReasonBadRequest},
		"asterisk":         {"GET * HTTP/1.1\r\nHost: x\r\n", 400, metav1.StatusReasonBadRequest},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			res, _, _ := proxytest.SendRaw(t, server, test.request+"Proxy-Authorization: Basic aHVudGVyMg==\r\n\r\n")
			proxytest.AssertStatus(t, res, test.code, test.reason)
		})
	}
	if n := stop(); n != 0 {
		t.Errorf("listproxy made %d connections", n)
	}
}

func TestProxyRequestsAreRefusedOverHTTP2(t *testing.T) {
	target, stop := proxytest.StartTarget(t)
	inner := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a proxy request came through") })
	server := startProxy(t, inner, true)
	u, err := url.Parse(server.URL)
	expect.NoError(t, err)
	r := (&http.Request{Method: http.MethodConnect, URL: u, Host: target, Header: http.Header{}}).WithContext(t.Context())
	res := proxytest.Do(t, server.Client(), r)
	if res.ProtoMajor != 2 {
		t.Errorf("the test spoke %s", res.Proto)
	}
	proxytest.AssertStatus(t, res, 405, metav1.StatusReasonMethodNotAllowed)

	// No Go client puts a whole URL into :path, and a Go server accepts it.
	r = httptest.NewRequest(http.MethodGet, "http://"+target+"/x", nil)
	r.ProtoMajor, r.ProtoMinor, r.Proto = 2, 0, "HTTP/2.0"
	w := httptest.NewRecorder()
	OnlyPaths(inner).ServeHTTP(w, r)
	proxytest.AssertStatus(t, w.Result(), 400, metav1.StatusReasonBadRequest)
	if n := stop(); n != 0 {
		t.Errorf("listproxy made %d connections", n)
	}
}

// TestPathsReachTheHandler also shows that the filter hands the ResponseWriter on
// with all that it can do.
func TestPathsReachTheHandler(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%t", http2), func(t *testing.T) {
			server := startProxy(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				control := http.NewResponseController(w)
				if r.URL.Path == "/hijack" {
					conn, rw, err := control.Hijack()
					if err != nil {
						t.Errorf("Hijack: %v", err)
						return
					}
					_, _ = io.WriteString(rw, "HTTP/1.1 299 Hijacked\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
					_ = rw.Flush()
					_ = conn.Close()
					return
				}
				if _, ok := w.(http.Flusher); !ok {
					t.Error("the ResponseWriter is no Flusher")
				}
				_, _ = io.WriteString(w, r.Proto+" "+r.RequestURI)
				if err := control.Flush(); err != nil {
					t.Errorf("Flush: %v", err)
				}
			}), http2)
			res := proxytest.Get(t, server.Client(), server.URL+"/api//v1?watch=1")
			if got, want := proxytest.ReadAll(t, res.Body), res.Proto+" /api//v1?watch=1"; got != want {
				t.Errorf("the handler saw %q, want %q", got, want)
			}
			if http2 != (res.ProtoMajor == 2) {
				t.Errorf("the test spoke %s", res.Proto)
			}
			if !http2 {
				if res := proxytest.Get(t, server.Client(), server.URL+"/hijack"); res.StatusCode != 299 {
					t.Errorf("hijacked connection: %s", res.Status)
				}
			}
		})
	}
}
