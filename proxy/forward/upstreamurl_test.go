package forward

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/proxytest"
)

// TestTargetIsForwardedByteForByte: kube-apiserver gets the request target byte for byte as the client sent it, over HTTP/1.1 and
// HTTP/2, except for a space, which is escaped. ([FuzzForward] has more targets for HTTP/1.1.)
func TestTargetIsForwardedByteForByte(t *testing.T) {
	const host = "HOST" // the upstream's address
	type want struct{ overHTTP1, overHTTP2 string }
	wants := map[string]want{
		// HTTP/2 can have a space in a target, which would cut it in two over HTTP/1.1.
		"/a HTTP/1.1?b c": {overHTTP1: "/a%20HTTP/1.1?b%20c", overHTTP2: "/a%20HTTP/1.1?b%20c"},
		// Two slashes at the beginning, and a byte that has to be escaped, can be said over HTTP/1.1 with a whole URL only.
		"//a\"b?c": {overHTTP1: "https://" + host + "//a\"b?c", overHTTP2: "//a\"b?c"},
	}
	for _, target := range []string{
		"/", "/?", "//double//slashes/../%2f;x=%2F?a;b&%zz??", "/ns/name:x@y,z=(1)!*'/%41?https://y/?%41",
		"/a\"b<c>", "/\xfc?\xfc", "/x#y",
	} {
		wants[target] = want{overHTTP1: target, overHTTP2: target}
	}
	echoTarget := func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.RequestURI) }
	for target, want := range wants {
		for http2, wantTarget := range map[bool]string{proxytest.HTTP1: want.overHTTP1, proxytest.HTTP2: want.overHTTP2} {
			upstream := proxytest.StartUpstream(t, http2, echoTarget)
			wantTarget = strings.ReplaceAll(wantTarget, host, upstream.Listener.Addr().String())
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			r.RequestURI = target
			w := httptest.NewRecorder()
			newForwarder(t, upstream.Config()).ServeHTTP(w, r)
			if got := w.Body.String(); got != wantTarget {
				t.Errorf("%q over HTTP/2 %t: the upstream got %q, want %q", target, http2, got, wantTarget)
			}
		}
	}
}
