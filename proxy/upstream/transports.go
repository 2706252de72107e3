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
	dialTimeout           = 30 * time.Second
	keepAlive             = 30 * time.Second
	tlsHandshakeTimeout   = 10 * time.Second
	expectContinueTimeout = time.Second
	idleConnTimeout       = 90 * time.Second
	// idleHTTP1Timeout is shorter than those of servers and load balancers: a request that is sent while the other side
	// closes the connection cannot always be sent again.
	idleHTTP1Timeout = 30 * time.Second
	// sendPingTimeout is the time without a frame after which a connection for long-running requests sends a ping, and
	// pingTimeout the time after which it ends without an answer. Both are client-go's: an API server that stands still
	// for a moment ends nobody's watch.
	sendPingTimeout = 30 * time.Second
	pingTimeout     = 15 * time.Second
	// shortSendPingTimeout and shortPingTimeout are the same for short requests, which share connections. Together they
	// leave two of the ten seconds after which client-go's leader election gives up a lock.
	shortSendPingTimeout = 3 * time.Second
	shortPingTimeout     = 5 * time.Second
	// maxIdleConns bounds idle connections. There are more than a few only if the API server does not speak HTTP/2, or
	// refuses many upgrades.
	maxIdleConns = 256
	// streamReceiveBuffer bounds the memory, in bytes, of one answer whose client does not read. It also bounds the bytes
	// in flight: an API server that is a millisecond away can send 125 MB a second on one stream.
	streamReceiveBuffer = 128 << 10
)

// Transports sends callers' requests to the API server. It knows the server's address and how to verify its certificate.
// It holds no credentials, except listproxy's own for users whom listproxy impersonates ([Transports.Impersonate]). While
// Run runs, it reloads the files of the CA and of listproxy's own client certificate. It is safe for concurrent use.
type Transports struct {
	*auth.Tokens // the API server's verdicts about callers' tokens

	base         *url.URL     // its path is a prefix without a trailing slash
	cfg          *rest.Config // without credentials unless impersonates
	impersonates bool
	current      atomic.Pointer[transportSets]
	onAnswer     func(status int) // called for each answer, unless it is nil
}

// New returns the Transports to the API server that cfg names. Of cfg it uses the host with its path prefix, the CA, the
// server name, whether to verify at all, the network proxy and the dialer. It uses no credentials of cfg, and returns an
// error if the result would hold any.
//
// The host must be reached over TLS, since callers' tokens are sent to it.
func New(cfg *rest.Config) (*Transports, error) {
	base, err := Base(cfg)
	if err != nil {
		return nil, err
	}
	t := &Transports{Tokens: auth.NewTokens(), base: base, cfg: rest.AnonymousClientConfig(cfg)}
	if _, err := t.update(); err != nil {
		return nil, err
	}
	return t, nil
}

// OnAnswer sets a function that is called with the status of each answer. It must be called before any request is sent.
func (t *Transports) OnAnswer(onAnswer func(status int)) { t.onAnswer = onAnswer }

// Answered records the status of the API server's answer to a caller's request, see [auth.Tokens.Answered].
func (t *Transports) Answered(id auth.Identity, upgrade bool, method string, status int) {
	if t.onAnswer != nil {
		t.onAnswer(status)
	}
	t.Tokens.Answered(id, upgrade, method, status)
}

// URL returns the API server's base URL. Its path, which is mostly empty, is the prefix of every request's path, without a
// trailing slash.
func (t *Transports) URL() *url.URL {
	base := *t.base
	return &base
}

// SendAs sends r, which listproxy itself has made, as the caller id, and returns the answer. r must have no credentials:
// SendAs adds the caller's, or listproxy's own with headers that impersonate exactly this caller. SendAs uses connections
// of its own, and follows no redirects. Its errors contain no credentials.
func (t *Transports) SendAs(ctx context.Context, id auth.Identity, r *http.Request) (*http.Response, error) {
	id.Present(r.Header)
	res, err := t.ownRoundTripper(id).RoundTrip(r.WithContext(ctx))
	if err == nil {
		t.Answered(id, false, r.Method, res.StatusCode)
	}
	return res, err
}

// RoundTripper returns the transport for a caller's request: over HTTP/1.1 for an upgrade, which takes over the connection,
// and otherwise over HTTP/2 if the API server speaks it (see also unknownCallers and lanes). The transport follows no
// redirects, decompresses nothing, and changes no headers, except that it adds listproxy's credentials for an impersonated
// user.
func (t *Transports) RoundTripper(id auth.Identity, r *kubehttp.Request) http.RoundTripper {
	set := t.set(id)
	verdict, flow := t.Caller(id, "")
	switch {
	case set == nil:
		return refusingTransport{}
	case r.Upgrade != "":
		return set.http1
	case verdict != auth.Accepted:
		return set.unknown
	case r.LongRunning:
		return set.long[flow[0]%lanes]
	}
	return set.short[flow[0]%lanes]
}

// ownRoundTripper returns the transport for a request of listproxy's own making as a caller.
func (t *Transports) ownRoundTripper(id auth.Identity) http.RoundTripper {
	set := t.set(id)
	verdict, _ := t.Caller(id, "")
	switch {
	case set == nil:
		return refusingTransport{}
	case verdict != auth.Accepted:
		return set.http1 // see unknownCallers; listproxy's own bodies are small
	}
	return set.sendAs
}

// set returns the transports for a caller; nil if the caller is impersonated, and listproxy impersonates nobody.
func (t *Transports) set(id auth.Identity) *transportSet {
	if id.Impersonated() != nil {
		return t.current.Load().impersonated
	}
	return t.current.Load().anonymous
}

// overHTTP2 makes t speak HTTP/2 if the API server does, and returns t. A connection that was silent for sendPing sends a
// ping, and ends if no answer comes within pingTimeout.
func overHTTP2(t *http.Transport, sendPing, pingTimeout time.Duration) http.RoundTripper {
	t.Protocols.SetHTTP2(true)
	t.HTTP2 = &http.HTTP2Config{
		SendPingTimeout: sendPing, PingTimeout: pingTimeout, MaxReceiveBufferPerStream: streamReceiveBuffer,
	}
	return t
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
	return &http.Transport{
		// There is one upstream.
		Proxy:                 func(*http.Request) (*url.URL, error) { return proxy(&http.Request{URL: base}) },
		DialContext:           dialer(cfg),
		TLSClientConfig:       tlsConfig.Clone(),
		TLSHandshakeTimeout:   tlsHandshakeTimeout,
		ExpectContinueTimeout: expectContinueTimeout,
		IdleConnTimeout:       idleConnTimeout,
		MaxIdleConns:          maxIdleConns,
		MaxIdleConnsPerHost:   maxIdleConns,
		// Clients get what they asked for, and the bytes that were sent.
		DisableCompression: true,
		Protocols:          protocols,
	}
}

func dialer(cfg *rest.Config) func(ctx context.Context, network, address string) (net.Conn, error) {
	dial := cfg.Dial
	if dial == nil {
		return (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		return dial(ctx, network, address)
	}
}

// verifyAnonymous returns an error if a transport for callers' requests holds credentials. It checks the transports and
// not their configuration: if a change in client-go or here lets credentials in, listproxy does not start.
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
