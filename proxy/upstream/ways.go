package upstream

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// ways are all transports to the API server, for one content of the files that the client
// configuration names. When the content changes, they are replaced as a whole: no new request uses
// a connection that was made with another CA or client certificate. What is open on such
// connections goes on.
type ways struct {
	config *rest.Config // with the files' content in place of their names

	anonymous *way
	// unauthenticated makes a connection for each request of a caller who brings no token, or whose
	// token the API server has not accepted yet. After every 401 and every anonymous request
	// kube-apiserver closes the HTTP/2 connection (UnauthenticatedHTTP2DOSMitigation), and the one
	// in anonymous.requests is shared by all callers.
	unauthenticated singleUse
	impersonated    *way // nil unless users may be impersonated
}

// newWays returns the ways that cfg describes, which names no TLS files.
func newWays(cfg *rest.Config, base *url.URL, impersonate bool) (*ways, error) {
	tlsConfig, err := anonymousTLSConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("TLS configuration for the API server at %s: %w", base.Host, err)
	}
	w := &ways{config: cfg, anonymous: newWay(cfg, base, tlsConfig)}
	unauthenticated := newTransport(cfg, base, tlsConfig)
	enableHTTP2(unauthenticated)
	w.unauthenticated = newSingleUse(unauthenticated)
	if err := verifyAnonymous(append(w.anonymous.transports(), unauthenticated)); err != nil {
		return nil, fmt.Errorf("the transport for callers' requests is not anonymous, this is a defect of listproxy: %w", err)
	}
	if impersonate {
		if w.impersonated, err = newImpersonatedWay(cfg, base); err != nil {
			return nil, fmt.Errorf("the way to the API server with the proxy's own credentials: %w", err)
		}
	}
	return w, nil
}

// transports are all transports.
func (w *ways) transports() []*http.Transport {
	all := append(w.anonymous.transports(), w.unauthenticated.Transport)
	if w.impersonated != nil {
		all = append(all, w.impersonated.transports()...)
	}
	return all
}

// closeIdle closes the connections that no request uses, and each other one when its requests have
// ended.
func (w *ways) closeIdle() {
	for _, transport := range w.transports() {
		transport.CloseIdleConnections()
	}
}

// madeOf says whether w was made of a configuration with the same files' content.
func (w *ways) madeOf(cfg *rest.Config) bool {
	return bytes.Equal(w.config.CAData, cfg.CAData) && bytes.Equal(w.config.CertData, cfg.CertData) &&
		bytes.Equal(w.config.KeyData, cfg.KeyData)
}

// withFiles returns cfg with the content of its TLS files in place of their names. A file may be
// empty while it is written, and without a CA the system's would be trusted, so that is an error.
func withFiles(cfg *rest.Config) (*rest.Config, error) {
	cfg = rest.CopyConfig(cfg)
	if err := rest.LoadTLSFiles(cfg); err != nil {
		return nil, err
	}
	if cfg.CAFile != "" && len(cfg.CAData) == 0 || cfg.CertFile != "" && len(cfg.CertData) == 0 ||
		cfg.KeyFile != "" && len(cfg.KeyData) == 0 {
		return nil, errors.New("the file of the CA, the client certificate or its key is empty")
	}
	cfg.CAFile, cfg.CertFile, cfg.KeyFile = "", "", ""
	return cfg, nil
}

// way sends requests to the API server with one kind of credentials, or none.
type way struct {
	requests http.RoundTripper
	upgrades http.RoundTripper // HTTP/1.1 only: an upgrade takes the connection over
	own      http.RoundTripper // for SendAs
	below    [3]*http.Transport
}

// newWay returns a way without credentials, except what tlsConfig has.
func newWay(cfg *rest.Config, base *url.URL, tlsConfig *tls.Config) *way {
	requests, upgrades, own := newTransport(cfg, base, tlsConfig), newTransport(cfg, base, tlsConfig), newTransport(cfg, base, tlsConfig)
	enableHTTP2(requests)
	enableHTTP2(own)
	giveUpSoon(own)
	return &way{requests, upgrades, own, [...]*http.Transport{requests, upgrades, own}}
}

func (w *way) transports() []*http.Transport { return w.below[:] }

// newImpersonatedWay returns a way that sends requests with listproxy's own credentials, which are
// those of cfg. It sends only requests that name a user in Impersonate-* headers.
func newImpersonatedWay(cfg *rest.Config, base *url.URL) (*way, error) {
	if cfg.Impersonate.UserName != "" {
		return nil, errors.New("it is to impersonate somebody (as in the kubeconfig), and cannot be two at a time: leave that out")
	}
	own := rest.CopyConfig(cfg)
	own.UserAgent = "" // the caller's is sent, even if it is none
	transportConfig, err := own.TransportConfig()
	if err != nil {
		return nil, err
	}
	tlsConfig, err := transport.TLSConfigFor(transportConfig)
	if err != nil {
		return nil, err
	}
	if tlsConfig == nil {
		return nil, errors.New("it is not TLS")
	}
	tlsConfig.NextProtos = nil // each transport sets its own
	if transportConfig.DialHolder != nil {
		// When a plugin brings another certificate, client-go closes what was dialed here.
		own.Dial = transportConfig.DialHolder.Dial
	}
	w := newWay(own, base, tlsConfig)
	for _, next := range []*http.RoundTripper{&w.requests, &w.upgrades, &w.own} {
		if *next, err = transport.HTTPWrappersForConfig(transportConfig, *next); err != nil {
			return nil, fmt.Errorf("its credentials: %w", err)
		}
		*next = impersonatedOnly{*next}
	}
	return w, nil
}

// errNotImpersonated means a bug in listproxy, noticed before anything is sent with its
// credentials.
var errNotImpersonated = errors.New("a request with listproxy's own credentials does not name the user that it is for")

// impersonatedOnly passes only requests that name a user in Impersonate-* headers. client-go adds
// credentials to requests that have none, so without this check a mistake elsewhere would give a
// caller listproxy's own rights.
type impersonatedOnly struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (s impersonatedOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	users := r.Header["Impersonate-User"]
	if len(users) != 1 || users[0] == "" || len(r.Header["Impersonate-Group"]) == 0 || r.Header["Authorization"] != nil {
		return noWay{}.RoundTrip(r)
	}
	return s.next.RoundTrip(r)
}

// noWay sends nothing.
type noWay struct{}

// RoundTrip implements [http.RoundTripper].
func (noWay) RoundTrip(r *http.Request) (*http.Response, error) {
	closeBody(r)
	return nil, errNotImpersonated
}
