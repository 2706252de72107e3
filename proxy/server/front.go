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
	// maxHeaderBytes bounds the head of a request, as other proxies do: kube-apiserver takes 1 MiB.
	maxHeaderBytes = 64 << 10
	// maxStreams is the number of requests at a time on one connection.
	maxStreams = 250
	// writeByteTimeout ends an HTTP/2 connection that takes no byte for so long.
	writeByteTimeout = 2 * time.Minute
	// A client's HTTP/2 connection without a frame for sendPingTimeout is sent a ping, and ends
	// after pingTimeout without an answer. The upstream's connections have the same times.
	sendPingTimeout = 30 * time.Second
	pingTimeout     = 15 * time.Second
	// uploadBufferPerStream and uploadBufferPerConnection bound what uploads
	// hold in memory that are not read on, because the upstream does not. One
	// such upload must not stop the others on its connection, hence the larger
	// second number: that is for sixteen of them.
	uploadBufferPerStream     = 128 << 10
	uploadBufferPerConnection = 2 << 20
)

// errNoDialing is what every attempt of the front to reach another host ends
// with.
var errNoDialing = errors.New("listproxy's front does not connect to other hosts")

// NewFront returns the handler that decides by which door a request comes in.
// Requests for a path are served by inner, with the ResponseWriter as it came.
// Everything else that one can ask of an HTTP proxy is refused: CONNECT with
// 405 (it has a port of its own, [NewConnect]), and a whole URL, or *, in place
// of a path with 400. What comes by a tunnel must be for the tunnel's API server,
// else it is refused with 421. The front never connects to anything: it is no way to other hosts, whoever asks.
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

// newGoproxy returns a proxy server that has nothing to dial with. The rules that
// its user adds must answer every proxy request; should one ever get past them, it
// still reaches nobody.
func newGoproxy(log *slog.Logger) *goproxy.ProxyHttpServer {
	p := goproxy.NewProxyHttpServer()
	p.Logger = debugPrinter{log}
	refuse := func(context.Context, string, string) (net.Conn, error) { return nil, errNoDialing }
	p.Tr = &http.Transport{DialContext: refuse, DialTLSContext: refuse}
	p.ConnectDial = func(string, string) (net.Conn, error) { return nil, errNoDialing }
	p.ConnectDialWithReq = func(*http.Request, string, string) (net.Conn, error) { return nil, errNoDialing }
	return p
}

// pathsOnly refuses the one request target that is neither a path nor a proxy's
// business, the asterisk; and what came by a tunnel and is for somebody else than
// the tunnel's API server, since a client that reached the right server by CONNECT
// may have asked it for another's page.
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

// refusal is WriteStatus for where goproxy wants a response to a request that is refused for why. The
// connection is closed after it.
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

// Printf does not format anything, since arguments may be whole requests.
func (d debugPrinter) Printf(format string, _ ...any) {
	d.log.Debug("front", "message", strings.TrimSpace(format))
}

// NewServer returns the HTTPS server for clients: HTTP/1.1 and HTTP/2 with
// bounds on headers, on idle connections, on streams and on what they buffer,
// and none on how long a request or an answer takes, since watches and uploads
// take long. Serve it with ServeTLS(listener, "", ""): the certificate is in
// tlsConfig; and, on tunnels as well, with Serve([Tunnels]).
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
			// A client that has vanished without a word would keep its watches
			// upstream open.
			SendPingTimeout: sendPingTimeout,
			PingTimeout:     pingTimeout,
			// A stream whose connection is stuck cannot be ended (see StallGuard).
			WriteByteTimeout: writeByteTimeout,
		},
		ErrorLog: serverErrorLog(log),
	}
}

// connectionContext is the context of a connection's requests.
func connectionContext(ctx context.Context, conn net.Conn) context.Context {
	return certs.WithConnection(inflight.WithConnection(withTunnel(ctx, conn), conn))
}

// serverErrorLog takes net/http's own messages. Those about failed handshakes
// come with every port scan and health check and are of interest only to
// somebody who looks for them.
func serverErrorLog(logger *slog.Logger) *log.Logger {
	return log.New(lineFunc(func(line string) {
		level := slog.LevelWarn
		if strings.HasPrefix(line, "http: TLS handshake error") {
			level = slog.LevelDebug
		}
		logger.Log(context.Background(), level, "server", "message", line)
	}), "", 0)
}

// lineFunc is an [io.Writer] for a [log.Logger], which writes whole lines.
type lineFunc func(line string)

func (f lineFunc) Write(line []byte) (int, error) {
	f(strings.TrimSpace(string(line)))
	return len(line), nil
}
