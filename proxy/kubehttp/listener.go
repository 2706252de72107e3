package kubehttp

import "context"

// tunnelKey is the context key of requests that come through a tunnel.
type tunnelKey struct{}

// WithTunnel returns a copy of ctx for requests that come through a tunnel.
func WithTunnel(ctx context.Context) context.Context {
	return context.WithValue(ctx, tunnelKey{}, true)
}

// ListenerOf returns the name, for logs and traces, of the listener that accepted the request with this context: "server"
// for the one that kubeconfigs name as their server, "tunnel" for the one that they name as their proxy-url.
func ListenerOf(ctx context.Context) string {
	if ctx.Value(tunnelKey{}) != nil {
		return "tunnel"
	}
	return "server"
}
