package upstream

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"

	"k8s.io/client-go/rest"
)

// ways are all transports to the API server, for one content of the files that the client
// configuration names. When the content changes, they are replaced as a whole: no new request uses
// a connection that was made with another CA or client certificate. What is open on such
// connections goes on.
type ways struct {
	config *rest.Config // with the files' content in place of their names

	anonymous    *way
	impersonated *way // nil unless users may be impersonated
}

// newWays returns the ways that cfg describes, which names no TLS files.
func newWays(cfg *rest.Config, base *url.URL, impersonate bool) (*ways, error) {
	tlsConfig, err := anonymousTLSConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("TLS configuration for the API server at %s: %w", base.Host, err)
	}
	w := &ways{config: cfg, anonymous: newWay(cfg, base, tlsConfig)}
	if err := verifyAnonymous(w.anonymous.transports()); err != nil {
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
	all := w.anonymous.transports()
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

// way sends requests to the API server with one kind of credentials, or none.
type way struct {
	requests http.RoundTripper
	// http1 is for upgrades, which take a connection over, and for callers who bring no token that the
	// API server has accepted. After every 401 and every anonymous request kube-apiserver closes an
	// HTTP/2 connection (UnauthenticatedHTTP2DOSMitigation), which other callers would share; over
	// HTTP/1.1 it keeps it, so a caller with made-up tokens causes no handshakes.
	http1 http.RoundTripper
	own   http.RoundTripper // for SendAs
	below [3]*http.Transport
}

// newWay returns a way without credentials, except what tlsConfig has.
func newWay(cfg *rest.Config, base *url.URL, tlsConfig *tls.Config) *way {
	requests, http1, own := newTransport(cfg, base, tlsConfig), newTransport(cfg, base, tlsConfig), newTransport(cfg, base, tlsConfig)
	http1.IdleConnTimeout = idleHTTP1Timeout
	enableHTTP2(requests)
	enableHTTP2(own)
	giveUpSoon(own)
	return &way{requests, http1, own, [...]*http.Transport{requests, http1, own}}
}

func (w *way) transports() []*http.Transport { return w.below[:] }
