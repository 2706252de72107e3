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

// TestBodyTimeout: a body that has not come within bodyLimit is read no further, and its connection ends. The time of the
// answer does not count. The next request on the connection has the whole limit again. A long-running request, whose body is a
// stream, has no limit.
func TestBodyTimeout(t *testing.T) {
	const upload = proxytest.StuckUpload // a short request, to which this test adds the body
	const stream = "POST /api/v1/namespaces/a/pods/b/exec HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"
	const body = "0123456789"
	for name, tt := range map[string]struct {
		head      string
		pause     time.Duration // before each of the ten bytes of the body
		wantWhole bool          // the whole body is read
	}{
		"in time":  {head: upload, pause: time.Second - time.Nanosecond, wantWhole: true}, // just under 10 s in all
		"too slow": {head: upload, pause: 1100 * time.Millisecond, wantWhole: false},      // 11 s in all
		"a stream": {head: stream, pause: 10 * bodyLimit, wantWhole: true},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			// The server answers with the body that it has read, long after bodyLimit.
			read := make(chan error, 2)
			echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got, err := io.ReadAll(r.Body)
				time.Sleep(3 * bodyLimit)
				read <- errors.Join(err, r.Context().Err()) // the limit must not end the request's context either
				_, _ = w.Write(got)
			})
			_, dial := proxytest.ServePipe(t, kubehttp.WithRequest(WithBodyTimeout(echo, bodyLimit)), proxytest.HTTP1)
			conn := dial()
			reader := bufio.NewReader(conn)
			for range 2 { // requests on one connection
				// The client sends the head, and then one byte of the body after the other.
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
				err = <-read
				isWhole := err == nil
				if isWhole != tt.wantWhole {
					t.Errorf("the server read the whole body: %t (error %v), want %t", isWhole, err, tt.wantWhole)
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
