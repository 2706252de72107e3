package upstream

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"k8s.io/client-go/rest"
)

// generation has all transports that were made from one version of the files in the client configuration. When a file
// changes, a new generation replaces it, so that no new request uses a connection made with the former CA or client
// certificate. Requests in flight go on.
type generation struct {
	config *rest.Config // with the files' content in place of their names

	plain         *transportSet // without credentials
	impersonating *transportSet // with listproxy's own credentials; nil if listproxy impersonates nobody
}

// newGeneration returns the generation for cfg, which has the TLS files' content in place of their names.
func newGeneration(cfg *rest.Config, base *url.URL, impersonates bool) (*generation, error) {
	tlsConfig, err := anonymousTLSConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("TLS configuration for the API server at %s: %w", base.Host, err)
	}
	unchanged := func(t *http.Transport) (http.RoundTripper, error) { return t, nil }
	plain, err := newTransportSet(cfg, base, tlsConfig, unchanged)
	if err != nil {
		return nil, err
	}
	if err := verifyAnonymous(plain.all); err != nil {
		return nil, fmt.Errorf("the transport for callers' requests is not anonymous, this is a defect of listproxy: %w", err)
	}
	g := &generation{config: cfg, plain: plain}
	if impersonates {
		if g.impersonating, err = newImpersonatingSet(cfg, base); err != nil {
			return nil, fmt.Errorf("the transports to the API server with listproxy's own credentials: %w", err)
		}
	}
	return g, nil
}

// closeIdle closes the connections that no request uses. The others close when their requests have ended.
func (g *generation) closeIdle() {
	all := g.plain.all
	if g.impersonating != nil {
		all = slices.Concat(all, g.impersonating.all)
	}
	for _, transport := range all {
		transport.CloseIdleConnections()
	}
}

// lanes is the number of transports over which callers' short requests are spread. Long-running requests have as many of
// their own. A transport has one connection, and more when that is full. Some load balancers close a connection when one
// client gives up a request, which ends all requests on the connection. With lanes, a client that gives up many requests
// disturbs only a few others, and nobody's watches.
const lanes = 16

// transportSet sends requests to the API server with one kind of credentials, or none.
type transportSet struct {
	short, long [lanes]http.RoundTripper // for callers whom the API server has accepted, chosen by a hash of the caller
	unknown     http.RoundTripper        // for all other callers
	http1       http.RoundTripper        // for upgrades
	sendAs      http.RoundTripper        // for requests that listproxy itself sends as an accepted caller
	all         []*http.Transport        // the transports under all of the above
}

// unknownCallers sends the requests of callers whom the API server has not accepted. Requests without a body go over
// HTTP/1.1. kube-apiserver closes an HTTP/2 connection after every 401 and every anonymous request
// (UnauthenticatedHTTP2DOSMitigation), so each made-up token would cost a handshake. Requests with a body go over HTTP/2,
// where kube-apiserver refuses them at once. Over HTTP/1.1 it would read the whole body first.
type unknownCallers struct{ http1, http2 http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (u unknownCallers) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return u.http1.RoundTrip(r)
	}
	return u.http2.RoundTrip(r)
}

// newTransportSet returns a set of transports. Their credentials are those of tlsConfig, if it has any, and those that
// addCredentials adds to each transport.
func newTransportSet(
	cfg *rest.Config, base *url.URL, tlsConfig *tls.Config, addCredentials func(*http.Transport) (http.RoundTripper, error),
) (*transportSet, error) {
	s := &transportSet{}
	var errs []error
	add := func(t *http.Transport) http.RoundTripper {
		s.all = append(s.all, t)
		withCredentials, err := addCredentials(t)
		errs = append(errs, err)
		return withCredentials
	}
	newHTTP1 := func() *http.Transport { return newTransport(cfg, base, tlsConfig) }
	newShort := func() *http.Transport { return overHTTP2(newHTTP1(), shortPingAfter, shortPingTimeout) }
	newLong := func() *http.Transport { return overHTTP2(newHTTP1(), longPingAfter, longPingTimeout) }
	http1 := newHTTP1()
	// This is shorter than the idle timeouts of servers and load balancers. If the other side closed an idle connection just
	// when a request is sent, the request could not always be sent again.
	http1.IdleConnTimeout = 30 * time.Second
	s.http1 = add(http1)
	s.sendAs = add(newShort())
	s.unknown = unknownCallers{http1: s.http1, http2: add(newShort())}
	for i := range lanes {
		s.short[i] = add(newShort())
		s.long[i] = add(newLong())
	}
	return s, errors.Join(errs...)
}
