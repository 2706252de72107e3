package inflight

import (
	"context"
	"net"
	"net/http"
)

// boundKey is the key of a *boundConn in the contexts of its requests.
type boundKey struct{}

// WithConnection returns the context of the requests on conn, for [UseConnection]. It can be the
// ConnContext of an http.Server.
func WithConnection(ctx context.Context, conn net.Conn) context.Context {
	if bound := boundOf(conn); bound != nil {
		return context.WithValue(ctx, boundKey{}, bound)
	}
	return ctx
}

// boundOf finds the bounded connection under a server's, through TLS and tunnels, or nil.
func boundOf(conn net.Conn) *boundConn {
	for {
		switch at := conn.(type) {
		case *boundConn:
			return at
		case interface{ NetConn() net.Conn }: // as *tls.Conn
			conn = at.NetConn()
		default:
			return nil
		}
	}
}

// NoteState is the ConnState of an http.Server: it notes when a connection has a request. A hijacked
// connection has one: an upgraded exec or port-forward, or a tunnel. A tunnel begins anew, with
// StateNew, when the server inside it accepts it.
func NoteState(conn net.Conn, state http.ConnState) {
	bound := boundOf(conn)
	if bound == nil {
		return
	}
	switch state {
	case http.StateNew, http.StateIdle:
		bound.head.reset(false)
	case http.StateActive, http.StateHijacked:
		bound.head.reset(true)
	case http.StateClosed: // Close gives everything back
	}
}

// UseConnection keeps the connection of a caller's request open ([Connections]) until end is
// called.
func UseConnection(ctx context.Context, caller ShareKey) (end func()) {
	if bound, ok := ctx.Value(boundKey{}).(*boundConn); ok {
		return bound.use(caller)
	}
	return func() {}
}
