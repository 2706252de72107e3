package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/proxy/authn"
	"github.com/listproxy/listproxy/proxy/forward"
	"github.com/listproxy/listproxy/proxy/inflight"
	"github.com/listproxy/listproxy/proxy/internal/authntest"
	"github.com/listproxy/listproxy/proxy/internal/proxytest"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/test/expect"
)

// scriptedUpstream is a kube-apiserver that gives every request the same answer.
type scriptedUpstream func(*http.Request) (*http.Response, error)

func (scriptedUpstream) URL() *url.URL { return &url.URL{Scheme: "https", Host: "upstream.example"} }

func (scriptedUpstream) Answered(authn.Identity, bool, string, int) {}

func (u scriptedUpstream) RoundTripper(authn.Identity, bool) http.RoundTripper { return u }

func (u scriptedUpstream) RoundTrip(r *http.Request) (*http.Response, error) { return u(r) }

// noAnswer comes when the request has ended.
func noAnswer(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// endless is an answer that never ends, and comes as fast as it is read. It is for a bubble of synctest.
func endless(status int, header http.Header) scriptedUpstream {
	return func(r *http.Request) (*http.Response, error) {
		reader, writer := net.Pipe()
		go func() {
			// httputil sends the header from another goroutine. If that had to wait for a mutex behind an
			// event that nobody reads, the bubble would wait for ever.
			time.Sleep(time.Millisecond)
			for event := []byte(`{"type":"BOOKMARK","object":{}}` + "\n"); ; {
				if _, err := writer.Write(event); err != nil {
					return
				}
			}
		}()
		context.AfterFunc(r.Context(), func() { _ = reader.Close() })
		return &http.Response{StatusCode: status, ContentLength: -1, Body: reader, ProtoMajor: 1, Request: r, Header: header.Clone()}, nil
	}
}

// placesWorld is listproxy with five long-running requests, which is as many as there may be. A caller
// with the token "most" has three of them, of which the test sends the newest.
type placesWorld struct {
	client *http.Client
	dial   func() net.Conn
	bounds *inflight.Bounds
}

func newPlacesWorld(t *testing.T, up forward.Upstream, http2 bool) placesWorld {
	t.Helper()
	bounds, err := inflight.New(inflight.Config{LongRunning: 5, Wait: 5 * time.Second})
	expect.NoError(t, err)
	callers, err := upstream.New((&proxytest.FakeAPI{}).Config())
	expect.NoError(t, err)
	h := &Handler{
		Draining: func() bool { return false }, StallTimeout: time.Minute, Authenticator: authntest.New(t), Inflight: bounds, Upstream: callers,
		Forward: forward.New(up, proxytest.DiscardLog()), Policy: &policy.Config{}, Collections: &snapshot.Collections{}, Log: proxytest.DiscardLog(),
	}
	most := authntest.Identify(h.Authenticator, "Bearer most")
	callers.Answered(most, false, http.MethodGet, http.StatusOK)
	for _, share := range []inflight.ShareKey{authn.ShareKey(most, true, ""), {1}} {
		for range 2 {
			_, err := bounds.Admit(t.Context(), share, true, func() { t.Error("not the newest was ended") })
			expect.NoError(t, err)
		}
	}
	client, dial := proxytest.ServePipe(t, h.Chain(), http2)
	return placesWorld{client, dial, bounds}
}

// take has another caller need a place, and returns how long it waits for that.
func (w placesWorld) take(t *testing.T) time.Duration {
	t.Helper()
	begun := time.Now()
	_, err := w.bounds.Admit(t.Context(), inflight.ShareKey{2}, true, func() {})
	if err != nil {
		t.Errorf("another caller: %v", err)
	}
	return time.Since(begun)
}

// TestPlaceTakenBeforeTheAnswer: whoever loses its place before its answer has begun is told to come
// again. What must not be repeated, since kube-apiserver may have carried it out, is broken off.
func TestPlaceTakenBeforeTheAnswer(t *testing.T) {
	for name, tt := range map[string]struct {
		method, path, upgrade string
		status                int // 0: none
	}{
		"a watch":             {http.MethodGet, "/api/v1/pods?watch=true", "", http.StatusTooManyRequests},
		"a log":               {http.MethodGet, "/api/v1/namespaces/a/pods/b/log?follow=true", "", http.StatusTooManyRequests},
		"a write by a proxy":  {http.MethodPost, "/api/v1/namespaces/a/services/b/proxy/", "", 0},
		"an exec":             {http.MethodPost, "/api/v1/namespaces/a/pods/b/exec?command=sh", "SPDY/3.1", 0},
		"an exec, websockets": {http.MethodGet, "/api/v1/namespaces/a/pods/b/exec?command=sh", "websocket", 0},
	} {
		for _, http2 := range []bool{false, true} {
			if http2 && tt.upgrade != "" {
				continue
			}
			t.Run(fmt.Sprintf("%s, http2 %t", name, http2), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newPlacesWorld(t, scriptedUpstream(noAnswer), http2)
					r, err := http.NewRequestWithContext(t.Context(), tt.method, "http://front"+tt.path, http.NoBody)
					expect.NoError(t, err)
					r.Header.Set("Authorization", "Bearer most")
					if tt.upgrade != "" {
						r.Header.Set("Connection", "Upgrade")
						r.Header.Set("Upgrade", tt.upgrade)
					}
					status := make(chan int)
					go func() {
						res, err := w.client.Do(r)
						if err != nil {
							status <- 0
							return
						}
						_ = res.Body.Close()
						if res.Header.Get("Retry-After") != "1" || res.Header.Get("Cache-Status") != "" {
							t.Errorf("%s, %v", res.Status, res.Header)
						}
						status <- res.StatusCode
					}()
					synctest.Wait()
					waited := w.take(t)
					if got := <-status; got != tt.status || waited != 0 {
						t.Errorf("status %d, after %v", got, waited)
					}
				})
			})
		}
	}
}

// TestPlaceOfWhoReadsNothing: whoever loses its place and reads nothing of what is written to it is
// cut off, also on an upgraded connection.
func TestPlaceOfWhoReadsNothing(t *testing.T) {
	upgrade := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}
	for name, tt := range map[string]struct {
		up      scriptedUpstream
		upgrade bool
		http2   bool
	}{
		"a watch":             {up: endless(http.StatusOK, http.Header{"Content-Type": {"application/json"}})},
		"a watch over HTTP/2": {up: endless(http.StatusOK, http.Header{"Content-Type": {"application/json"}}), http2: true},
		"an upgraded watch":   {up: endless(http.StatusSwitchingProtocols, upgrade), upgrade: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newPlacesWorld(t, tt.up, tt.http2)
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://front/api/v1/pods?watch=true", http.NoBody)
				expect.NoError(t, err)
				r.Header.Set("Authorization", "Bearer most")
				var res *http.Response
				if tt.upgrade {
					r.Header.Set("Connection", "Upgrade")
					r.Header.Set("Upgrade", "websocket")
					conn := w.dial()
					expect.NoError(t, r.Write(conn))
					res, err = http.ReadResponse(bufio.NewReader(conn), r)
				} else {
					res, err = w.client.Do(r)
				}
				expect.NoError(t, err)
				time.Sleep(time.Second) // until no more can be written
				if waited := w.take(t); waited != lateEnd {
					t.Errorf("%s: another caller waited for %v", res.Status, waited)
				}
				_ = res.Body.Close()
			})
		})
	}
}

// TestNotForwardedWithoutAPlace: a request whose place was taken while it was decided about is not sent
// to kube-apiserver any more.
func TestNotForwardedWithoutAPlace(t *testing.T) {
	up := scriptedUpstream(func(*http.Request) (*http.Response, error) {
		t.Error("it was forwarded")
		return nil, errors.New("it was forwarded")
	})
	h := &Handler{Forward: forward.New(up, proxytest.DiscardLog()), Policy: &policy.Config{}, Log: proxytest.DiscardLog()}
	ctx, over := context.WithCancelCause(t.Context())
	over(forward.ErrEndInOrder)
	out := httptest.NewRecorder()
	kubehttp.WithRequestInfo(http.HandlerFunc(h.respond)).ServeHTTP(
		out, httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/pods?watch=true", http.NoBody))
	if out.Code != http.StatusTooManyRequests {
		t.Errorf("status %d", out.Code)
	}
}

// TestNothingFollowsACut: a connection that was cut off is not used for another request, which would end
// at once, even if the handler returns as if nothing had happened.
func TestNothingFollowsACut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bounds, err := inflight.New(inflight.Config{LongRunning: 5, Wait: 5 * time.Second})
		expect.NoError(t, err)
		for i := range byte(4) {
			_, err := bounds.Admit(t.Context(), inflight.ShareKey{i % 2}, true, func() { t.Error("not the newest was ended") })
			expect.NoError(t, err)
		}
		h := &Handler{Inflight: bounds, Log: proxytest.DiscardLog()}
		handler := kubehttp.WithRequestInfo(h.withInflight(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			time.Sleep(2 * lateEnd)
		})))
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/pods?watch=true", nil)
		ended := make(chan any)
		go func() {
			defer func() { ended <- recover() }()
			handler.ServeHTTP(httptest.NewRecorder(), withCaller(r, &caller{verdict: upstream.Accepted, share: inflight.ShareKey{1}}))
		}()
		synctest.Wait()
		go func() { _, _ = bounds.Admit(t.Context(), inflight.ShareKey{2}, true, func() {}) }()
		if err, _ := (<-ended).(error); !errors.Is(err, http.ErrAbortHandler) {
			t.Errorf("the handler returned with %v", err)
		}
	})
}

// TestCutOff: what a handler reads and writes ends, on a connection that was upgraded too, but not when
// the handler is about to return.
func TestCutOff(t *testing.T) {
	for _, returns := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ended, done := make(chan error, 2), make(chan struct{})
			_, dial := proxytest.ServePipe(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				defer close(done)
				held := &turn{client: w}
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer func() { _ = conn.Close() }()
				go func() {
					_, err := conn.Read(make([]byte, 1))
					ended <- err
				}()
				go func() {
					_, err := conn.Write([]byte("x"))
					ended <- err
				}()
				if returns {
					held.end()
				}
				held.cutOff()
				synctest.Wait()
				if got, want := len(ended), map[bool]int{false: 2}[returns]; got != want {
					t.Errorf("it returns: %t, %d have ended", returns, got)
				}
			}), false)
			_, err := io.WriteString(dial(), "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			expect.NoError(t, err)
			<-done
		})
	}
}
