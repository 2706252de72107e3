package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/proxy/authn"
	"github.com/listproxy/listproxy/proxy/inflight"
	"github.com/listproxy/listproxy/proxy/upstream"
)

const (
	dialTimeout           = 30 * time.Second
	keepAlive             = 30 * time.Second
	tlsHandshakeTimeout   = 10 * time.Second
	expectContinueTimeout = time.Second
	idleConnTimeout       = 90 * time.Second
	// After sendPingTimeout without a frame the upstream is asked whether it is
	// still there; after pingTimeout without an answer the connection and all
	// watches on it end, so that clients notice a vanished API server.
	sendPingTimeout = 30 * time.Second
	pingTimeout     = 15 * time.Second
	// ownPingTimeout is both for requests of listproxy's own making: they are short, and while they
	// wait on a connection that is dead, answers from memory wait too.
	ownPingTimeout = 5 * time.Second
	// maxIdleConns bounds idle connections. Only an upstream without HTTP/2, and
	// upgrades that it refused, need more than a few.
	maxIdleConns = 256
	// streamReceiveBuffer bounds what one response may hold in memory while its
	// client does not read. It is what may be on the way at a time as well: with an API server that is a
	// millisecond away 125 MB a second.
	streamReceiveBuffer = 128 << 10
)

// Upstream is the way to the API server for other people's requests: its
// address, the means to verify that it is the right one, and no credentials at
// all, but for requests of users whom the proxy states ([Upstream.Impersonate]).
// It is safe for concurrent use.
type Upstream struct {
	base     *url.URL // path prefix without a trailing slash
	requests *http.Transport
	upgrades *http.Transport
	own      *http.Transport // for SendAs

	// strangers makes a connection for each request of a caller without a token, or whom
	// the upstream has not accepted yet: kube-apiserver closes an HTTP/2 connection,
	// which is everybody's, after every 401 and every request of an anonymous caller
	// (UnauthenticatedHTTP2DOSMitigation).
	strangers *http.Transport
	// accepted has the shares of those whom it has accepted: to find one out takes longer than a
	// request for which all is known.
	accepted acceptedTokens

	stated *statedWay // nil unless users may be stated
}

// NewUpstream returns the way to the API server that cfg names. Of cfg it uses
// the host, with a path prefix if it has one, the CA, the server name, whether
// to verify at all, the network proxy and the dialer. It uses none of the
// credentials, and fails rather than return an Upstream that holds one.
//
// The host must be reached over TLS: callers' tokens pass here.
func NewUpstream(cfg *rest.Config) (*Upstream, error) {
	base, err := upstream.Base(cfg)
	if err != nil {
		return nil, err
	}
	tlsConfig, err := anonymousTLSConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("TLS configuration for the API server at %s: %w", base.Host, err)
	}

	requests := newTransport(cfg, tlsConfig)
	enableHTTP2(requests)
	own := newTransport(cfg, tlsConfig.Clone())
	enableHTTP2(own)
	giveUpSoon(own)
	// Connections can only be taken over, which is what an upgrade is, in
	// HTTP/1.1.
	upgrades := newTransport(cfg, tlsConfig.Clone())
	strangers := newTransport(cfg, tlsConfig.Clone())
	enableHTTP2(strangers)
	strangers.DisableKeepAlives = true

	up := &Upstream{base: base, requests: requests, upgrades: upgrades, own: own, strangers: strangers}
	if err := up.verifyAnonymous(); err != nil {
		return nil, fmt.Errorf("the transport for callers' requests is not anonymous, this is a defect of listproxy: %w", err)
	}
	return up, nil
}

// URL returns the API server's base URL. Its path is the prefix of every
// request's path, without a trailing slash, and mostly empty.
func (u *Upstream) URL() *url.URL {
	base := *u.base
	return &base
}

// Impersonate makes it possible to send requests of stated users: with the
// credentials of cfg, which must have the right to impersonate them. It must be
// called before the first request.
func (u *Upstream) Impersonate(cfg *rest.Config) error {
	way, err := newStatedWay(cfg)
	if err != nil {
		return fmt.Errorf("the way to the API server with the proxy's own credentials: %w", err)
	}
	u.stated = way
	return nil
}

// SendAs sends a request of listproxy's own making as the caller id, and returns
// the answer: with the caller's own credentials, or with listproxy's and the headers
// that impersonate exactly that caller. r has neither yet. It follows no redirects.
// Errors hold nothing of any credential.
type SendAs func(ctx context.Context, id authn.Identity, r *http.Request) (*http.Response, error)

// SendAs is a [SendAs]. It has connections of its own, which are given up sooner than callers' are: a watch may
// be silent for long.
func (u *Upstream) SendAs(ctx context.Context, id authn.Identity, r *http.Request) (*http.Response, error) {
	id.Present(r.Header)
	return u.ownRoundTripper(id).RoundTrip(r.WithContext(ctx))
}

// CloseIdleConnections closes the connections that no request uses.
func (u *Upstream) CloseIdleConnections() {
	for _, transport := range []*http.Transport{u.requests, u.upgrades, u.own, u.strangers} {
		transport.CloseIdleConnections()
	}
}

// RoundTripper returns the transport for requests of a caller: HTTP/1.1 for those
// that ask to take the connection over, else HTTP/2 if the upstream speaks it; on the
// connection of all, if the upstream has accepted the caller before. It follows no redirects, changes no headers (but
// for the proxy's credentials, of stated users) and decompresses nothing.
func (u *Upstream) RoundTripper(id authn.Identity, upgrade bool) http.RoundTripper {
	switch {
	case id.Impersonated() != nil && u.stated == nil:
		return noWay{}
	case id.Impersonated() != nil && upgrade:
		return u.stated.upgrades
	case id.Impersonated() != nil:
		return u.stated.requests
	case upgrade:
		return u.upgrades
	case !id.BringsToken():
		return u.strangers
	case u.Accepted(id):
		return acceptance{u, u.requests, id}
	}
	return acceptance{u, u.strangers, id}
}

// ownRoundTripper returns the transport for requests of listproxy's own making as a caller.
func (u *Upstream) ownRoundTripper(id authn.Identity) http.RoundTripper {
	switch {
	case id.Impersonated() != nil && u.stated == nil:
		return noWay{}
	case id.Impersonated() != nil:
		return u.stated.own
	case u.Accepted(id):
		return acceptance{u, u.own, id}
	}
	return u.RoundTripper(id, false)
}

// Accepted says whether id is known to be somebody: stated by the proxy, or accepted by
// the upstream not long ago.
func (u *Upstream) Accepted(id authn.Identity) bool {
	if id.Impersonated() != nil || !id.BringsToken() {
		return id.Impersonated() != nil
	}
	_, accepted := u.accepted.get(id.Key())
	return accepted
}

// Share returns the key of the caller's share. The answer of [Upstream.Accepted] decides whose share
// that is: the caller's own, or that of all whom the API server has not accepted at one address.
func (u *Upstream) Share(id authn.Identity, accepted bool, remoteAddr string) inflight.ShareKey {
	if accepted && id.Impersonated() == nil {
		if share, known := u.accepted.get(id.Key()); known {
			return share
		}
	}
	return authn.ShareKey(id, accepted, remoteAddr)
}

// acceptance remembers whom the upstream accepts.
type acceptance struct {
	upstream *Upstream
	next     http.RoundTripper
	caller   authn.Identity
}

// RoundTrip implements [http.RoundTripper].
func (a acceptance) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := a.next.RoundTrip(r)
	switch {
	case err != nil:
	case res.StatusCode == http.StatusUnauthorized:
		a.upstream.accepted.remove(a.caller.Key())
	case provesAuthentication(r.Method, res.StatusCode):
		a.upstream.Accept(a.caller)
	}
	return res, err
}

// Accept remembers that the API server has accepted the token of id.
func (u *Upstream) Accept(id authn.Identity) {
	u.accepted.add(id.Key(), func() inflight.ShareKey { return authn.ShareKey(id, true, "") })
}

// provesAuthentication says whether an answer can only be had by somebody whom kube-apiserver has
// authenticated. It gives some answers before it looks at a token (DefaultBuildHandlerChain in
// k8s.io/apiserver/pkg/server): 400 for a malformed timeout, to the preflights of CORS, 429 and 5xx
// when it has too much to do or ends. Who makes up tokens must not be taken for somebody by these.
func provesAuthentication(method string, status int) bool {
	if method == http.MethodOptions {
		return false
	}
	return status >= http.StatusOK && status < http.StatusMultipleChoices || status == http.StatusForbidden
}

func enableHTTP2(t *http.Transport) {
	t.Protocols.SetHTTP2(true)
	t.HTTP2 = &http.HTTP2Config{
		SendPingTimeout:           sendPingTimeout,
		PingTimeout:               pingTimeout,
		MaxReceiveBufferPerStream: streamReceiveBuffer,
	}
}

// giveUpSoon makes a connection on which nothing comes end after twice ownPingTimeout.
func giveUpSoon(t *http.Transport) {
	t.HTTP2.SendPingTimeout, t.HTTP2.PingTimeout = ownPingTimeout, ownPingTimeout
}

// anonymousTLSConfig returns how to verify the API server, and nothing to
// identify the proxy by.
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

// newTransport returns a transport for HTTP/1.1, as its Protocols say.
func newTransport(cfg *rest.Config, tlsConfig *tls.Config) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	proxy := cfg.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment // as client-go does
	}
	return &http.Transport{
		Proxy:                 proxy,
		DialContext:           dialer(cfg),
		TLSClientConfig:       tlsConfig,
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

// verifyAnonymous looks at what has been built, and not at what it was built
// from: a change in client-go or here that lets a credential in is noticed at
// the start, and not by whoever borrows it.
func (u *Upstream) verifyAnonymous() error {
	if u.base.User != nil {
		return errors.New("its URL holds a user")
	}
	for _, transport := range []*http.Transport{u.requests, u.upgrades, u.own, u.strangers} {
		switch tlsConfig := transport.TLSClientConfig; {
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
