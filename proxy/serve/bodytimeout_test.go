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

// bodyLimit is the time within which the body of a short request must come.
const bodyLimit = 10 * time.Second

// TestBodyTimeout: a body that has not come within bodyLimit is read no further, and its connection ends. The limit does not
// hold for the answer, for the next request on the connection, or for a long-running request, which sends a stream.
func TestBodyTimeout(t *testing.T) {
	const upload = proxytest.StuckUpload // a short request, to which this test adds the body
	const stream = "POST /api/v1/namespaces/a/pods/b/exec HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"
	const body = "0123456789"
	for name, tt := range map[string]struct {
		head      string
		pause     time.Duration // before each of the ten bytes
		wantWhole bool
	}{
		"in time":  {head: upload, pause: bodyLimit/time.Duration(len(body)) - time.Nanosecond, wantWhole: true},
		"too slow": {head: upload, pause: bodyLimit / time.Duration(len(body)-1)},
		"a stream": {head: stream, pause: 10 * bodyLimit, wantWhole: true},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			read := make(chan error, 2)
			echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got, err := io.ReadAll(r.Body)
				time.Sleep(3 * bodyLimit)                   // the answer takes longer than bodyLimit
				read <- errors.Join(err, r.Context().Err()) // the limit must not end the request's context either
				_, _ = w.Write(got)
			})
			_, dial := proxytest.ServePipe(t, kubehttp.WithRequest(WithBodyTimeout(echo, bodyLimit)), proxytest.HTTP1)
			conn := dial()
			reader := bufio.NewReader(conn)
			for range 2 { // requests on one connection
				_, err := io.WriteString(conn, tt.head)
				expect.NoError(t, err)
				sent := make(chan struct{})
				go func() {
					defer close(sent)
					for _, b := range []byte(body) {
						time.Sleep(tt.pause)
						_, _ = conn.Write([]byte{b})
					}
				}()
				if err := <-read; (err == nil) != tt.wantWhole {
					t.Errorf("reading the body ended with %v, want an error: %t", err, !tt.wantWhole)
				}
				if !tt.wantWhole {
					_, err := io.Copy(io.Discard, reader) // returns only when the server ends the connection
					expect.NoError(t, err)
					<-sent
					return
				}
				res, err := http.ReadResponse(reader, nil)
				expect.NoError(t, err)
				expect.Same(t, body, proxytest.ReadAll(t, res.Body))
			}
		})
	}
}
