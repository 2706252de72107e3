package upstream

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// errNotImpersonated means that listproxy has a bug, which was noticed before anything was sent with its credentials.
var errNotImpersonated = errors.New("a request with listproxy's own credentials does not name the user that it is for")

// impersonatedOnly refuses requests that do not name a user and a group in Impersonate-* headers, or that have credentials of their
// own. next adds listproxy's credentials to all others, so without this check a mistake elsewhere would give a caller listproxy's
// own rights. A group is required, since kube-apiserver gives groups of its own choice to a user without one.
type impersonatedOnly struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (i impersonatedOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	users := r.Header["Impersonate-User"]
	namesUser := len(users) == 1 && users[0] != ""
	namesGroup := len(r.Header["Impersonate-Group"]) > 0
	hasCredentials := r.Header["Authorization"] != nil
	if !namesUser || !namesGroup || hasCredentials {
		return refusingTransport{}.RoundTrip(r)
	}
	return i.next.RoundTrip(r)
}

// refusingTransport refuses every request with errNotImpersonated.
type refusingTransport struct{}

// RoundTrip implements [http.RoundTripper].
func (refusingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return nil, errNotImpersonated
}

// newImpersonatingSet returns a set that sends requests with the credentials of cfg, listproxy's own. The set refuses
// requests that do not name a user to impersonate ([impersonatedOnly]).
func newImpersonatingSet(cfg *rest.Config, base *url.URL) (*transportSet, error) {
	if err := checkCanImpersonate(cfg, base); err != nil {
		return nil, err
	}
	own := rest.CopyConfig(cfg)
	own.UserAgent = "" // the caller's User-Agent is sent, or none
	transportConfig, err := own.TransportConfig()
	if err != nil {
		return nil, err
	}
	tlsConfig, err := transport.TLSConfigFor(transportConfig)
	if err != nil {
		return nil, err
	}
	if tlsConfig == nil {
		return nil, errors.New("the connection to the API server does not use TLS")
	}
	tlsConfig.NextProtos = nil // each transport sets its own
	if transportConfig.DialHolder != nil {
		// This dialer lets client-go close these connections when a credential plugin brings another certificate.
		own.Dial = transportConfig.DialHolder.Dial
	}
	return newTransportSet(own, base, tlsConfig, func(t *http.Transport) (http.RoundTripper, error) {
		withCredentials, err := transport.HTTPWrappersForConfig(transportConfig, t)
		if err != nil {
			return nil, fmt.Errorf("listproxy's own credentials: %w", err)
		}
		return impersonatedOnly{withCredentials}, nil
	})
}

// checkCanImpersonate returns an error if the credentials of cfg cannot be used for callers, or only unsafely.
func checkCanImpersonate(cfg *rest.Config, base *url.URL) error {
	switch {
	case cfg.Impersonate.UserName != "":
		return errors.New(
			"the kubeconfig impersonates a user, so listproxy cannot impersonate its callers: remove that from the kubeconfig")
	case base.Path != "":
		return fmt.Errorf("the API server's URL has the path %s: with \"..\" a caller could reach other paths of that server with "+
			"listproxy's credentials. Use an address without a path, or leave out --client-ca-file", base.Path)
	}
	return nil
}
