package upstream

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"k8s.io/client-go/rest"
)

// transportSets are all transports to the API server, for one content of the files that the client
// configuration names. When the content changes, they are replaced as a whole: no new request uses
// a connection that was made with another CA or client certificate. What is open on such
// connections goes on.
type transportSets struct {
	config *rest.Config // with the files' content in place of their names

	anonymous    *transportSet
	impersonated *transportSet // nil unless users may be impersonated
}

// newTransportSets returns the sets that cfg describes, which names no TLS files.
func newTransportSets(cfg *rest.Config, base *url.URL, impersonate bool) (*transportSets, error) {
	tlsConfig, err := anonymousTLSConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("TLS configuration for the API server at %s: %w", base.Host, err)
	}
	w := &transportSets{config: cfg, anonymous: newTransportSet(cfg, base, tlsConfig)}
	if err := verifyAnonymous(w.anonymous.below); err != nil {
		return nil, fmt.Errorf("the transport for callers' requests is not anonymous, this is a defect of listproxy: %w", err)
	}
	if impersonate {
		if w.impersonated, err = newImpersonatedSet(cfg, base); err != nil {
			return nil, fmt.Errorf("the transports to the API server with listproxy's own credentials: %w", err)
		}
	}
	return w, nil
}

// transports are all transports.
func (w *transportSets) transports() []*http.Transport {
	all := slices.Clone(w.anonymous.below)
	if w.impersonated != nil {
		all = append(all, w.impersonated.below...)
	}
	return all
}

// closeIdle closes the connections that no request uses, and each other one when its requests have
// ended.
func (w *transportSets) closeIdle() {
	for _, transport := range w.transports() {
		transport.CloseIdleConnections()
	}
}

// lanes is over how many connections, or more if these have no room, the callers' requests are spread.
// What ends one of them ends the watches on it: for example a balancer behind listproxy that closes a
// connection when a client gives up a request. So whoever gives up many costs only a few others theirs.
const lanes = 16

// transportSet sends requests to the API server with one kind of credentials, or none.
type transportSet struct {
	requests [lanes]http.RoundTripper // each caller's are on one of them, by its flow
	http1    http.RoundTripper        // for upgrades, which take the connection over, and see unknownCallers
	own      http.RoundTripper        // for SendAs as a caller who was accepted
	unknown  http.RoundTripper        // for callers who bring no token that the API server has accepted
	below    []*http.Transport
}

// unknownCallers sends requests of callers who are not known. After every 401 and every anonymous
// request kube-apiserver closes an HTTP/2 connection (UnauthenticatedHTTP2DOSMitigation); over HTTP/1.1
// it keeps it, so a caller with made-up tokens causes no handshakes. But it answers a request with a
// body only when it has the whole body: over HTTP/2 it refuses at once.
type unknownCallers struct{ http1, http2 http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (u unknownCallers) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return u.http1.RoundTrip(r)
	}
	return u.http2.RoundTrip(r)
}

// newTransportSet returns a set without credentials, except what tlsConfig has.
func newTransportSet(cfg *rest.Config, base *url.URL, tlsConfig *tls.Config) *transportSet {
	w := &transportSet{}
	add := func() *http.Transport {
		t := newTransport(cfg, base, tlsConfig)
		w.below = append(w.below, t)
		return t
	}
	http1 := add()
	http1.IdleConnTimeout = idleHTTP1Timeout
	w.http1, w.own = http1, overHTTP2(add(), ownPingTimeout, ownPingTimeout)
	w.unknown = unknownCallers{http1: http1, http2: overHTTP2(add(), sendPingTimeout, pingTimeout)}
	for i := range w.requests {
		w.requests[i] = overHTTP2(add(), sendPingTimeout, pingTimeout)
	}
	return w
}
