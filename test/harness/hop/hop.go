// Package hop is a TLS reverse proxy on loopback that a test puts in front of the API server, to cut connections and to delay,
// refuse and change what passes.
package hop

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/events"
)

// Hop forwards requests to an upstream. Its faults may be changed at any time, by any goroutine.
type Hop struct {
	server   *httptest.Server
	listener *trackingListener
	forward  *httputil.ReverseProxy
	odd      Odd

	frozen sync.RWMutex // write-locked between Freeze and Thaw; requests and events take the read lock to pass

	onRequest hook[func(w http.ResponseWriter, r *http.Request) bool]
	onLine    hook[func(r *http.Request, line []byte) ([]byte, error)]
	onDelay   hook[func(r *http.Request) time.Duration]
	onAnswer  hook[func(resp *http.Response)]
}

// hook holds a function of the test that the hop calls. The test may change it at any time. Until the test sets it, it is nil.
type hook[F any] struct{ f atomic.Pointer[F] }

func (h *hook[F]) set(f F) { h.f.Store(&f) }

func (h *hook[F]) get() (f F) {
	if set := h.f.Load(); set != nil {
		f = *set
	}
	return f
}

// Start starts a hop before the upstream, whose certificate ca signed. The zero Odd changes nothing.
func Start(upstream string, ca []byte, odd Odd) (*Hop, error) {
	target, err := url.Parse(upstream)
	if err != nil {
		return nil, fmt.Errorf("the upstream's URL: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)

	h := &Hop{odd: odd}
	h.forward = &httputil.ReverseProxy{
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.SetURL(target)
			pr.Out.URL.RawQuery = pr.In.URL.RawQuery
			if isWatch(pr.In) {
				pr.Out.Header.Del("Accept-Encoding") // the hop must read the events
			}
			odd.changeRequest(pr.Out)
		},
		Transport: &http.Transport{
			TLSClientConfig:    &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			ForceAttemptHTTP2:  true,
			DisableCompression: true,
		},
		FlushInterval:  -1,
		ErrorLog:       discardLog(), // errors are on purpose
		ModifyResponse: h.modify,
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, _ error) {
			panic(http.ErrAbortHandler) // as if the API server itself could not be reached
		},
	}
	h.server = httptest.NewUnstartedServer(h)
	h.listener = &trackingListener{Listener: h.server.Listener, idle: odd.IdleTimeout, conns: map[*trackedConn]struct{}{}}
	h.server.Listener, h.server.Config.ErrorLog = h.listener, discardLog()
	h.server.TLS = &tls.Config{NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12}
	if odd.HTTP1 {
		h.server.TLS.NextProtos = []string{"http/1.1"}
	}
	h.server.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: odd.Streams}
	h.server.StartTLS()
	return h, nil
}

// Run is [Start] of a hop that ends with the test.
func Run(t testing.TB, upstream string, ca []byte, odd Odd) *Hop {
	t.Helper()
	h, err := Start(upstream, ca, odd)
	expect.NoError(t, err)
	t.Cleanup(h.Close)
	return h
}

// Own reports whether a request is listproxy's own, and not a caller's.
func Own(r *http.Request) bool { return strings.HasPrefix(r.UserAgent(), "listproxy/") }

// discardLog returns a logger that writes nothing.
func discardLog() *log.Logger { return log.New(io.Discard, "", 0) }

// URL returns the hop's URL.
func (h *Hop) URL() string { return h.server.URL }

// CA returns the hop's certificate in PEM, which is its own CA.
func (h *Hop) CA() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.server.Certificate().Raw})
}

// RESTConfig returns a client's configuration with the hop as its server.
func (h *Hop) RESTConfig(direct *rest.Config) *rest.Config {
	cfg := rest.CopyConfig(direct)
	cfg.Host = h.URL()
	cfg.CAData, cfg.CAFile = h.CA(), ""
	return cfg
}

// Close ends the hop and all its connections.
func (h *Hop) Close() {
	_ = h.server.Config.Close() // httptest's own Close would wait for requests
}

// OnRequest sets a function that gets each request before it is forwarded, or nil. If it returns true, it has answered.
func (h *Hop) OnRequest(f func(w http.ResponseWriter, r *http.Request) bool) { h.onRequest.set(f) }

// OnLine sets a function that gets each event of a watch from the upstream, or nil: a line of JSON with its newline, or a
// frame of protobuf. It returns the bytes to forward, which may be none. With an error the watch ends in order after them.
func (h *Hop) OnLine(f func(r *http.Request, line []byte) ([]byte, error)) { h.onLine.set(f) }

// OnDelay sets a function that returns the delay of an event of a watch, or nil. Events of one watch keep their order.
func (h *Hop) OnDelay(f func(r *http.Request) time.Duration) { h.onDelay.set(f) }

// OnAnswer sets a function that gets the header of each answer before it is forwarded, or nil.
func (h *Hop) OnAnswer(f func(resp *http.Response)) { h.onAnswer.set(f) }

// Freeze holds back all requests and events until Thaw. Connections stay open.
func (h *Hop) Freeze() { h.frozen.Lock() }

// Thaw ends Freeze.
func (h *Hop) Thaw() { h.frozen.Unlock() }

// awaitThaw waits while the hop is frozen.
func (h *Hop) awaitThaw() {
	h.frozen.RLock()
	defer h.frozen.RUnlock()
}

// CutAll closes every connection to the hop.
func (h *Hop) CutAll() { h.listener.each(func(c *trackedConn) { _ = c.Conn.Close() }) }

// Connections returns the number of open connections to the hop.
func (h *Hop) Connections() (n int) {
	h.listener.each(func(*trackedConn) { n++ })
	return n
}

// SwallowAll makes every connection to the hop half-open, as if a balancer or a router had forgotten it: bytes in either
// direction disappear, and neither side notices an end. New connections are not affected.
func (h *Hop) SwallowAll() { h.listener.each(func(c *trackedConn) { c.swallows.Store(true) }) }

// ServeHTTP implements [http.Handler].
func (h *Hop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.awaitThaw()
	if onRequest := h.onRequest.get(); onRequest != nil && onRequest(w, r) {
		return
	}
	if err := h.rewriteBody(r); err != nil {
		panic(http.ErrAbortHandler)
	}
	h.forward.ServeHTTP(w, r)
}

// rewriteBody changes the revisions in the body of a request to the upstream's, unless the body is long. It keeps the body, so
// that package net/http can send the request again: all requests through the hop share one connection, and kube-apiserver
// closes it (GOAWAY) after each 401.
func (h *Hop) rewriteBody(r *http.Request) error {
	const maxKept = 1 << 20
	if r.ContentLength <= 0 || r.ContentLength > maxKept {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	body = replaceAt(body, revisionInObject, h.odd.upstreamRevision)
	r.ContentLength = int64(len(body))
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	r.Body, err = r.GetBody()
	return err
}

// modify changes an answer before it is forwarded. For a watch, it replaces the body by a pipe, into which pass writes the
// events one by one.
func (h *Hop) modify(resp *http.Response) error {
	r := resp.Request
	if onAnswer := h.onAnswer.get(); onAnswer != nil { //nolint:bodyclose // a function, not an answer
		onAnswer(resp)
	}
	if h.odd.UnknownFields {
		resp.Header.Set("X-Future", "true")
	}
	if resp.StatusCode != http.StatusOK || !isWatch(r) {
		return h.odd.changeAnswer(resp)
	}
	from, contentType := resp.Body, resp.Header.Get("Content-Type")
	pr, pw := io.Pipe()
	go func() {
		h.pass(r, contentType, events.NewReader(from, contentType), pw)
		_ = from.Close()
	}()
	resp.Body = pr
	return nil
}

// isWatch reports whether a request is a watch.
func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") != "" }

// event is an event of a watch, or the watch's end if err is not nil.
type event struct {
	line []byte // or a frame of protobuf
	err  error
	due  time.Time // the time at which the event is forwarded
}

// readAhead reads events in advance and says when each is due. If pass read an event only after it had forwarded the one
// before, delays would add up: three events with a delay of 1 s would come after 1, 2 and 3 s. Read in advance, all come after
// 1 s.
func (h *Hop) readAhead(r *http.Request, from *events.Reader) <-chan event {
	const maxAhead = 1 << 12
	ahead := make(chan event, maxAhead)
	go func() {
		defer close(ahead)
		for {
			line, err := from.Frame()
			e := event{line: line, err: err, due: time.Now()}
			if delay := h.onDelay.get(); delay != nil {
				e.due = e.due.Add(delay(r))
			}
			select {
			case ahead <- e:
			case <-r.Context().Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return ahead
}

// pass forwards a watch event by event: it waits until the event is due, and then lets the test and the Odd change it.
func (h *Hop) pass(r *http.Request, contentType string, from *events.Reader, to *io.PipeWriter) {
	for e := range h.readAhead(r, from) {
		line, err := e.line, e.err
		if err == nil && !clock.Sleep(r.Context(), time.Until(e.due)) {
			err = r.Context().Err()
		}
		if err != nil {
			_ = to.CloseWithError(err)
			return
		}
		h.awaitThaw()
		if onLine := h.onLine.get(); onLine != nil {
			line, err = onLine(r, line)
			if err != nil {
				_, _ = to.Write(line)
				_ = to.Close()
				return
			}
		}
		line, delay := h.odd.changeEvent(r, contentType, line)
		clock.Sleep(r.Context(), delay)
		if _, err := to.Write(line); err != nil {
			return
		}
	}
	_ = to.CloseWithError(context.Cause(r.Context()))
}

// trackingListener knows its connections, so that they can be cut.
type trackingListener struct {
	net.Listener
	idle  time.Duration // a connection without bytes for so long is reset; 0: never
	mu    sync.Mutex    // guards conns
	conns map[*trackedConn]struct{}
}

// Accept implements [net.Listener].
func (l *trackingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tracked := &trackedConn{Conn: conn, l: l}
	if l.idle > 0 {
		tracked.idleTimer = time.AfterFunc(l.idle, func() { reset(conn) })
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[tracked] = struct{}{}
	return tracked, nil
}

// each calls do with each connection.
func (l *trackingListener) each(do func(*trackedConn)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn := range l.conns {
		do(conn)
	}
}

// trackedConn is a connection of a trackingListener.
type trackedConn struct {
	net.Conn
	l         *trackingListener
	swallows  atomic.Bool // bytes in both directions are dropped
	idleTimer *time.Timer // nil without a limit
}

// resetIdle restarts the idle timer.
func (c *trackedConn) resetIdle() {
	if c.idleTimer != nil {
		c.idleTimer.Reset(c.l.idle)
	}
}

// Read implements [net.Conn].
func (c *trackedConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		c.resetIdle()
		if err != nil || !c.swallows.Load() {
			return n, err
		}
	}
}

// Write implements [net.Conn].
func (c *trackedConn) Write(p []byte) (int, error) {
	if c.swallows.Load() {
		return len(p), nil
	}
	c.resetIdle()
	return c.Conn.Write(p)
}

// Close implements [net.Conn].
func (c *trackedConn) Close() error {
	c.l.mu.Lock()
	delete(c.l.conns, c)
	c.l.mu.Unlock()
	return c.Conn.Close()
}
