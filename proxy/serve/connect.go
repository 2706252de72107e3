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
	"time"

	"github.com/elazarl/goproxy"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/observe"
)

// connectTimeout bounds each step of opening a tunnel: the TLS handshake, the head of the CONNECT, the answer.
const connectTimeout = 10 * time.Second

// NewConnectServer returns the server of the CONNECT port. It speaks HTTP/1.1 over TLS (see [Certificates.ConnectTLS]). A
// CONNECT to one of the targets of tunnels becomes a tunnel, whoever sends it: callers are authenticated by the requests
// inside. A CONNECT to any other target is refused with 403. A CONNECT with a body, and all other requests, are refused with
// 400. The observer counts refusals, and writes them to the access log. The server never opens a connection.
func NewConnectServer(tunnels *Tunnels, tlsConfig *tls.Config, observer *observe.Observer, log *slog.Logger) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return raiseHeaderValueLimit(&http.Server{
		Handler:   observer.Observe(newConnectHandler(tunnels), log),
		TLSConfig: tlsConfig,
		Protocols: protocols,
		// ReadTimeout also bounds the time of the head, and the idle time after a refusal. A tunnel gets the deadlines of the
		// server that accepts it.
		ReadTimeout:    connectTimeout,
		WriteTimeout:   connectTimeout,
		MaxHeaderBytes: 64 << 10, // with room for a large Proxy-Authorization
		ErrorLog:       serverErrorLog(log),

		DisableGeneralOptionsHandler: true, // the handler refuses OPTIONS *, too
	})
}

// newConnectHandler returns the handler of [NewConnectServer].
func newConnectHandler(tunnels *Tunnels) http.Handler {
	proxy := newGoproxy(tunnels)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodConnect:
			refuseBadRequest(w, r, observe.RefusedNoConnect, "This port of listproxy is for "+
				"CONNECT only, as proxy-url in a kubeconfig. To use listproxy as the server, take its other port.")
		case r.ContentLength != 0 || len(r.TransferEncoding) > 0:
			// One program may read these bytes as a body, and another as bytes in the tunnel.
			w.Header().Set("Connection", "close")
			refuseBadRequest(w, r, observe.RefusedConnect, "A CONNECT has no body.")
		default:
			proxy.ServeHTTP(connectWriter{w}, r)
		}
	})
}

// newGoproxy returns a proxy server that turns a CONNECT to one of the targets into a tunnel, and refuses any other CONNECT. As
// a second protection, all its dialers fail, so it can connect to no host.
func newGoproxy(tunnels *Tunnels) *goproxy.ProxyHttpServer {
	proxy := goproxy.NewProxyHttpServer()
	proxy.Logger = stdlog.New(io.Discard, "", 0) // goproxy logs whole requests, with credentials
	errNoDial := errors.New("listproxy does not connect to other hosts")
	failDial := func(context.Context, string, string) (net.Conn, error) { return nil, errNoDial }
	proxy.Tr = &http.Transport{DialContext: failDial, DialTLSContext: failDial}
	proxy.ConnectDial = func(string, string) (net.Conn, error) { return nil, errNoDial }

	proxy.OnRequest().HandleConnectFunc(func(host string, ctx *goproxy.ProxyCtx) (*goproxy.ConnectAction, string) {
		// host is what net/http has parsed from RequestURI, the client's own bytes. If the two differ, net/http has dropped a
		// part, like user@ or a path. Then the client may mean another host, so the CONNECT is refused.
		r := ctx.Req
		if r.RequestURI == host && tunnels.targets.contains(host) {
			observe.RecordOf(r.Context()).Ignore() // the requests in the tunnel have records
			return &goproxy.ConnectAction{Action: goproxy.ConnectHijack, Hijack: tunnels.open}, host
		}
		ctx.Resp = refuseConnect(r, tunnels.targets) //nolint:bodyclose // a body from memory has nothing to close
		return &goproxy.ConnectAction{Action: goproxy.ConnectReject}, host
	})
	return proxy
}

// refuseConnect records that a CONNECT is refused, and returns the 403 that goproxy sends before it closes the connection.
func refuseConnect(r *http.Request, targets Targets) *http.Response {
	const code = http.StatusForbidden
	body := kubehttp.EncodeStatus(code, metav1.StatusReasonForbidden,
		"listproxy opens tunnels to its own API server only, which is "+targets.String()+".")
	record := observe.RecordOf(r.Context())
	record.SetRefused(observe.RefusedConnect)
	record.SetHijackedAnswer(code, int64(len(body))) // goproxy writes the answer on the hijacked connection
	res := goproxy.NewResponse(r, "", code, string(body))
	res.Close = true
	kubehttp.SetStatusHeaders(res.Header, body)
	return res
}

// connectWriter is the ResponseWriter of a CONNECT. goproxy hijacks the connection, sets no deadline, and ignores the bytes
// that net/http has already read after the CONNECT. So Hijack returns a connection that has a deadline, and begins with these
// bytes.
type connectWriter struct{ http.ResponseWriter }

var _ http.Hijacker = connectWriter{}

// Hijack implements [http.Hijacker]. The connection is a *tunnelConn. [Tunnels] removes its deadline, connectTimeout from now.
func (w connectWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(connectTimeout)); err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	early, _ := rw.Reader.Peek(rw.Reader.Buffered()) // never fails, since the bytes are in the buffer
	in := io.MultiReader(bytes.NewReader(bytes.Clone(early)), conn)
	return &tunnelConn{Conn: conn, in: in}, rw, nil
}
