package proxy

import (
	"bufio"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
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
				_, dial := proxytest.ServePipe(t, test.handler, false)
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
		if _, err := io.WriteString(conn, proxytest.StuckUpload); err != nil {
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
