package serve

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

const bodyLimit = 10 * time.Second

// TestBodyTimeout: the body of a short request comes in time, or it is not read any more, and its connection ends. The
// limit is not that of the answer, nor of the next request on the connection, nor of a long-running request, which
// sends a stream.
func TestBodyTimeout(t *testing.T) {
	const stream = "POST /api/v1/namespaces/a/pods/b/exec HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"
	for name, tt := range map[string]struct {
		head  string
		pause time.Duration // before each of ten bytes
		whole bool
	}{
		"in time":  {proxytest.StuckUpload, bodyLimit/10 - 1, true},
		"too slow": {proxytest.StuckUpload, bodyLimit / 9, false},
		"a stream": {stream, 10 * bodyLimit, true},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			read := make(chan error, 2)
			echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				time.Sleep(3 * bodyLimit)
				read <- errors.Join(err, r.Context().Err())
				_, _ = w.Write(body)
			})
			_, dial := proxytest.ServePipe(t, kubehttp.WithRequest(WithBodyTimeout(echo, bodyLimit)), proxytest.HTTP1)
			conn := dial()
			reader := bufio.NewReader(conn)
			for range 2 {
				_, err := io.WriteString(conn, tt.head)
				expect.NoError(t, err)
				sent := make(chan struct{})
				go func() {
					defer close(sent)
					for _, b := range []byte("0123456789") {
						time.Sleep(tt.pause)
						_, _ = conn.Write([]byte{b})
					}
				}()
				if err := <-read; (err == nil) != tt.whole {
					t.Errorf("reading ended with %v", err)
				}
				if !tt.whole {
					_, err := io.Copy(io.Discard, reader)
					expect.NoError(t, err)
					<-sent
					return
				}
				res, err := http.ReadResponse(reader, nil)
				expect.NoError(t, err)
				expect.Same(t, "0123456789", proxytest.ReadAll(t, res.Body))
			}
		})
	}
}
