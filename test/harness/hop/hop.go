// Package hop is a fault-injecting hop on loopback: a TLS reverse proxy that a test puts before
// the API server, and through which it cuts, delays, refuses and falsifies what passes.
package hop

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
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

// ErrCut is what a line function returns to break the connection in the middle of the answer.
var ErrCut = errors.New("cut by the test")

// Hop forwards requests to an upstream. Its faults may be changed at any time.
type Hop struct {
	server   *httptest.Server
	listener *trackingListener
	forward  *httputil.ReverseProxy
	odd      Odd

	frozen sync.RWMutex // locked while everything is held back

	intercept hook[func(w http.ResponseWriter, r *http.Request) bool]
	line      hook[func(r *http.Request, line []byte) ([]byte, error)]
	delay     hook[func(r *http.Request) time.Duration]
	answered  hook[func(resp *http.Response)]
}

// hook is a function that may be changed at any time; nil at first.
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
				pr.Out.Header.Del("Accept-Encoding") // its events are to be seen
			}
			odd.request(pr.Out)
		},
		Transport: &http.Transport{
			TLSClientConfig:    &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			ForceAttemptHTTP2:  true,
			DisableCompression: true,
		},
		FlushInterval:  -1,
		ErrorLog:       silence(), // what breaks here is meant to
		ModifyResponse: h.modify,
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, _ error) {
			panic(http.ErrAbortHandler) // as if the API server itself could not be reached
		},
	}
	h.server = httptest.NewUnstartedServer(h)
	h.listener = &trackingListener{Listener: h.server.Listener, idle: odd.Idle, conns: map[*trackedConn]struct{}{}}
	h.server.Listener, h.server.Config.ErrorLog = h.listener, silence()
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

// Own reports whether a request is one of listproxy's own, as opposed to a caller's.
func Own(r *http.Request) bool { return strings.HasPrefix(r.UserAgent(), "listproxy/") }

func silence() *log.Logger { return log.New(io.Discard, "", 0) }

// URL and CA say how to reach the hop.
func (h *Hop) URL() string { return h.server.URL }

// CA is the PEM of the authority that signed the hop's certificate.
func (h *Hop) CA() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.server.Certificate().Raw})
}

// RESTConfig returns a client's configuration, pointed at the hop.
func (h *Hop) RESTConfig(direct *rest.Config) *rest.Config {
	cfg := rest.CopyConfig(direct)
	cfg.Host, cfg.CAData, cfg.CAFile = h.URL(), h.CA(), ""
	return cfg
}

// Close ends the hop and all that passes.
func (h *Hop) Close() {
	_ = h.server.Config.Close() // which waits for nobody
}

// OnRequest sets what sees each request first; if it returns true, it has answered. nil: none.
func (h *Hop) OnRequest(f func(w http.ResponseWriter, r *http.Request) bool) { h.intercept.set(f) }

// OnLine sets what sees each line (with its newline; each frame, of a protobuf watch) of a watch
// from the upstream, and says what goes on: other bytes, nothing (nil), or an end (ErrCut; any
// other error ends it cleanly). nil: none.
func (h *Hop) OnLine(f func(r *http.Request, line []byte) ([]byte, error)) { h.line.set(f) }

// OnDelay sets how much later than it came each event of a watch from the upstream goes on. Events
// of one watch keep their order. nil: none.
func (h *Hop) OnDelay(f func(r *http.Request) time.Duration) { h.delay.set(f) }

// OnAnswer sets what sees the head of each answer from the upstream, before it goes on. nil: none.
func (h *Hop) OnAnswer(f func(resp *http.Response)) { h.answered.set(f) }

// Freeze holds back everything, both what comes in and what goes on, until Thaw. Connections
// stay open: the other side just hears nothing.
func (h *Hop) Freeze() { h.frozen.Lock() }

// Thaw ends Freeze.
func (h *Hop) Thaw() { h.frozen.Unlock() }

// awaitThaw waits while everything is held back.
func (h *Hop) awaitThaw() {
	h.frozen.RLock()
	defer h.frozen.RUnlock()
}

// CutAll breaks every connection to the hop.
func (h *Hop) CutAll() { h.listener.each(func(c *trackedConn) { _ = c.Conn.Close() }) }

// Connections is how many there are to the hop.
func (h *Hop) Connections() (n int) {
	h.listener.each(func(*trackedConn) { n++ })
	return n
}

// SwallowAll makes every connection to the hop half-open, for good, as where a balancer or a router
// has forgotten it: what is sent in either direction disappears, and nobody hears of an end. New
// connections are not touched.
func (h *Hop) SwallowAll() { h.listener.each(func(c *trackedConn) { c.swallows.Store(true) }) }

func (h *Hop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.awaitThaw()
	if intercept := h.intercept.get(); intercept != nil && intercept(w, r) {
		return
	}
	if err := h.keepBody(r); err != nil {
		panic(http.ErrAbortHandler)
	}
	h.forward.ServeHTTP(w, r)
}

// keepBody makes the body of a request one that can be sent again, unless it is long.
// kube-apiserver closes the connection (GOAWAY) after each 401, and all that pass the hop share it.
func (h *Hop) keepBody(r *http.Request) error {
	const most = 1 << 20
	if r.ContentLength <= 0 || r.ContentLength > most {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	body = within(body, inObjects, h.odd.upstreamRevision)
	r.ContentLength = int64(len(body))
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	r.Body, err = r.GetBody()
	return err
}

func (h *Hop) modify(resp *http.Response) error {
	r := resp.Request
	if answered := h.answered.get(); answered != nil { //nolint:bodyclose // no answer, but what looks at one
		answered(resp)
	}
	if h.odd.Unknown {
		resp.Header.Set("X-Future", "true")
	}
	if resp.StatusCode != http.StatusOK || !isWatch(r) {
		return h.odd.answer(resp)
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

func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") != "" }

// event is one of a watch, or its end.
type event struct {
	line []byte
	err  error
	due  time.Time // when it goes on
}

// read reads events ahead, so that each can be held back for as long as the others.
func (h *Hop) read(r *http.Request, from *events.Reader) <-chan event {
	const ahead = 1 << 12
	read := make(chan event, ahead)
	go func() {
		defer close(read)
		for {
			line, err := from.Frame()
			e := event{line: line, err: err, due: time.Now()}
			if delay := h.delay.get(); delay != nil {
				e.due = e.due.Add(delay(r))
			}
			select {
			case read <- e:
			case <-r.Context().Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return read
}

// pass hands on a watch, event by event.
func (h *Hop) pass(r *http.Request, contentType string, from *events.Reader, to *io.PipeWriter) {
	for e := range h.read(r, from) {
		line, err := e.line, e.err
		if err == nil && !clock.Sleep(r.Context(), time.Until(e.due)) {
			err = r.Context().Err()
		}
		if err != nil {
			_ = to.CloseWithError(err)
			return
		}
		h.awaitThaw()
		if change := h.line.get(); change != nil {
			if line, err = change(r, line); err != nil {
				if !errors.Is(err, ErrCut) {
					err = io.EOF
				}
				_, _ = to.Write(line)
				_ = to.CloseWithError(err)
				return
			}
		}
		line, late := h.odd.event(r, contentType, line)
		clock.Sleep(r.Context(), late)
		if _, err := to.Write(line); err != nil {
			return
		}
	}
	_ = to.CloseWithError(context.Cause(r.Context()))
}

// trackingListener remembers its connections, so that they can be cut.
type trackingListener struct {
	net.Listener
	idle  time.Duration // after which silence a connection is reset
	mu    sync.Mutex
	conns map[*trackedConn]struct{}
}

func (l *trackingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tracked := &trackedConn{Conn: conn, l: l}
	if l.idle > 0 {
		tracked.silence = time.AfterFunc(l.idle, func() {
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0) // RST is sent
			}
			_ = conn.Close()
		})
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[tracked] = struct{}{}
	return tracked, nil
}

func (l *trackingListener) each(do func(*trackedConn)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn := range l.conns {
		do(conn)
	}
}

type trackedConn struct {
	net.Conn
	l        *trackingListener
	swallows atomic.Bool
	silence  *time.Timer // nil: it may last
}

// heard begins the silence anew.
func (c *trackedConn) heard() {
	if c.silence != nil {
		c.silence.Reset(c.l.idle)
	}
}

func (c *trackedConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		c.heard()
		if err != nil || !c.swallows.Load() {
			return n, err
		}
	}
}

func (c *trackedConn) Write(p []byte) (int, error) {
	if c.swallows.Load() {
		return len(p), nil
	}
	c.heard()
	return c.Conn.Write(p)
}

func (c *trackedConn) Close() error {
	c.l.mu.Lock()
	delete(c.l.conns, c)
	c.l.mu.Unlock()
	return c.Conn.Close()
}
