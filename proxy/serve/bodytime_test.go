package serve

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

const bodyLimit = 10 * time.Second

// bounded serves handler behind the bounds on bodies.
func bounded(handler http.HandlerFunc) http.Handler {
	return kubehttp.WithRequestInfo(LimitBodies(handler, bodyLimit))
}

// TestBodyTime: the body of a short request comes in time, or it is not read any more. The limit is not
// that of the next request on the connection.
func TestBodyTime(t *testing.T) {
	for name, tt := range map[string]struct {
		pause time.Duration // before each of ten bytes
		whole bool
	}{"in time": {bodyLimit/10 - 1, true}, "too slow": {bodyLimit / 9, false}} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			read := make(chan error, 2)
			_, dial := proxytest.ServePipe(t, bounded(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				read <- err
				_, _ = w.Write(body)
			}), false)
			conn := dial()
			reader := bufio.NewReader(conn)
			for range 2 {
				_, err := io.WriteString(conn, proxytest.StuckUpload)
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
					_ = conn.Close()
					<-sent
					return
				}
				res, err := http.ReadResponse(reader, nil)
				expect.NoError(t, err)
				if body := proxytest.ReadAll(t, res.Body); body != "0123456789" {
					t.Errorf("got %q", body)
				}
				time.Sleep(3 * bodyLimit)
			}
		})
	}
}

// TestStreamsMayPause: a long-running request sends a stream, for which there is no time.
func TestStreamsMayPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := make(chan error, 1)
		_, dial := proxytest.ServePipe(t, bounded(func(_ http.ResponseWriter, r *http.Request) {
			_, err := io.ReadFull(r.Body, make([]byte, 1))
			read <- err
		}), false)
		conn := dial()
		_, err := io.WriteString(conn, "POST /api/v1/namespaces/a/pods/b/exec HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n")
		expect.NoError(t, err)
		time.Sleep(100 * bodyLimit)
		_, err = io.WriteString(conn, "a")
		expect.NoError(t, err)
		if err := <-read; err != nil {
			t.Errorf("the stream ended with %v", err)
		}
	})
}

// TestConnectionOfAStuckUploadEnds: it is not kept for the rest of a body after the answer.
func TestConnectionOfAStuckUploadEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, dial := proxytest.ServePipe(t, bounded(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTooManyRequests)
		}), false)
		conn := dial()
		begun := time.Now()
		_, err := io.WriteString(conn, proxytest.StuckUpload)
		expect.NoError(t, err)
		if _, err := io.ReadAll(conn); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if took := time.Since(begun); took < bodyLimit || took > 2*bodyLimit {
			t.Errorf("the connection ended after %v", took)
		}
	})
}

// TestUploadThatOutlivesItsHandler: the end of a body may still be read when the handler has returned.
// Then nothing of the handler's is used any more: over HTTP/2 that would be a panic.
func TestUploadThatOutlivesItsHandler(t *testing.T) {
	read := make(chan error, 1)
	handler := bounded(func(w http.ResponseWriter, r *http.Request) {
		body, returned := r.Body, r.Context().Done()
		go func() {
			<-returned
			_, err := body.Read(make([]byte, 1))
			read <- err
		}()
		w.WriteHeader(http.StatusUnauthorized)
	})
	front := startProxy(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = io.NopCloser(strings.NewReader("")) // whose end comes when it is asked for
		handler.ServeHTTP(w, r)
	}), true)
	for range 50 {
		res, err := front.Client().Post(front.URL, "text/plain", strings.NewReader("x"))
		expect.NoError(t, err)
		_ = res.Body.Close()
		if err := <-read; !errors.Is(err, io.EOF) {
			t.Errorf("read %v", err)
		}
	}
}
