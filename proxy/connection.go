package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"

	"github.com/listproxy/listproxy/proxy/certs"
)

// connection is what is known of the connection that a request came by.
type connection struct {
	bound *boundConn // nil: it is not bounded
}

type boundKey struct{}

// withConnection is the ConnContext of an http.Server.
func withConnection(ctx context.Context, conn net.Conn) context.Context {
	return certs.WithConnection(context.WithValue(withTunnel(ctx, conn), boundKey{}, &connection{bound: boundOf(conn)}))
}

// connectionOf returns the connection that a request of ctx came by, or nil.
func connectionOf(ctx context.Context) *connection {
	c, _ := ctx.Value(boundKey{}).(*connection)
	return c
}

// boundOf finds what a server's connection is on, in a tunnel too, or nil.
func boundOf(conn net.Conn) *boundConn {
	for {
		switch at := conn.(type) {
		case *boundConn:
			return at
		case *tls.Conn:
			conn = at.NetConn()
		case *tunnelConn:
			conn = at.Conn
		default:
			return nil
		}
	}
}

// noteState is the ConnState of an http.Server: it says when a connection has a request.
func noteState(conn net.Conn, state http.ConnState) {
	if bound := boundOf(conn); bound != nil && state != http.StateClosed {
		bound.head.reset(state == http.StateActive)
	}
}

// useConnection keeps the connection of a caller's request open ([Connections]) until end is called.
func useConnection(ctx context.Context, caller callerKey) (end func()) {
	if c := connectionOf(ctx); c != nil && c.bound != nil {
		return c.bound.use(caller)
	}
	return func() {}
}
