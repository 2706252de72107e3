package proxy

import (
	"bufio"
	"errors"
	"github.com/listproxy/listproxy/proxy/internal/proxytest"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// stuckUpload is a request whose body never comes.
const stuckUpload = "POST /api/v1/namespaces/a/pods HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"

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
			front := startProxy(t, newStallGuard(100*time.Millisecond).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(done)
				forwarder.ServeAs(w, r, Identity{}) // nobody
			})), false)
			conn := proxytest.DialTLS(t, front)
			if _, err := io.WriteString(conn, stuckUpload); err != nil {
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

// TestConnectionOfAStuckUploadEnds: it is not kept for the rest of a body after the answer.
func TestConnectionOfAStuckUploadEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := newStallGuard(stallLimit)
		_, dial := servePipe(t, guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTooManyRequests)
		})), false)
		conn := dial()
		begun := time.Now()
		if _, err := io.WriteString(conn, stuckUpload); err != nil {
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
		_, dial := servePipe(t, guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			callerKnown(r.Context(), false)
			_, _ = io.Copy(w, r.Body)
		})), false)
		conn := dial()
		reader := bufio.NewReader(conn)
		for range 2 {
			if _, err := io.WriteString(conn, stuckUpload); err != nil {
				t.Fatal(err)
			}
			go func() {
				for _, b := range []byte("0123456789") {
					time.Sleep(stallLimit - time.Second) // slow, and never stuck
					_, _ = conn.Write([]byte{b})
				}
			}()
			res, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Fatal(err)
			}
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
			_, dial := servePipe(t, guard.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if known {
					callerKnown(r.Context(), true)
				}
				_, err := io.ReadAll(r.Body)
				read <- err
			})), false)
			conn := dial()
			if _, err := io.WriteString(conn, stuckUpload); err != nil {
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

// TestNobodyIsHeldByARefusal: neither by one that its client does not read, nor by the rest of what
// was refused.
func TestNobodyIsHeldByARefusal(t *testing.T) {
	targets := mustTargets(t, "https://"+upstreamName)
	log := slog.New(slog.DiscardHandler)
	for name, test := range map[string]struct {
		handler http.Handler
		request string
	}{
		"CONNECT at the main port": {NewFront(nil, log), "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n"},
		"a CONNECT elsewhere":      {newConnectHandler(NewTunnels(targets, nil), log), "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n"},
		"a granted CONNECT":        {newConnectHandler(NewTunnels(targets, nil), log), "CONNECT " + upstreamName + " HTTP/1.1\r\nHost: " + upstreamName + "\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, dial := servePipe(t, test.handler, false)
				conn := dial()
				if _, err := io.WriteString(conn, test.request); err != nil {
					t.Fatal(err)
				}
				time.Sleep(connectTimeout)
				synctest.Wait()
				if got, err := io.ReadAll(conn); len(got) > 0 {
					t.Errorf("it was still to be had: %q, %v", got, err)
				}
			})
		})
	}
}

// TestConnectPortWaitsForNoBody of what it has refused.
func TestConnectPortWaitsForNoBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		server := NewConnectServer(NewTunnels(mustTargets(t, "https://"+upstreamName), nil), nil, nil, log)
		listener := proxytest.NewPipeListener()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = server.Serve(listener) // until it is closed
		}()
		conn, err := listener.Dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if _, err := io.WriteString(conn, stuckUpload); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(conn); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took > 2*connectTimeout {
			t.Errorf("the connection ended after %v", took)
		}
		_ = server.Close()
		<-done
	})
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
		if err != nil {
			t.Fatal(err)
		}
		res, err := front.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		_ = withheld.Close()
		if err := <-read; err == nil {
			t.Error("something was read")
		}
	}
}
