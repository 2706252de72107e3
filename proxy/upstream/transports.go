package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/proxy/auth"
	"github.com/listproxy/listproxy/proxy/kubehttp"
)

const (
	// longPingAfter is the time without a frame after which a connection for long-running requests sends a ping. If no
	// answer to the ping comes within longPingTimeout, the connection is closed. Both are client-go's. They are long, so
	// that an API server that stands still for a moment ends nobody's watch.
	longPingAfter   = 30 * time.Second
	longPingTimeout = 15 * time.Second
	// shortPingAfter and shortPingTimeout are the same for short requests. client-go's leader election gives up a lock after
	// ten seconds. A dead connection is closed after eight, which leaves two for a new one.
	shortPingAfter   = 3 * time.Second
	shortPingTimeout = 5 * time.Second
	// maxIdleConns bounds idle connections. There are more than a few only if the API server does not speak HTTP/2, or
	// refuses many upgrades.
	maxIdleConns = 256
	// streamReceiveBuffer bounds the bytes in memory of an answer whose client does not read. It also bounds the bytes in
	// flight, and so the throughput: an API server that is a millisecond away can send 125 MB a second on one stream.
	streamReceiveBuffer = 128 << 10
)

// Transports sends callers' requests to the API server, each with the caller's own credentials. It holds listproxy's own
// credentials only if listproxy impersonates users ([Transports.Impersonate]). While Run runs, it reloads the files of the CA
// and of listproxy's own client certificate. It is safe for concurrent use.
type Transports struct {
	*auth.Verdicts // the API server's verdicts about callers' tokens

	base         *url.URL     // of the API server
	cfg          *rest.Config // has credentials only if impersonates is true
	impersonates bool
	current      atomic.Pointer[generation]
	onAnswer     func(status int) // called for each answer; may be nil
}

// New returns the Transports to the API server that cfg names. Of cfg it uses the host with its path prefix, the settings of
// TLS without a client certificate, the network proxy and the dialer. It uses no credentials, and returns an error if a
// transport would hold any.
//
// The host must be reached over TLS, since callers' tokens are sent to it.
func New(cfg *rest.Config) (*Transports, error) {
	base, err := BaseURL(cfg)
	if err != nil {
		return nil, err
	}
	t := &Transports{Verdicts: auth.NewVerdicts(), base: base, cfg: rest.AnonymousClientConfig(cfg)}
	if _, err := t.update(); err != nil {
		return nil, err
	}
	return t, nil
}

// OnAnswer sets a function that t calls with the status of each answer. It must be called before any request is sent.
func (t *Transports) OnAnswer(onAnswer func(status int)) { t.onAnswer = onAnswer }

// RecordAnswer records the status of the API server's answer to a caller's request. It calls the function of OnAnswer, and
// the method of [auth.Verdicts] that it hides.
func (t *Transports) RecordAnswer(id auth.Identity, upgrade bool, method string, status int) {
	if t.onAnswer != nil {
		t.onAnswer(status)
	}
	t.Verdicts.RecordAnswer(id, upgrade, method, status)
}

// URL returns the API server's base URL. Its path is the prefix of every request's path, usually empty, and has no trailing
// slash.
func (t *Transports) URL() *url.URL {
	base := *t.base
	return &base
}

// SendAs sends r, which listproxy itself has made, as the caller id, and returns the answer. r must have no credentials.
// SendAs adds the caller's, or listproxy's own with headers that impersonate exactly this caller. It follows no redirects.
// Its errors contain no credentials.
func (t *Transports) SendAs(ctx context.Context, id auth.Identity, r *http.Request) (*http.Response, error) {
	id.SetHeaders(r.Header)
	res, err := t.sendAsTransport(id).RoundTrip(r.WithContext(ctx))
	if err == nil {
		const upgrade = false
		t.RecordAnswer(id, upgrade, r.Method, res.StatusCode)
	}
	return res, err
}

// RoundTripper returns the transport for a caller's request. The transport uses HTTP/2 if the API server speaks it, but
// HTTP/1.1 for upgrades, and for most requests of callers who are not accepted ([unknownCallers]). The transport follows no
// redirects, decompresses nothing, and changes no headers, but adds listproxy's credentials for an impersonated user.
func (t *Transports) RoundTripper(id auth.Identity, r *kubehttp.Request) http.RoundTripper {
	transports := t.transportsFor(id)
	flow, accepted := t.AcceptedFlow(id) // flow is a hash of the caller
	switch {
	case transports == nil:
		return refusingTransport{}
	case r.Upgrade != "":
		return transports.http1 // an upgrade takes over the connection
	case !accepted:
		return transports.unknown
	case r.LongRunning:
		return transports.long[flow[0]%lanes]
	}
	return transports.short[flow[0]%lanes]
}

// sendAsTransport returns the transport for a request that listproxy itself has made as a caller. Accepted callers share the
// connections, which carry no other requests.
func (t *Transports) sendAsTransport(id auth.Identity) http.RoundTripper {
	transports := t.transportsFor(id)
	_, accepted := t.AcceptedFlow(id)
	switch {
	case transports == nil:
		return refusingTransport{}
	case !accepted:
		return transports.http1 // a 401 would close an HTTP/2 connection (see unknownCallers)
	}
	return transports.sendAs
}

// transportsFor returns the transports for a caller, or nil if listproxy has verified the caller but impersonates nobody.
func (t *Transports) transportsFor(id auth.Identity) *transportSet {
	if id.VerifiedUser() != nil {
		return t.current.Load().impersonating
	}
	return t.current.Load().plain
}

// anonymousTLSConfig returns a TLS configuration that verifies the API server, and has no client certificate.
func anonymousTLSConfig(cfg *rest.Config) (*tls.Config, error) {
	anonymous := rest.AnonymousClientConfig(cfg)
	anonymous.NextProtos = nil // each transport sets its own
	tlsConfig, err := rest.TLSConfigFor(anonymous)
	if err != nil {
		return nil, err
	}
	if tlsConfig == nil { // the system's CAs and all defaults
		tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return tlsConfig, nil
}

// newTransport returns a transport for HTTP/1.1.
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
		// The network proxy is chosen by the base URL, since the caller has chosen the path of a request's URL.
		Proxy:                 func(*http.Request) (*url.URL, error) { return proxy(&http.Request{URL: base}) },
		DialContext:           dial,
		TLSClientConfig:       tlsConfig.Clone(),
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
		IdleConnTimeout:       90 * time.Second,
		MaxIdleConns:          maxIdleConns,
		MaxIdleConnsPerHost:   maxIdleConns,
		// Callers get the bytes that the API server sent.
		DisableCompression: true,
		Protocols:          protocols,
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

// verifyAnonymous returns an error if a transport for callers' requests holds credentials, or may hold some that cannot be
// seen. It checks the transports and not their configuration, so that listproxy does not start if a change in client-go, or
// here, lets credentials in.
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
