package kubehttp

import "context"

// Listener names the port by which a connection came. Its value is written into logs and traces.
type Listener string

// The listeners.
const (
	// ListenerServer is the port that a kubeconfig names as its server.
	ListenerServer Listener = "server"
	// ListenerTunnel is the port that a kubeconfig names as its proxy-url.
	ListenerTunnel Listener = "tunnel"
)

// listenerKey is the context key of a Listener.
type listenerKey struct{}

// WithListener returns the context of requests that come by l.
func WithListener(ctx context.Context, l Listener) context.Context {
	return context.WithValue(ctx, listenerKey{}, l)
}

// ListenerOf returns the listener by which the request with this context came: [ListenerServer] if none was set.
func ListenerOf(ctx context.Context) Listener {
	if l, ok := ctx.Value(listenerKey{}).(Listener); ok {
		return l
	}
	return ListenerServer
}
