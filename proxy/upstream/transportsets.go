package upstream

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"k8s.io/client-go/rest"
)

// transportSets has all transports for callers' requests: one set without credentials, and one with listproxy's own, for
// users whom listproxy impersonates. It belongs to one version of the files that the client configuration names. When a
// file changes, it is replaced as a whole, so that no new request uses a connection made with the former CA or client
// certificate. Requests on such connections go on.
type transportSets struct {
	config *rest.Config // with the files' content in place of their names

	anonymous    *transportSet
	impersonated *transportSet // nil if listproxy impersonates nobody
}

// newTransportSets returns the sets for cfg, which has the TLS files' content in place of their names.
func newTransportSets(cfg *rest.Config, base *url.URL, impersonate bool) (*transportSets, error) {
	tlsConfig, err := anonymousTLSConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("TLS configuration for the API server at %s: %w", base.Host, err)
	}
	s := &transportSets{config: cfg, anonymous: newTransportSet(cfg, base, tlsConfig)}
	if err := verifyAnonymous(s.anonymous.transports); err != nil {
		return nil, fmt.Errorf("the transport for callers' requests is not anonymous, this is a defect of listproxy: %w", err)
	}
	if impersonate {
		if s.impersonated, err = newImpersonatedSet(cfg, base); err != nil {
			return nil, fmt.Errorf("the transports to the API server with listproxy's own credentials: %w", err)
		}
	}
	return s, nil
}

// transports returns the transports of both sets.
func (s *transportSets) transports() []*http.Transport {
	all := slices.Clone(s.anonymous.transports)
	if s.impersonated != nil {
		all = append(all, s.impersonated.transports...)
	}
	return all
}

// closeIdle closes the connections that no request uses. The others close when their requests have ended.
func (s *transportSets) closeIdle() {
	for _, transport := range s.transports() {
		transport.CloseIdleConnections()
	}
}

// lanes is the number of transports over which callers' short requests are spread, and likewise their long-running ones. A
// transport has one connection, and more when that is full. When a connection is closed, all requests on it end, and some
// load balancers close a connection when one client gives up a request. With lanes, a client that gives up many requests
// disturbs only a few others, and nobody's watches.
const lanes = 16

// transportSet sends requests to the API server with one kind of credentials, or none.
type transportSet struct {
	short, long [lanes]http.RoundTripper // for callers whom the API server has accepted, chosen by a hash of the caller
	unknown     http.RoundTripper        // for all other callers
	http1       http.RoundTripper        // for upgrades, which take the connection over; see also unknownCallers
	sendAs      http.RoundTripper        // for [Transports.SendAs] as a caller who was accepted
	transports  []*http.Transport        // the transports under all of these
}

// unknownCallers sends the requests of callers whom the API server has not accepted. Those without a body go over
// HTTP/1.1: kube-apiserver closes an HTTP/2 connection after every 401 and every anonymous request
// (UnauthenticatedHTTP2DOSMitigation), so each made-up token would cost a handshake. Those with a body go over HTTP/2,
// where kube-apiserver refuses them at once; over HTTP/1.1 it reads the whole body first.
type unknownCallers struct{ http1, http2 http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (u unknownCallers) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return u.http1.RoundTrip(r)
	}
	return u.http2.RoundTrip(r)
}

// newTransportSet returns a set without credentials, except those of tlsConfig.
func newTransportSet(cfg *rest.Config, base *url.URL, tlsConfig *tls.Config) *transportSet {
	s := &transportSet{}
	add := func() *http.Transport {
		t := newTransport(cfg, base, tlsConfig)
		s.transports = append(s.transports, t)
		return t
	}
	http1 := add()
	http1.IdleConnTimeout = idleHTTP1Timeout
	short := func() http.RoundTripper { return overHTTP2(add(), shortSendPingTimeout, shortPingTimeout) }
	s.http1 = http1
	s.sendAs = short()
	s.unknown = unknownCallers{http1: http1, http2: short()}
	for i := range lanes {
		s.short[i] = short()
		s.long[i] = overHTTP2(add(), sendPingTimeout, pingTimeout)
	}
	return s
}
