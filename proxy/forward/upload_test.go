package forward

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/proxy/authn"
	"github.com/listproxy/listproxy/proxy/internal/proxytest"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/server"
	"github.com/listproxy/listproxy/test/expect"
)

func randomBytes(n int) []byte {
	source := rand.NewChaCha8([32]byte{1})
	b := make([]byte, n)
	_, _ = source.Read(b)
	return b
}

func openReader(t *testing.T, u *upload) io.ReadCloser {
	t.Helper()
	r, err := u.reader()
	expect.NoError(t, err)
	return r
}

func TestUploadIsTheBody(t *testing.T) {
	for _, size := range []int{0, 1, uploadChunk, uploadKept, uploadKept + 1, 10 * uploadKept} {
		want := randomBytes(size)
		for name, body := range map[string]func([]byte) io.Reader{
			"whole":    func(b []byte) io.Reader { return bytes.NewReader(b) },
			"halves":   func(b []byte) io.Reader { return iotest.HalfReader(bytes.NewReader(b)) },
			"data+EOF": func(b []byte) io.Reader { return iotest.DataErrReader(bytes.NewReader(b)) },
		} {
			for _, announced := range []int{-1, size} {
				got, err := io.ReadAll(openReader(t, newUpload(body(want), int64(announced))))
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%s, %d bytes, announced %d: got %d, %v", name, size, announced, len(got), err)
				}
			}
		}
	}
}

// TestUploadHasTheEnd: with the last byte that was announced comes the end. The transport asks for
// it before it sends this byte, and would else wait for another goroutine.
func TestUploadHasTheEnd(t *testing.T) {
	for _, size := range []int{1, 100, uploadChunk - 1, uploadChunk} {
		u := newUpload(bytes.NewReader(randomBytes(size)), int64(size))
		if n, err := openReader(t, u).Read(make([]byte, 2*uploadChunk)); n != size || err != nil {
			t.Errorf("%d bytes: read %d, %v", size, n, err)
		}
		if !errors.Is(u.err, io.EOF) {
			t.Errorf("%d bytes: the end is not read yet: %v", size, u.err)
		}
	}
}

// TestUploadAgain: what the API server has not looked at is sent again, from the beginning.
func TestUploadAgain(t *testing.T) {
	want := randomBytes(uploadKept)
	u := newUpload(bytes.NewReader(want), -1)
	first := openReader(t, u)
	if _, err := io.ReadFull(first, make([]byte, uploadKept/2)); err != nil {
		t.Fatal(err)
	}
	_ = first.Close()
	if _, err := first.Read(make([]byte, 1)); !errors.Is(err, errUploadClosed) {
		t.Errorf("the first attempt: %v, want %v", err, errUploadClosed)
	}
	if got, err := io.ReadAll(openReader(t, u)); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the second attempt: %d bytes, %v", len(got), err)
	}

	u = newUpload(bytes.NewReader(randomBytes(2*uploadKept)), -1)
	if _, err := io.ReadFull(openReader(t, u), make([]byte, uploadKept+1)); err != nil {
		t.Fatal(err)
	}
	if _, err := u.reader(); !errors.Is(err, errUploadGone) {
		t.Errorf("a body that is too long: %v, want %v", err, errUploadGone)
	}
}

// TestUploadCloseEndsAWaitingRead, and what was being read is there for the next attempt.
func TestUploadCloseEndsAWaitingRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body, caller := io.Pipe()
		u := newUpload(body, -1)
		first := openReader(t, u)
		ended := make(chan error)
		go func() {
			_, err := first.Read(make([]byte, 10))
			ended <- err
		}()
		synctest.Wait()
		_ = first.Close()
		if err := <-ended; !errors.Is(err, errUploadClosed) {
			t.Errorf("got %v, want %v", err, errUploadClosed)
		}
		go func() {
			_, _ = caller.Write([]byte("late"))
			_ = caller.Close()
		}()
		if got, err := io.ReadAll(openReader(t, u)); err != nil || string(got) != "late" {
			t.Errorf("the next attempt: %q, %v", got, err)
		}
	})
}

func TestUploadFailure(t *testing.T) {
	broken := errors.New("broken")
	u := newUpload(io.MultiReader(bytes.NewReader([]byte("abc")), iotest.ErrReader(broken)), -1)
	got, err := io.ReadAll(openReader(t, u))
	if string(got) != "abc" || !errors.Is(err, broken) || !u.failed.Load() {
		t.Errorf("got %q, %v, failed %v", got, err, u.failed.Load())
	}
	u = newUpload(bytes.NewReader(nil), -1)
	if _, err := io.ReadAll(openReader(t, u)); err != nil || u.failed.Load() {
		t.Errorf("an end is no failure: %v, failed %v", err, u.failed.Load())
	}
}

// TestStuckUploadHoldsNothing: a request ends, whoever is asked to wait for its body, so that
// nothing is held for it.
func TestStuckUploadHoldsNothing(t *testing.T) {
	for name, http2 := range map[string]bool{"upstream HTTP/1.1": false, "upstream HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			upstream := proxytest.StartUpstream(t, http2, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusUnauthorized)
			})
			forwarder := newForwarder(t, upstream.Config())
			done := make(chan struct{})
			front := startProxy(t, kubehttp.WithRequestInfo(server.LimitBodies(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(done)
				forwarder.ServeAs(w, r, authn.Identity{}) // nobody
			}), 0, 100*time.Millisecond)), false)
			conn := proxytest.DialTLS(t, front)
			if _, err := io.WriteString(conn, proxytest.StuckUpload); err != nil {
				t.Fatal(err)
			}
			// With an answer or, since net/http reads the body before it gives one over HTTP/1.1,
			// with the connection.
			if res, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
				_ = res.Body.Close()
			}
			<-done
		})
	}
}
