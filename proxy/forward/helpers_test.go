package forward

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/proxy/auth"
	"github.com/listproxy/listproxy/proxy/serve"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// oneCallerForwarder forwards all requests as those of one caller, whom the upstream has accepted before.
type oneCallerForwarder struct {
	*Forwarder
	caller auth.Identity
	up     *upstream.Transports
}

func (f oneCallerForwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.ServeAs(w, r, f.caller, reserveAnySize)
}

// reserveAnySize is a [Reserve] without a limit.
func reserveAnySize(int64) (release func(), ok bool) { return func() {}, true }

// newForwarder returns a forwarder to the upstream that config describes. Its one caller has a token. If config has a token,
// too, this is listproxy's own: the forwarder then impersonates users whom listproxy has verified.
func newForwarder(t *testing.T, config *rest.Config) oneCallerForwarder {
	t.Helper()
	return newLoggedForwarder(t, config, proxytest.DiscardLog())
}

// newLoggedForwarder is newForwarder with a log.
func newLoggedForwarder(t *testing.T, config *rest.Config, log *slog.Logger) oneCallerForwarder {
	t.Helper()
	up, err := upstream.New(config, config.BearerToken != "")
	expect.NoError(t, err)
	caller := proxytest.Identify(auth.NewAuthenticator(nil), "Bearer token")
	const upgraded = false
	up.RecordAnswer(caller, upgraded, http.MethodGet, http.StatusOK)
	return oneCallerForwarder{Forwarder: New(up, log), caller: caller, up: up}
}

// startProxy serves handler as the listproxy command does: behind [serve.OnlyPaths], with the server's own limits.
func startProxy(t *testing.T, handler http.Handler, http2 bool) *httptest.Server {
	t.Helper()
	return proxytest.Serve(t, serve.New(serve.OnlyPaths(handler), nil, proxytest.DiscardLog()), http2)
}

// protocols says which connections speak HTTP/2, not HTTP/1.1: the proxy's to the upstream, the client's to the proxy.
type protocols struct{ http2Upstream, http2Client bool }

// forEachProtocol runs test as a subtest for each combination of protocols.
func forEachProtocol(t *testing.T, test func(t *testing.T, over protocols)) {
	t.Helper()
	for _, over := range []protocols{{}, {http2Upstream: true}, {http2Client: true}, {http2Upstream: true, http2Client: true}} {
		t.Run(fmt.Sprintf("%+v", over), func(t *testing.T) { test(t, over) })
	}
}

// forEachProtocolInBubble is forEachProtocol, with a synctest bubble around each subtest.
func forEachProtocolInBubble(t *testing.T, test func(t *testing.T, over protocols)) {
	t.Helper()
	forEachProtocol(t, func(t *testing.T, over protocols) {
		synctest.Test(t, func(t *testing.T) { test(t, over) })
	})
}

// withProxyOverEachProtocol is forEachProtocol, with a proxy before an upstream that handler serves.
func withProxyOverEachProtocol(t *testing.T, handler http.HandlerFunc, test func(t *testing.T, front *httptest.Server)) {
	t.Helper()
	forEachProtocol(t, func(t *testing.T, over protocols) {
		api := proxytest.StartUpstream(t, over.http2Upstream, handler)
		test(t, startProxy(t, newForwarder(t, api.Config()), over.http2Client))
	})
}

// startProxyInBubble starts a proxy before an upstream that handler serves. Their connections are pipes in memory, since in a
// bubble the clock stands still while a goroutine reads from the network. It also returns a Drain of the proxy.
func startProxyInBubble(t *testing.T, handler http.HandlerFunc, over protocols) (front *httptest.Server, drain *serve.Drain) {
	t.Helper()
	api := httptest.NewUnstartedServer(handler)
	api.EnableHTTP2 = over.http2Upstream
	network := proxytest.StartInPipes(t, api)
	config := proxytest.UpstreamServer{Server: api}.Config()
	config.Dial = network.Dial
	front = httptest.NewUnstartedServer(nil)
	front.EnableHTTP2 = over.http2Client
	front.Config, drain = newDrainableServer(newForwarder(t, config))
	if over.http2Client {
		proxytest.StartInPipes(t, front)
	} else {
		proxytest.StartWithoutTLSInPipes(t, front)
	}
	return front, drain
}

// newDrainableServer returns a server of forwarder, not yet started, with a Drain that ends forwarded watches.
func newDrainableServer(forwarder oneCallerForwarder) (*http.Server, *serve.Drain) {
	server := serve.New(serve.OnlyPaths(forwarder), nil, proxytest.DiscardLog())
	return server, serve.NewDrain(server, forwarder.EndWatches)
}

// upgradeHeader returns the headers that ask for an upgrade to a protocol.
func upgradeHeader(protocol string) http.Header {
	return http.Header{"Connection": {"Upgrade"}, "Upgrade": {protocol}}
}
