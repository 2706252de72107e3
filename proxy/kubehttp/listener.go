package kubehttp

import (
	"context"
	"net/http"
)

// Listener names the port by which a connection came. Its value is written into logs and traces.
type Listener string

// The listeners.
const (
	// ListenerServer is the port that a kubeconfig names as its server.
	ListenerServer Listener = "server"
	// ListenerTunnel is the port that a kubeconfig names as its proxy-url.
	ListenerTunnel Listener = "tunnel"
)

// tunnelKey is the key of a tunnel's AllowHost in the contexts of its requests.
type tunnelKey struct{}

// WithTunnel returns the context of requests that come through a tunnel. allowHost says whether
// a Host header is one of the server that the tunnel was opened for.
func WithTunnel(ctx context.Context, allowHost func(host string) bool) context.Context {
	return context.WithValue(ctx, tunnelKey{}, allowHost)
}

// ListenerOf returns the listener by which the request with this context came.
func ListenerOf(ctx context.Context) Listener {
	if _, tunnelled := ctx.Value(tunnelKey{}).(func(string) bool); tunnelled {
		return ListenerTunnel
	}
	return ListenerServer
}

// Misdirected reports whether r came through a tunnel and is for another server than the tunnel's.
func Misdirected(r *http.Request) bool {
	allowHost, tunnelled := r.Context().Value(tunnelKey{}).(func(string) bool)
	return tunnelled && !allowHost(r.Host)
}
