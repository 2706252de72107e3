package upstream

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"k8s.io/client-go/rest"
)

const (
	// longPingAfter is the time without a frame after which a connection for long-running requests sends an HTTP/2 ping. It is
	// as long as client-go's, so that an API server that stands still for a moment ends nobody's watch.
	longPingAfter = 30 * time.Second
	// longPingTimeout is the time after which such a connection is closed if the ping is not answered. It is client-go's, too.
	longPingTimeout = 15 * time.Second
	// shortPingAfter is the time without a frame after which a connection for short requests sends a ping.
	shortPingAfter = 3 * time.Second
	// shortPingTimeout is the time after which such a connection is closed if the ping is not answered. So a dead connection is
	// closed after 3 + 5 seconds. client-go's leader election gives up a lock that it could not renew for ten seconds. The
	// other two seconds are left for a new connection.
	shortPingTimeout = 5 * time.Second
	// maxIdleConns bounds the idle connections of a transport. With HTTP/2 there are only a few. There can be more if the API
	// server does not speak HTTP/2, or refuses many upgrades.
	maxIdleConns = 256
	// streamReceiveBuffer is the number of bytes that the API server may send of an answer before listproxy has passed them on.
	// If the client does not read, these bytes wait in memory. The buffer also bounds the throughput of an answer: 128 KiB in
	// each round trip to the API server. With a round trip of a millisecond, that is 125 MiB a second.
	streamReceiveBuffer = 128 << 10
)

// newGeneration returns the generation for a configuration of loadFiles. If impersonates is true, the generation has transports
// with listproxy's own credentials, too.
func newGeneration(cfg *rest.Config, base *url.URL, impersonates bool) (*generation, error) {
	tlsConfig, err := anonymousTLSConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("TLS configuration for the API server at %s: %w", base.Host, err)
	}
	noCredentials := func(t *http.Transport) (http.RoundTripper, error) { return t, nil }
	anonymous, err := newTransportSet(cfg, base, tlsConfig, noCredentials)
	if err != nil {
		return nil, err
	}
	if err := verifyAnonymous(anonymous.all); err != nil {
		return nil, fmt.Errorf("the transport for callers' requests is not anonymous, this is a defect of listproxy: %w", err)
	}
	g := &generation{config: cfg, anonymous: anonymous}
	if impersonates {
		if g.impersonating, err = newImpersonatingSet(cfg, base); err != nil {
			return nil, fmt.Errorf("the transports to the API server with listproxy's own credentials: %w", err)
		}
	}
	return g, nil
}

// closeIdle closes the connections that no request uses. The others close when their requests have ended.
func (g *generation) closeIdle() {
	all := g.anonymous.all
	if g.impersonating != nil {
		all = slices.Concat(all, g.impersonating.all)
	}
	for _, transport := range all {
		transport.CloseIdleConnections()
	}
}

// newTransportSet returns a set of transports. They send the client certificate of tlsConfig, if it has one, and the
// credentials that addCredentials adds to each transport. A nil tlsConfig stands for the system's CAs and all other defaults,
// as in client-go.
func newTransportSet(
	cfg *rest.Config, base *url.URL, tlsConfig *tls.Config, addCredentials func(*http.Transport) (http.RoundTripper, error),
) (*transportSet, error) {
	if tlsConfig == nil {
		tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	s := &transportSet{}
	var errs []error
	add := func(t *http.Transport) http.RoundTripper {
		s.all = append(s.all, t)
		withCredentials, err := addCredentials(t)
		errs = append(errs, err) // errors.Join below leaves out nils
		return withCredentials
	}
	addHTTP2 := func(pingAfter, pingTimeout time.Duration) http.RoundTripper {
		return add(overHTTP2(newTransport(cfg, base, tlsConfig), pingAfter, pingTimeout))
	}
	http1 := newTransport(cfg, base, tlsConfig)
	// Servers and load balancers have longer idle timeouts, so this side closes idle connections first. If the other side
	// closed a connection just when a request is sent on it, the request could not always be sent again.
	http1.IdleConnTimeout = 30 * time.Second
	s.http1 = add(http1)
	s.sendAs = addHTTP2(shortPingAfter, shortPingTimeout)
	s.unknown = unknownCallers{http1: s.http1, http2: addHTTP2(shortPingAfter, shortPingTimeout)}
	for i := range lanes {
		s.short[i] = addHTTP2(shortPingAfter, shortPingTimeout)
		s.long[i] = addHTTP2(longPingAfter, longPingTimeout)
	}
	return s, errors.Join(errs...)
}

// anonymousTLSConfig returns a TLS configuration that verifies the API server, and has no client certificate. It returns nil if
// cfg asks for nothing but the defaults, such as the system's CAs.
func anonymousTLSConfig(cfg *rest.Config) (*tls.Config, error) {
	anonymous := rest.AnonymousClientConfig(cfg)
	anonymous.NextProtos = nil // each transport sets its own
	return rest.TLSConfigFor(anonymous)
}

// newTransport returns a transport that speaks HTTP/1.1, until overHTTP2 adds HTTP/2.
func newTransport(cfg *rest.Config, base *url.URL, tlsConfig *tls.Config) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	proxy := cfg.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment // as client-go does
	}
	dial := cfg.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	return &http.Transport{
		// The network proxy is chosen by the base URL, and not by the request's, whose path the caller has chosen.
		Proxy:                 func(*http.Request) (*url.URL, error) { return proxy(&http.Request{URL: base}) },
		DialContext:           dial,
		TLSClientConfig:       tlsConfig.Clone(),
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
		IdleConnTimeout:       90 * time.Second,
		MaxIdleConns:          maxIdleConns,
		MaxIdleConnsPerHost:   maxIdleConns,
		DisableCompression:    true, // callers get the bytes that the API server sent
		Protocols:             protocols,
	}
}

// overHTTP2 makes t speak HTTP/2 if the API server does, and returns t. A connection on which no frame came for pingAfter
// sends a ping. It is closed if no answer comes within pingTimeout.
func overHTTP2(t *http.Transport, pingAfter, pingTimeout time.Duration) *http.Transport {
	t.Protocols.SetHTTP2(true)
	t.HTTP2 = &http.HTTP2Config{
		SendPingTimeout: pingAfter, PingTimeout: pingTimeout, MaxReceiveBufferPerStream: streamReceiveBuffer,
	}
	return t
}

// verifyAnonymous returns an error if a transport for callers' requests holds credentials, or may hold some in a function that
// cannot be checked. It checks the transports themselves, so that listproxy does not start if a change in client-go, or here,
// lets credentials in.
func verifyAnonymous(transports []*http.Transport) error {
	for _, transport := range transports {
		tlsConfig := transport.TLSClientConfig
		switch {
		case tlsConfig == nil:
			return errors.New("it has no TLS configuration of its own")
		case len(tlsConfig.Certificates) > 0 || tlsConfig.GetClientCertificate != nil:
			return errors.New("it holds a client certificate")
		case transport.DialTLSContext != nil:
			return errors.New("it makes its TLS connections in a way that cannot be checked")
		case transport.ProxyConnectHeader != nil || transport.GetProxyConnectHeader != nil:
			return errors.New("it adds headers for a network proxy")
		}
	}
	return nil
}
