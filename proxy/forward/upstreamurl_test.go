package forward

import (
	"cmp"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/proxytest"
)

// TestTargetIsForwardedByteForByte: kube-apiserver gets the request target byte for byte as the client sent it, over HTTP/1.1
// and HTTP/2. The last two cases are the only exceptions. ([FuzzForward] has more targets for HTTP/1.1.)
func TestTargetIsForwardedByteForByte(t *testing.T) {
	const host = "HOST" // the upstream's address
	for _, http2 := range []bool{proxytest.HTTP1, proxytest.HTTP2} {
		upstream := proxytest.StartUpstream(t, http2, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.RequestURI) })
		forwarder := newForwarder(t, upstream.Config())
		for _, tt := range []struct {
			target    string // of the client's request
			want      string // the target at the upstream; "": the same
			wantHTTP1 string // the target at an upstream over HTTP/1.1; "": want
		}{
			{target: "/"},
			{target: "/?"},
			{target: "//double//slashes/../%2f;x=%2F?a;b&%zz??"},
			{target: "/ns/name:x@y,z=(1)!*'/%41?https://y/?%41"},
			{target: "/a\"b<c>"},
			{target: "/\xfc?\xfc"},
			{target: "/x#y"},
			// A space, which HTTP/2 allows in a target, is escaped: it would cut the target in two over HTTP/1.1.
			{target: "/a HTTP/1.1?b c", want: "/a%20HTTP/1.1?b%20c"},
			// Two slashes at the beginning, and a byte that has to be escaped: over HTTP/1.1, only a whole URL can say that.
			{target: "//a\"b?c", wantHTTP1: "https://" + host + "//a\"b?c"},
		} {
			want := cmp.Or(tt.want, tt.target)
			if http2 == proxytest.HTTP1 && tt.wantHTTP1 != "" {
				want = strings.ReplaceAll(tt.wantHTTP1, host, upstream.Listener.Addr().String())
			}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			r.RequestURI = tt.target
			w := httptest.NewRecorder()
			forwarder.ServeHTTP(w, r)
			if got := w.Body.String(); got != want {
				t.Errorf("%q over HTTP/2 %t: the upstream got %q, want %q", tt.target, http2, got, want)
			}
		}
	}
}
