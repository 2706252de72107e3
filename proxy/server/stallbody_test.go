package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/proxy/internal/proxytest"
	"github.com/listproxy/listproxy/test/expect"
)

// TestConnectionOfAStuckUploadEnds: it is not kept for the rest of a body after the answer.
func TestConnectionOfAStuckUploadEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := newStallGuard(stallLimit)
		_, dial := proxytest.ServePipe(t, guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTooManyRequests)
		})), false)
		conn := dial()
		begun := time.Now()
		if _, err := io.WriteString(conn, proxytest.StuckUpload); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(conn); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if took := time.Since(begun); took < stallLimit || took > 2*stallLimit {
			t.Errorf("the connection ended after %v, the limit is %v", took, stallLimit)
		}
	})
}

// TestUploadAfterUpload: a slow one is none that is stuck, and the limit is not that of the next
// request of the connection.
func TestUploadAfterUpload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := newStallGuard(stallLimit)
		_, dial := proxytest.ServePipe(t, guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			CallerKnown(r.Context(), false)
			_, _ = io.Copy(w, r.Body)
		})), false)
		conn := dial()
		reader := bufio.NewReader(conn)
		for range 2 {
			if _, err := io.WriteString(conn, proxytest.StuckUpload); err != nil {
				t.Fatal(err)
			}
			go func() {
				for _, b := range []byte("0123456789") {
					time.Sleep(stallLimit - time.Second) // slow, and never stuck
					_, _ = conn.Write([]byte{b})
				}
			}()
			res, err := http.ReadResponse(reader, nil)
			expect.NoError(t, err)
			body, err := io.ReadAll(res.Body)
			if err != nil || string(body) != "0123456789" {
				t.Errorf("got %q, %v", body, err)
			}
			_ = res.Body.Close()
			time.Sleep(3 * stallLimit)
		}
	})
}

// TestStreamOfAKnownCallerMayStall, where nobody else's may.
func TestStreamOfAKnownCallerMayStall(t *testing.T) {
	for _, known := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			guard := newStallGuard(stallLimit)
			read := make(chan error, 1)
			_, dial := proxytest.ServePipe(t, guard.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if known {
					CallerKnown(r.Context(), true)
				}
				_, err := io.ReadAll(r.Body)
				read <- err
			})), false)
			conn := dial()
			if _, err := io.WriteString(conn, proxytest.StuckUpload); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * stallLimit)
			go func() { _, _ = io.WriteString(conn, "0123456789") }()
			if err := <-read; (err == nil) != known {
				t.Errorf("known %t: %v", known, err)
			}
		})
	}
}

// TestUploadThatOutlivesItsHandler: a body may still be read when the answer has been given and the
// handler has returned. Then nothing of the handler's is used any more.
func TestUploadThatOutlivesItsHandler(t *testing.T) {
	read := make(chan error)
	front := startProxy(t, newStallGuard(time.Minute).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := r.Body
		returned := r.Context().Done()
		go func() {
			<-returned
			_, err := body.Read(make([]byte, 1))
			read <- err
		}()
		w.WriteHeader(http.StatusUnauthorized)
	})), true)
	for range 50 {
		body, withheld := io.Pipe()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, front.URL, body)
		expect.NoError(t, err)
		res, err := front.Client().Do(r)
		expect.NoError(t, err)
		_ = res.Body.Close()
		_ = withheld.Close()
		if err := <-read; err == nil {
			t.Error("something was read")
		}
	}
}

// TestUploadOfAStranger must come as a whole within the limit, that of a known caller need not.
func TestUploadOfAStranger(t *testing.T) {
	for _, test := range []struct {
		known, long, later bool
		whole              bool
	}{
		{},
		{known: true, whole: true},
		{known: true, long: true, whole: true},
		{known: true, later: true, whole: true},
	} {
		overBothPipes(t, func(t *testing.T, http2 bool) {
			guard := newStallGuard(stallLimit)
			got := make(chan int, 1)
			client, _ := proxytest.ServePipe(t, guard.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if test.known && !test.later {
					CallerKnown(r.Context(), test.long)
				}
				n := 0
				for {
					_, err := io.ReadFull(r.Body, make([]byte, 1))
					if err != nil {
						break
					}
					if n++; n == 2 && test.known {
						CallerKnown(r.Context(), test.long)
					}
				}
				got <- n
			})), http2)
			body, write := io.Pipe()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://pipe/x", body)
			expect.NoError(t, err)
			r.ContentLength = 10
			go func() {
				if res, err := client.Do(r); err == nil {
					_ = res.Body.Close()
				}
				_ = body.Close()
			}()
			go func() {
				defer func() { _ = write.Close() }()
				for i := range 10 {
					if _, err := fmt.Fprint(write, i); err != nil {
						return
					}
					time.Sleep(stallLimit * 2 / 5)
				}
			}()
			n := <-got
			if whole := n == 10; whole != test.whole || n == 0 {
				t.Errorf("%+v: %d bytes came", test, n)
			}
			cancel()
			synctest.Wait()
			time.Sleep(stallLimit)
		})
	}
}
