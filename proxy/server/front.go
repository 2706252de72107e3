package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/elazarl/goproxy"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/proxy/certs"
	"github.com/listproxy/listproxy/proxy/inflight"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/observe"
)

const (
	readHeaderTimeout = 32 * time.Second // kube-apiserver's
	idleTimeout       = 90 * time.Second
	// maxHeaderBytes bounds the head of a request. Other proxies do the same; kube-apiserver takes 1 MiB.
	maxHeaderBytes = 64 << 10
	// maxStreams bounds the requests at a time on one HTTP/2 connection.
	maxStreams = 250
	// writeByteTimeout ends an HTTP/2 connection to which no byte could be written for this long.
	writeByteTimeout = 2 * time.Minute
	// A client's HTTP/2 connection without a frame for sendPingTimeout is sent a ping, and ends
	// after pingTimeout without an answer. The upstream's connections have the same times.
	sendPingTimeout = 30 * time.Second
	pingTimeout     = 15 * time.Second
	// uploadBufferPerStream and uploadBufferPerConnection bound the memory of uploads that the
	// upstream does not read. One such upload must not stop the others on its connection, so the
	// connection has room for sixteen of them.
	uploadBufferPerStream     = 128 << 10
	uploadBufferPerConnection = 2 << 20
)

// errNoDialing ends every attempt of goproxy to reach another host.
var errNoDialing = errors.New("listproxy's front does not connect to other hosts")

// NewFront returns a handler that passes requests for a path on to inner, with the same
// ResponseWriter, and refuses everything else that a client can ask of an HTTP proxy: CONNECT with
// 405 ([NewConnect] has a port of its own), and a whole URL, or *, in place of a path with 400. A
// request in a tunnel whose Host is not the tunnel's API server is refused with 421. The front never
// opens a connection, so nobody can reach other hosts through it.
func NewFront(inner http.Handler, log *slog.Logger) http.Handler {
	front := newGoproxy(log)
	front.NonproxyHandler = pathsOnly(inner)
	front.OnRequest().HandleConnectFunc(func(host string, ctx *goproxy.ProxyCtx) (*goproxy.ConnectAction, string) {
		//nolint:bodyclose // there is nothing to close in a body from memory
		ctx.Resp = refusal(ctx.Req, observe.RefusedConnect, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
			"listproxy does not open tunnels here: use this address as the server in your kubeconfig, and that of --connect-port as proxy-url.")
		return &goproxy.ConnectAction{Action: goproxy.ConnectReject}, host
	})
	front.OnRequest().DoFunc(func(r *http.Request, _ *goproxy.ProxyCtx) (*http.Request, *http.Response) {
		return r, refusal(r, observe.RefusedTarget, http.StatusBadRequest, metav1.StatusReasonBadRequest,
			"listproxy forwards to one API server only: ask for a path, not for a whole URL.")
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect && r.ProtoMajor == 1 {
			w = hijackable{w} // goproxy refuses on the bare connection
		}
		front.ServeHTTP(w, r)
	})
}

// newGoproxy returns a proxy server that cannot dial. Its user must add rules that answer every
// proxy request; a request that got past these rules would still reach nobody.
func newGoproxy(log *slog.Logger) *goproxy.ProxyHttpServer {
	p := goproxy.NewProxyHttpServer()
	p.Logger = debugPrinter{log}
	refuse := func(context.Context, string, string) (net.Conn, error) { return nil, errNoDialing }
	p.Tr = &http.Transport{DialContext: refuse, DialTLSContext: refuse}
	p.ConnectDial = func(string, string) (net.Conn, error) { return nil, errNoDialing }
	p.ConnectDialWithReq = func(*http.Request, string, string) (net.Conn, error) { return nil, errNoDialing }
	return p
}

// pathsOnly refuses the asterisk as request target, which goproxy lets through, and requests in a
// tunnel that are for another host than the tunnel's API server.
func pathsOnly(inner http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.RequestURI, "/") {
			observe.RecordOf(r.Context()).Refused(w.Header(), observe.RefusedTarget)
			kubehttp.WriteStatus(w, r, http.StatusBadRequest, metav1.StatusReasonBadRequest, "The request target must be a path.")
			return
		}
		if kubehttp.Misdirected(r) {
			observe.RecordOf(r.Context()).Refused(w.Header(), observe.RefusedMisdirected)
			kubehttp.WriteStatus(w, r, http.StatusMisdirectedRequest, metav1.StatusReasonBadRequest,
				"This tunnel leads to the API server only: the Host of a request must be the host that the CONNECT was for.")
			return
		}
		inner.ServeHTTP(w, r)
	})
}

// refusal is kubehttp.WriteStatus where goproxy wants a response. It records that the request is
// refused for why. The connection is closed after the response.
func refusal(r *http.Request, why string, code int, reason metav1.StatusReason, message string) *http.Response {
	body := kubehttp.EncodeStatus(code, reason, message)
	record := observe.RecordOf(r.Context())
	record.Refused(http.Header{}, why)
	if r.Method == http.MethodConnect && r.ProtoMajor == 1 {
		record.Sent(code, int64(len(body))) // goproxy takes the connection over
	}
	res := &http.Response{
		StatusCode: code, ProtoMajor: 1, ProtoMinor: 1, Request: r, Header: http.Header{}, Close: true,
		ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)),
	}
	kubehttp.SetStatusHeaders(res.Header, body)
	return res
}

// debugPrinter is a [goproxy.Logger].
type debugPrinter struct{ log *slog.Logger }

// Printf logs the format alone: the arguments may be whole requests, with credentials.
func (d debugPrinter) Printf(format string, _ ...any) {
	d.log.Debug("front", "message", strings.TrimSpace(format))
}

// New returns the HTTPS server for clients, with HTTP/1.1 and HTTP/2. It bounds headers, idle
// connections, streams and their buffers. It does not bound how long a request or an answer takes:
// watches and uploads take long. Serve clients with ServeTLS(listener, "", ""), since tlsConfig has
// the certificate, and tunnels with Serve([Tunnels]).
func New(handler http.Handler, tlsConfig *tls.Config, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		TLSConfig:         tlsConfig,
		ConnContext:       connectionContext,
		ConnState:         inflight.NoteState,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          maxStreams,
			MaxReceiveBufferPerStream:     uploadBufferPerStream,
			MaxReceiveBufferPerConnection: uploadBufferPerConnection,
			// Without pings, a client that vanished silently would keep its watches open upstream.
			SendPingTimeout: sendPingTimeout,
			PingTimeout:     pingTimeout,
			// [StallGuard] cannot end a stream whose whole connection is stuck.
			WriteByteTimeout: writeByteTimeout,
		},
		ErrorLog: serverErrorLog(log),
	}
}

// connectionContext is the ConnContext of [New]. It notes the connection, for the bounds on
// connections and for client certificates, and the tunnel that the connection runs in.
func connectionContext(ctx context.Context, conn net.Conn) context.Context {
	return certs.WithConnection(inflight.WithConnection(withTunnel(ctx, conn), conn))
}

// serverErrorLog logs net/http's own messages: at debug level those about failed handshakes, which
// every port scan and TCP health check causes, and all others as warnings.
func serverErrorLog(logger *slog.Logger) *log.Logger {
	return log.New(lineFunc(func(line string) {
		level := slog.LevelWarn
		if strings.HasPrefix(line, "http: TLS handshake error") {
			level = slog.LevelDebug
		}
		logger.Log(context.Background(), level, "server", "message", line)
	}), "", 0)
}

// lineFunc is an [io.Writer] for a [log.Logger], which writes a whole line at a time.
type lineFunc func(line string)

func (f lineFunc) Write(line []byte) (int, error) {
	f(strings.TrimSpace(string(line)))
	return len(line), nil
}
