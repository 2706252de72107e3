package kubehttp

import "context"

// tunnelKey is the context key of requests that come through a tunnel.
type tunnelKey struct{}

// WithTunnel returns the context of requests that come through a tunnel.
func WithTunnel(ctx context.Context) context.Context {
	return context.WithValue(ctx, tunnelKey{}, true)
}

// ListenerOf names the port by which the request with this context came, for logs and traces: "tunnel" for the port that
// a kubeconfig names as its proxy-url, "server" for the one that it names as its server.
func ListenerOf(ctx context.Context) string {
	if ctx.Value(tunnelKey{}) != nil {
		return "tunnel"
	}
	return "server"
}
