package forward

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/proxy/auth"
	"github.com/listproxy/listproxy/proxy/serve"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// known forwards every request as one of a caller whom the upstream has accepted before.
type known struct {
	*Forwarder
	caller auth.Identity
	up     *upstream.Transports
}

func (k known) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.ServeAs(w, r, k.caller, func(int64) (func(), bool) { return func() {}, true })
}

// newForwarder returns a forwarder to the upstream with this configuration, as the caller with the token "known".
func newForwarder(t *testing.T, config *rest.Config) known {
	t.Helper()
	return newLoggedForwarder(t, config, proxytest.DiscardLog())
}

func newLoggedForwarder(t *testing.T, config *rest.Config, log *slog.Logger) known {
	t.Helper()
	up, err := upstream.New(config)
	expect.NoError(t, err)
	caller := proxytest.Identify(auth.NewAuthenticator(nil), "Bearer known")
	const upgraded = false
	up.RecordAnswer(caller, upgraded, http.MethodGet, http.StatusOK)
	return known{Forwarder: New(up, log), caller: caller, up: up}
}

// startProxy serves handler as the command does: behind [serve.OnlyPaths], with the server's own limits.
func startProxy(t *testing.T, handler http.Handler, http2 bool) *httptest.Server {
	t.Helper()
	return proxytest.Serve(t, serve.New(serve.OnlyPaths(handler), nil, proxytest.DiscardLog()), http2)
}

// protocols are the sides that speak HTTP/2, and not HTTP/1.1.
type protocols struct{ http2Upstream, http2Client bool }

// overProtocols runs test for HTTP/1.1 and HTTP/2 on either side.
func overProtocols(t *testing.T, test func(t *testing.T, over protocols)) {
	for _, over := range []protocols{{}, {http2Upstream: true}, {http2Client: true}, {http2Upstream: true, http2Client: true}} {
		t.Run(fmt.Sprintf("%+v", over), func(t *testing.T) { test(t, over) })
	}
}

// overAllProtocols is overProtocols with a proxy before an upstream with this handler.
func overAllProtocols(t *testing.T, handler http.HandlerFunc, test func(t *testing.T, front *httptest.Server)) {
	overProtocols(t, func(t *testing.T, over protocols) {
		test(t, startProxy(t, newForwarder(t, proxytest.StartUpstream(t, over.http2Upstream, handler).Config()), over.http2Client))
	})
}

// inBubbles is overProtocols in a bubble for each.
func inBubbles(t *testing.T, test func(t *testing.T, over protocols)) {
	overProtocols(t, func(t *testing.T, over protocols) {
		synctest.Test(t, func(t *testing.T) { test(t, over) })
	})
}

// startInPipes is startProxy in a bubble, before an upstream with this handler. It also returns a Drain of the proxy.
func startInPipes(t *testing.T, handler http.HandlerFunc, over protocols) (*httptest.Server, *serve.Drain) {
	t.Helper()
	api := httptest.NewUnstartedServer(handler)
	api.EnableHTTP2 = over.http2Upstream
	network := proxytest.StartInPipes(t, api)
	config := proxytest.UpstreamServer{Server: api}.Config()
	config.Dial = network.Dial
	server, drain := newDraining(newForwarder(t, config))
	front := httptest.NewUnstartedServer(nil)
	front.Config, front.EnableHTTP2 = server, over.http2Client
	proxytest.StartInPipes(t, front)
	return front, drain
}

// newDraining returns a server as that of startProxy, not yet started, with a Drain that ends forwarded watches.
func newDraining(forward known) (*http.Server, *serve.Drain) {
	server := serve.New(serve.OnlyPaths(forward), nil, proxytest.DiscardLog())
	return server, serve.NewDrain(server, func(within time.Duration) {
		forward.EndWatches(func(int) (after, spread time.Duration) { return 0, max(1, within) })
	})
}

// upgrade returns the headers that ask for an upgrade to a protocol.
func upgrade(to string) http.Header { return http.Header{"Connection": {"Upgrade"}, "Upgrade": {to}} }
