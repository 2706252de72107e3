package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"

	"github.com/elazarl/goproxy"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/observe"
)

// errNoDialing ends every attempt of goproxy to reach another host.
var errNoDialing = errors.New("listproxy does not connect to other hosts")

// OnlyPaths returns a handler that passes requests for a path on to inner, with the same
// ResponseWriter, and refuses everything else that a client can ask of an HTTP proxy: CONNECT with
// 405 ([NewConnect] has a port of its own), and a whole URL, or *, in place of a path with 400. A
// request in a tunnel whose Host is not the tunnel's API server is refused with 421. The handler
// never opens a connection, so nobody can reach other hosts through it.
func OnlyPaths(inner http.Handler, log *slog.Logger) http.Handler {
	proxy, paths := newGoproxy(log), forThisServer(inner)
	proxy.OnRequest().HandleConnectFunc(func(host string, ctx *goproxy.ProxyCtx) (*goproxy.ConnectAction, string) {
		//nolint:bodyclose // there is nothing to close in a body from memory
		ctx.Resp = refusal(ctx.Req, observe.RefusedConnect, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
			"listproxy does not open tunnels here: use this address as the server in your kubeconfig, and that of --connect-port as proxy-url.")
		return &goproxy.ConnectAction{Action: goproxy.ConnectReject}, host
	})
	proxy.OnRequest().DoFunc(func(r *http.Request, _ *goproxy.ProxyCtx) (*http.Request, *http.Response) {
		return r, refusal(r, observe.RefusedTarget, http.StatusBadRequest, metav1.StatusReasonBadRequest,
			"listproxy forwards to one API server only: ask for a path, not for a whole URL.")
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodConnect && r.ProtoMajor == 1:
			w = hijackable{w} // goproxy refuses on the bare connection
		case r.Method != http.MethodConnect && !r.URL.IsAbs():
			paths.ServeHTTP(w, r) // as goproxy would do, which would stay on the stack
			return
		}
		proxy.ServeHTTP(w, r)
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

// forThisServer refuses the asterisk as request target, which goproxy lets through, and requests in
// a tunnel that are for another host than the tunnel's API server.
func forThisServer(inner http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.RequestURI, "/") {
			observe.RecordOf(r.Context()).Refused(observe.RefusedTarget)
			kubehttp.WriteStatus(w, r, http.StatusBadRequest, metav1.StatusReasonBadRequest, "The request target must be a path.")
			return
		}
		if kubehttp.Misdirected(r) {
			observe.RecordOf(r.Context()).Refused(observe.RefusedMisdirected)
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
	record.Refused(why)
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
	d.log.Debug("goproxy", "message", strings.TrimSpace(format))
}
