package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/elazarl/goproxy"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/observe"
)

const (
	// connectTimeout bounds each step of opening a tunnel: the head of the CONNECT, the TLS
	// handshake of its connection, the answer.
	connectTimeout = 10 * time.Second
	// connectHeaderBytes bounds the head of a CONNECT, with room for a large Proxy-Authorization.
	connectHeaderBytes = 64 << 10
	// tunnelBacklog bounds the tunnels that wait for the server to accept them. A running server
	// accepts them at once; one that ends leaves them waiting.
	tunnelBacklog = 128
)

// tunnelOpened is the answer to a CONNECT that is granted. HTTP/1.0 clients get it as HTTP/1.1 too
// (RFC 9110, 2.5).
const tunnelOpened = "HTTP/1.1 200 Connection established\r\n\r\n"

// withTunnel returns ctx with the tunnel that conn runs in, if there is one.
func withTunnel(ctx context.Context, conn net.Conn) context.Context {
	if t, ok := conn.(*tls.Conn); ok {
		if tunnel, ok := t.NetConn().(*tunnelConn); ok {
			return kubehttp.WithTunnel(ctx, tunnel.targets.AllowHost)
		}
	}
	return ctx
}

// Tunnels is a net.Listener whose connections are the tunnels of clients that sent CONNECT for the
// API server to the port of [NewConnect]. The http.Server of the main port serves them too, so TLS,
// HTTP/2, timeouts, the recovery of panics, cancellation, upgrades and the shutdown are the same
// inside a tunnel. The certificate is one for the API server's names.
//
// It is safe for concurrent use.
type Tunnels struct {
	targets Targets
	config  *tls.Config
	waiting chan *tunnelConn

	closed chan struct{}
	close  sync.Once
}

// NewTunnels returns Tunnels to targets, with TLS by config (see [TLS.Config]).
func NewTunnels(targets Targets, config *tls.Config) *Tunnels {
	return &Tunnels{
		targets: targets, config: config,
		waiting: make(chan *tunnelConn, tunnelBacklog), closed: make(chan struct{}),
	}
}

var _ net.Listener = (*Tunnels)(nil)

// Accept implements net.Listener. It returns a *tls.Conn before its handshake, which the
// http.Server does, with a timeout, as on its own port.
func (t *Tunnels) Accept() (net.Conn, error) {
	select {
	case <-t.closed:
		return nil, net.ErrClosed
	default:
	}
	select {
	case <-t.closed:
		return nil, net.ErrClosed
	case conn := <-t.waiting:
		return tls.Server(conn, t.config), nil
	}
}

// Close implements net.Listener. It closes tunnels that nobody has accepted.
func (t *Tunnels) Close() error {
	t.close.Do(func() { close(t.closed) })
	t.drain()
	return nil
}

// drain closes the tunnels that wait to be accepted.
func (t *Tunnels) drain() {
	for {
		select {
		case conn := <-t.waiting:
			_ = conn.Close()
		default:
			return
		}
	}
}

// Addr implements net.Listener.
func (t *Tunnels) Addr() net.Addr { return tunnelAddr{} }

type tunnelAddr struct{}

func (tunnelAddr) Network() string { return "tunnel" }
func (tunnelAddr) String() string  { return "tunnel" }

// offer hands conn over to be accepted, and closes it if there is no room or the Tunnels are
// closed.
func (t *Tunnels) offer(conn *tunnelConn) {
	select {
	case <-t.closed:
		_ = conn.Close()
		return
	default:
	}
	select {
	case t.waiting <- conn:
	default:
		_ = conn.Close()
	}
	select {
	case <-t.closed: // since the look above: Close may not have seen conn
		t.drain()
	default:
	}
}

// hijack answers a CONNECT that is granted, and offers its connection.
func (t *Tunnels) hijack(_ *http.Request, conn net.Conn, _ *goproxy.ProxyCtx) {
	tunnel, ok := conn.(*tunnelConn)
	if !ok {
		_ = conn.Close() // newConnectHandler has not wrapped the writer
		return
	}
	// Until now the deadline is the one that hijackable has set.
	if _, err := io.WriteString(conn, tunnelOpened); err != nil || conn.SetDeadline(time.Time{}) != nil {
		_ = conn.Close()
		return
	}
	tunnel.targets = t.targets
	t.offer(tunnel)
}

// tunnelConn is a tunnel's connection with the client. Its RemoteAddr is the client's.
type tunnelConn struct {
	net.Conn
	// early is what net/http has already read beyond the CONNECT: a client may begin its TLS before
	// it has the answer (RFC 9110, 9.3.6).
	early   bytes.Reader
	targets Targets
}

// NetConn returns the connection that the tunnel runs over.
func (c *tunnelConn) NetConn() net.Conn { return c.Conn }

// Read implements net.Conn.
func (c *tunnelConn) Read(p []byte) (int, error) {
	if c.early.Len() > 0 {
		return c.early.Read(p)
	}
	return c.Conn.Read(p)
}

// hijackable makes goproxy's Hijack return a *tunnelConn with a deadline. goproxy itself drops what
// net/http has read beyond the request, and sets no deadline.
type hijackable struct{ http.ResponseWriter }

var _ http.Hijacker = hijackable{}

// Hijack implements http.Hijacker.
func (w hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	tunnel := &tunnelConn{Conn: conn}
	early, err := rw.Reader.Peek(rw.Reader.Buffered())
	if err == nil {
		err = conn.SetDeadline(time.Now().Add(connectTimeout))
	}
	if err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	tunnel.early.Reset(bytes.Clone(early))
	return tunnel, rw, nil
}

// Unwrap lets http.ResponseController find what else the writer can do.
func (w hijackable) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// NewConnect returns the server for the port of CONNECT: HTTP/1.1, over TLS if there is a tlsConfig
// (see [TLS.ConnectConfig]). A CONNECT to one of the targets of tunnels becomes a tunnel, whoever
// asks: callers are authenticated by the requests inside. Every other CONNECT is refused with 403,
// and every other request with 400. The observer counts refusals, and log has
// their access lines. The server never opens a connection.
func NewConnect(tunnels *Tunnels, tlsConfig *tls.Config, observer *observe.Observer, log *slog.Logger) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler:           observer.Observe(newConnectHandler(tunnels, log), log),
		TLSConfig:         tlsConfig,
		Protocols:         protocols,
		ReadHeaderTimeout: connectTimeout,
		// For refusals: a tunnel has the deadlines of the server that accepts it.
		ReadTimeout:    connectTimeout,
		WriteTimeout:   connectTimeout,
		IdleTimeout:    connectTimeout,
		MaxHeaderBytes: connectHeaderBytes,
		ErrorLog:       serverErrorLog(log),

		DisableGeneralOptionsHandler: true, // it would answer OPTIONS *
	}
}

func newConnectHandler(tunnels *Tunnels, log *slog.Logger) http.Handler {
	const onlyConnect = "This port of listproxy is for CONNECT only, as proxy-url in a kubeconfig. To use listproxy as " +
		"the server, take its other port."
	front := newGoproxy(log)
	front.NonproxyHandler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		observe.RecordOf(r.Context()).Refused(observe.RefusedNoConnect)
		kubehttp.WriteStatus(w, r, http.StatusBadRequest, metav1.StatusReasonBadRequest, onlyConnect)
	})
	front.OnRequest().HandleConnectFunc(func(host string, ctx *goproxy.ProxyCtx) (*goproxy.ConnectAction, string) {
		// RequestURI is what the client wrote; net/http has already parsed the host out of it. Both
		// must be the same.
		if r := ctx.Req; r.RequestURI == host && tunnels.targets.allowConnect(r.RequestURI) {
			observe.RecordOf(r.Context()).Ignore() // the requests in the tunnel have records
			return &goproxy.ConnectAction{Action: goproxy.ConnectHijack, Hijack: tunnels.hijack}, host
		}
		return nil, host // the next rule decides
	})
	// The last rule refuses every CONNECT, since goproxy would grant one that no rule is for.
	front.OnRequest().HandleConnectFunc(func(host string, ctx *goproxy.ProxyCtx) (*goproxy.ConnectAction, string) {
		//nolint:bodyclose // there is nothing to close in a body from memory
		ctx.Resp = refusal(ctx.Req, observe.RefusedConnect, http.StatusForbidden, metav1.StatusReasonForbidden,
			"listproxy opens tunnels to its own API server only, which is "+tunnels.targets.String()+".")
		return &goproxy.ConnectAction{Action: goproxy.ConnectReject}, host
	})
	front.OnRequest().DoFunc(func(r *http.Request, _ *goproxy.ProxyCtx) (*http.Request, *http.Response) {
		return r, refusal(r, observe.RefusedNoConnect, http.StatusBadRequest, metav1.StatusReasonBadRequest, onlyConnect)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect {
			if r.ContentLength != 0 || len(r.TransferEncoding) > 0 {
				// One reader may read these bytes as the body, another as bytes in the tunnel.
				w.Header().Set("Connection", "close")
				observe.RecordOf(r.Context()).Refused(observe.RefusedConnect)
				kubehttp.WriteStatus(w, r, http.StatusBadRequest, metav1.StatusReasonBadRequest, "A CONNECT has no body.")
				return
			}
			w = hijackable{w}
		}
		front.ServeHTTP(w, r)
	})
}
