package proxy

import (
	"bufio"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/listproxy/listproxy/proxy/authn"
	"github.com/listproxy/listproxy/proxy/internal/proxytest"
	"github.com/listproxy/listproxy/proxy/server"
)

// TestStuckUploadHoldsNothing: a request ends, whoever is asked to wait for its body, so that nothing
// is held for it.
func TestStuckUploadHoldsNothing(t *testing.T) {
	for name, http2 := range map[string]bool{"upstream HTTP/1.1": false, "upstream HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			upstream := proxytest.StartUpstream(t, http2, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusUnauthorized)
			})
			forwarder := newForwarder(t, upstream.Config())
			done := make(chan struct{})
			front := startProxy(t, server.NewStallGuard(100*time.Millisecond, proxytest.DiscardLog()).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(done)
				forwarder.ServeAs(w, r, authn.Identity{}) // nobody
			})), false)
			conn := proxytest.DialTLS(t, front)
			if _, err := io.WriteString(conn, proxytest.StuckUpload); err != nil {
				t.Fatal(err)
			}
			// With an answer or, since net/http reads the body before it gives one over HTTP/1.1, with
			// the connection.
			if res, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
				_ = res.Body.Close()
			}
			<-done
		})
	}
}
