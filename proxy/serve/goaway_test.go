package serve

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestCloseWhileDraining: while draining each connection is used once more, over both versions of
// HTTP.
func TestCloseWhileDraining(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			var draining atomic.Bool
			server := httptest.NewUnstartedServer(CloseWhileDraining(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, r.RemoteAddr)
			}), draining.Load))
			server.EnableHTTP2 = http2
			server.StartTLS()
			defer server.Close()
			ask := func() string {
				resp, err := server.Client().Get(server.URL)
				expect.NoError(t, err)
				defer func() { _ = resp.Body.Close() }()
				body, err := io.ReadAll(resp.Body)
				expect.NoError(t, err)
				return string(body)
			}
			for range proxytest.KeepingTries {
				server.Client().CloseIdleConnections()
				draining.Store(false)
				first := ask()
				again := ask() == first
				draining.Store(true)
				used := map[string]bool{}
				for range 3 {
					conn := ask()
					if used[conn] {
						t.Fatal("a connection is used again")
					}
					used[conn] = true
				}
				if again && used[first] {
					return
				}
			}
			t.Error("no connection is used again, and once more")
		})
	}
}
