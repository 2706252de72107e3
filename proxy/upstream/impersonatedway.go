package upstream

import (
	"errors"
	"fmt"
	"net/http"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// errNotImpersonated means a bug in listproxy, noticed before anything is sent with its
// credentials.
var errNotImpersonated = errors.New("a request with listproxy's own credentials does not state whose it is")

// impersonatedWay sends requests to the API server with listproxy's own credentials. It sends only
// requests that name a user in Impersonate-* headers.
type impersonatedWay struct{ requests, upgrades, own http.RoundTripper }

// newImpersonatedWay returns the way that cfg describes.
func newImpersonatedWay(cfg *rest.Config) (*impersonatedWay, error) {
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
	requests := newTransport(cfg, tlsConfig)
	enableHTTP2(requests)
	short := newTransport(cfg, tlsConfig.Clone())
	enableHTTP2(short)
	giveUpSoon(short)
	way := &impersonatedWay{}
	if way.requests, err = impersonating(transportConfig, requests); err != nil {
		return nil, err
	}
	if way.upgrades, err = impersonating(transportConfig, newTransport(cfg, tlsConfig.Clone())); err != nil {
		return nil, err
	}
	if way.own, err = impersonating(transportConfig, short); err != nil {
		return nil, err
	}
	return way, nil
}

// impersonating adds the credentials of cfg to the requests that next sends.
func impersonating(cfg *transport.Config, next http.RoundTripper) (http.RoundTripper, error) {
	with, err := transport.HTTPWrappersForConfig(cfg, next)
	if err != nil {
		return nil, fmt.Errorf("its credentials: %w", err)
	}
	return impersonatedOnly{with}, nil
}

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
