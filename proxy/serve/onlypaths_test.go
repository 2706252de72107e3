package serve

import (
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
	never := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a proxy request came through") })
	server := startProxy(t, never, false)
	const bad, notAllowed = metav1.StatusReasonBadRequest, metav1.StatusReasonMethodNotAllowed
	for name, test := range map[string]struct {
		request string
		code    int
		reason  metav1.StatusReason
	}{
		"CONNECT":          {"CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n", 405, notAllowed},
		"CONNECT 1.0":      {"CONNECT " + target + " HTTP/1.0\r\n", 405, notAllowed},
		"CONNECT, a path":  {"CONNECT /api HTTP/1.1\r\nHost: x\r\n", 405, notAllowed},
		"whole URL":        {"GET http://" + target + "/x HTTP/1.1\r\nHost: " + target + "\r\n", 400, bad},
		"whole https URL":  {"GET https://" + target + "/x HTTP/1.1\r\nHost: x\r\n", 400, bad},
		"with a websocket": {"GET ws://" + target + "/x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n", 400, bad},
		"with a body":      {"POST http://" + target + "/x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n", 400, bad},
		"asterisk":         {"GET * HTTP/1.1\r\nHost: x\r\n", 400, bad},
	} {
		t.Run(name, func(t *testing.T) {
			res, _, _ := proxytest.SendRaw(t, server, test.request+"Proxy-Authorization: Basic aHVudGVyMg==\r\n\r\n")
			proxytest.AssertStatus(t, res, test.code, test.reason)
		})
	}

	server = startProxy(t, never, true)
	u, err := url.Parse(server.URL)
	expect.NoError(t, err)
	r := (&http.Request{Method: http.MethodConnect, URL: u, Host: target, Header: http.Header{}}).WithContext(t.Context())
	res := proxytest.Do(t, server.Client(), r)
	expect.Same(t, 2, res.ProtoMajor)
	proxytest.AssertStatus(t, res, 405, notAllowed)
	// No Go client puts a whole URL into :path, and a Go server accepts it.
	r = httptest.NewRequest(http.MethodGet, "http://"+target+"/x", nil)
	r.ProtoMajor, r.ProtoMinor, r.Proto = 2, 0, "HTTP/2.0"
	w := httptest.NewRecorder()
	OnlyPaths(never).ServeHTTP(w, r)
	proxytest.AssertStatus(t, w.Result(), 400, bad)
	expect.Same(t, int64(0), stop())
}
