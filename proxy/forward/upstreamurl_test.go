package forward

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/proxytest"
)

// TestTargetIsForwardedByteForByte: for HTTP/1.1 [FuzzForward] has more.
func TestTargetIsForwardedByteForByte(t *testing.T) {
	for target, want := range map[string]string{
		"/":  "/",
		"/?": "/?",
		"//double//slashes/../%2f;x=%2F?a;b&%zz??": "//double//slashes/../%2f;x=%2F?a;b&%zz??",
		"/ns/name:x@y,z=(1)!*'/%41?https://y/?%41": "/ns/name:x@y,z=(1)!*'/%41?https://y/?%41",
		"/a\"b<c>":   "/a\"b<c>",
		"/\xfc?\xfc": "/\xfc?\xfc",
		"/x#y":       "/x#y",
		// HTTP/2 can have a space in a target, which would cut it in two over HTTP/1.1.
		"/a HTTP/1.1?b c": "/a%20HTTP/1.1?b%20c",
		// Two slashes at the beginning, and a byte that has to be escaped, can be said over HTTP/1.1 with a whole URL only.
		"//a\"b?c": "https://HOST//a\"b?c",
	} {
		for _, http2 := range []bool{false, true} {
			upstream := proxytest.StartUpstream(t, http2, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.RequestURI) })
			want := strings.ReplaceAll(want, "HOST", upstream.Listener.Addr().String())
			if http2 {
				want = strings.TrimPrefix(want, upstream.URL)
			}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			r.RequestURI = target
			w := httptest.NewRecorder()
			newForwarder(t, upstream.Config()).ServeHTTP(w, r)
			if got := w.Body.String(); got != want {
				t.Errorf("http2=%t: the upstream saw %q, want %q", http2, got, want)
			}
		}
	}
}
