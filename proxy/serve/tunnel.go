package serve

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	stdlog "log"
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

// Tunnels is a [net.Listener]. It accepts the tunnels to the API server that clients open by a CONNECT at the port of
// [NewConnect]. The [http.Server] of the main port serves these tunnels, so requests inside a tunnel are handled like all
// others. The certificate is the same, too, so it must also have the API server's names.
//
// Tunnels is safe for concurrent use.
type Tunnels struct {
	targets Targets
	config  *tls.Config
	opened  chan *tunnelConn

	closed chan struct{}
	close  sync.Once
}

const (
	// connectTimeout bounds each step of opening a tunnel: the TLS handshake, the head of the CONNECT, the answer.
	connectTimeout = 10 * time.Second
	// connectHeaderBytes bounds the head of a CONNECT, with room for a large Proxy-Authorization.
	connectHeaderBytes = 64 << 10
	// tunnelOpened is the answer to a CONNECT that is granted, also over HTTP/1.0 (RFC 9110, 2.5).
	tunnelOpened = "HTTP/1.1 200 Connection established\r\n\r\n"
)

// NewTunnels returns Tunnels to targets, with TLS by config (see [Certificates.TLS]).
func NewTunnels(targets Targets, config *tls.Config) *Tunnels {
	return &Tunnels{targets: targets, config: config, opened: make(chan *tunnelConn), closed: make(chan struct{})}
}

var _ net.Listener = (*Tunnels)(nil)

// Accept implements [net.Listener]. It returns a [tls.Conn] before its handshake: the [http.Server] does that, with a
// timeout, as on its own port.
func (t *Tunnels) Accept() (net.Conn, error) {
	select {
	case <-t.closed:
		return nil, net.ErrClosed
	case conn := <-t.opened:
		return tls.Server(conn, t.config), nil
	}
}

// Close implements [net.Listener]. It closes tunnels that were not accepted.
func (t *Tunnels) Close() error {
	t.close.Do(func() { close(t.closed) })
	return nil
}

// Addr implements [net.Listener].
func (t *Tunnels) Addr() net.Addr { return tunnelAddr{} }

type tunnelAddr struct{}

func (tunnelAddr) Network() string { return "tunnel" }
func (tunnelAddr) String() string  { return "tunnel" }

// open answers a CONNECT that is granted, and waits until its connection is accepted. It is a handler of goproxy.
func (t *Tunnels) open(_ *http.Request, conn net.Conn, _ *goproxy.ProxyCtx) {
	tunnel, ok := conn.(*tunnelConn)
	if !ok {
		_ = conn.Close() // cannot happen: hijackable returns a tunnelConn
		return
	}
	// The deadline that hijackable has set ends here.
	if _, err := io.WriteString(conn, tunnelOpened); err != nil || conn.SetDeadline(time.Time{}) != nil {
		_ = conn.Close()
		return
	}
	select {
	case t.opened <- tunnel:
	case <-t.closed:
		_ = conn.Close()
	}
}

// withListener returns ctx with the listener by which conn came.
func withListener(ctx context.Context, conn net.Conn) context.Context {
	if t, ok := conn.(*tls.Conn); ok {
		if _, ok := t.NetConn().(*tunnelConn); ok {
			return kubehttp.WithTunnel(ctx)
		}
	}
	return ctx
}

// tunnelConn is a tunnel's connection with the client. Its RemoteAddr is the client's.
type tunnelConn struct {
	net.Conn
	// in begins with the bytes that net/http has read after the CONNECT: a client may begin its TLS handshake before it
	// has the answer (RFC 9110, 9.3.6).
	in io.Reader
}

// NetConn returns the connection that the tunnel runs over.
func (c *tunnelConn) NetConn() net.Conn { return c.Conn }

// Read implements [net.Conn].
func (c *tunnelConn) Read(p []byte) (int, error) { return c.in.Read(p) }

// hijackable is a ResponseWriter from which goproxy gets a *tunnelConn with a deadline. (goproxy itself drops the bytes that
// net/http has read after the request, and sets no deadline.)
type hijackable struct{ http.ResponseWriter }

var _ http.Hijacker = hijackable{}

// Hijack implements [http.Hijacker].
func (w hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	early, err1 := rw.Reader.Peek(rw.Reader.Buffered())
	err2 := conn.SetDeadline(time.Now().Add(connectTimeout))
	if err := errors.Join(err1, err2); err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	return &tunnelConn{Conn: conn, in: io.MultiReader(bytes.NewReader(bytes.Clone(early)), conn)}, rw, nil
}

// Unwrap lets [http.ResponseController] find what else the writer can do.
func (w hijackable) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// NewConnect returns the server of the port for CONNECT: HTTP/1.1 over TLS by tlsConfig (see
// [Certificates.ConnectTLS]). Anybody's CONNECT to one of the targets of tunnels becomes a tunnel, since callers are
// authenticated by the requests inside. Every other CONNECT is refused with 403, and every other request with 400. The
// observer counts refusals, and writes them to the access log. The server never opens a connection.
func NewConnect(tunnels *Tunnels, tlsConfig *tls.Config, observer *observe.Observer, log *slog.Logger) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return allowHeaderValues(&http.Server{
		Handler:           observer.Observe(newConnectHandler(tunnels), log),
		TLSConfig:         tlsConfig,
		Protocols:         protocols,
		ReadHeaderTimeout: connectTimeout,
		// These are for refusals. A tunnel has the deadlines of the server that accepts it.
		ReadTimeout:    connectTimeout,
		WriteTimeout:   connectTimeout,
		IdleTimeout:    connectTimeout,
		MaxHeaderBytes: connectHeaderBytes,
		ErrorLog:       serverErrorLog(log),

		DisableGeneralOptionsHandler: true, // it would answer OPTIONS *
	})
}

// newConnectHandler returns the handler of [NewConnect].
func newConnectHandler(tunnels *Tunnels) http.Handler {
	front := newGoproxy()
	front.OnRequest().HandleConnectFunc(func(host string, ctx *goproxy.ProxyCtx) (*goproxy.ConnectAction, string) {
		// RequestURI has the bytes of the client, and net/http has parsed the host out of it. Both must be the same.
		r := ctx.Req
		if r.RequestURI == host && tunnels.targets.allowConnect(host) {
			observe.RecordOf(r.Context()).Ignore() // the requests in the tunnel have records
			return &goproxy.ConnectAction{Action: goproxy.ConnectHijack, Hijack: tunnels.open}, host
		}
		// goproxy would grant a CONNECT for which there is no rule.
		ctx.Resp = refuseConnect(r, tunnels.targets) //nolint:bodyclose // a body from memory has nothing to close
		return &goproxy.ConnectAction{Action: goproxy.ConnectReject}, host
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodConnect:
			refuse(w, r, observe.RefusedNoConnect, http.StatusBadRequest, metav1.StatusReasonBadRequest, "This port of listproxy is for "+
				"CONNECT only, as proxy-url in a kubeconfig. To use listproxy as the server, take its other port.")
		case r.ContentLength != 0 || len(r.TransferEncoding) > 0:
			// One program may read these bytes as a body, and another as bytes in the tunnel.
			w.Header().Set("Connection", "close")
			refuse(w, r, observe.RefusedConnect, http.StatusBadRequest, metav1.StatusReasonBadRequest, "A CONNECT has no body.")
		default:
			front.ServeHTTP(hijackable{w}, r)
		}
	})
}

// newGoproxy returns a proxy server that cannot dial. So a request without a rule goes nowhere.
func newGoproxy() *goproxy.ProxyHttpServer {
	p := goproxy.NewProxyHttpServer()
	p.Logger = stdlog.New(io.Discard, "", 0) // goproxy logs whole requests, with credentials
	refuse := func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("listproxy does not connect to other hosts")
	}
	p.Tr = &http.Transport{DialContext: refuse, DialTLSContext: refuse}
	p.ConnectDial = func(string, string) (net.Conn, error) { return refuse(nil, "", "") }
	return p
}

// refuseConnect returns the 403 that goproxy sends. The connection is closed after it.
func refuseConnect(r *http.Request, targets Targets) *http.Response {
	const code = http.StatusForbidden
	body := kubehttp.EncodeStatus(code, metav1.StatusReasonForbidden,
		"listproxy opens tunnels to its own API server only, which is "+targets.String()+".")
	record := observe.RecordOf(r.Context())
	record.SetRefused(observe.RefusedConnect)
	record.SetSent(code, int64(len(body))) // goproxy takes the connection over
	res := goproxy.NewResponse(r, "", code, string(body))
	res.ProtoMajor, res.ProtoMinor, res.Close = 1, 1, true
	kubehttp.SetStatusHeaders(res.Header, body)
	return res
}
