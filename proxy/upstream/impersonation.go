package upstream

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// errNotImpersonated is the error of a request for a verified user that does not impersonate this user as it should. It means
// that listproxy has a bug, which was noticed before anything was sent with its credentials.
var errNotImpersonated = errors.New("listproxy's own credentials are only for requests that properly impersonate a user")

// impersonationGuard checks each request before next adds listproxy's credentials to it. After a mistake elsewhere, a caller
// could otherwise get listproxy's own rights. The guard refuses a request:
//
//   - without exactly one user in Impersonate-User;
//   - without a group in Impersonate-Group, since kube-apiserver would choose the groups of the user itself;
//   - with credentials of its own.
type impersonationGuard struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (g impersonationGuard) RoundTrip(r *http.Request) (*http.Response, error) {
	users := r.Header["Impersonate-User"]
	namesUser := len(users) == 1 && users[0] != ""
	namesGroup := len(r.Header["Impersonate-Group"]) > 0
	hasCredentials := r.Header["Authorization"] != nil
	if !namesUser || !namesGroup || hasCredentials {
		return refusingTransport{}.RoundTrip(r)
	}
	return g.next.RoundTrip(r)
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

// newImpersonatingSet returns transports that send the requests of impersonated users with listproxy's own credentials, which
// are in cfg. They refuse the requests that [impersonationGuard] refuses.
func newImpersonatingSet(cfg *rest.Config, base *url.URL) (*transportSet, error) {
	if err := checkCanImpersonate(cfg, base); err != nil {
		return nil, err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = ""   // the caller's User-Agent is sent, or none
	cfg.NextProtos = nil // each transport sets its own
	credentials, err := cfg.TransportConfig()
	if err != nil {
		return nil, err
	}
	tlsConfig, err := transport.TLSConfigFor(credentials)
	if err != nil {
		return nil, err
	}
	// With a credential plugin, TransportConfig has wrapped the dialer of cfg, and the transports must use the wrapped one:
	// when the plugin brings another certificate, client-go closes all connections that the wrapped dialer has opened.
	if dialer := credentials.DialHolder; dialer != nil {
		cfg.Dial = dialer.Dial
	}
	return newTransportSet(cfg, base, tlsConfig, func(t *http.Transport) (http.RoundTripper, error) {
		withCredentials, err := transport.HTTPWrappersForConfig(credentials, t)
		if err != nil {
			return nil, fmt.Errorf("listproxy's own credentials: %w", err)
		}
		return impersonationGuard{withCredentials}, nil
	})
}

// checkCanImpersonate returns an error if callers cannot be impersonated with the credentials of cfg, or not safely.
func checkCanImpersonate(cfg *rest.Config, base *url.URL) error {
	switch {
	case cfg.Impersonate.UserName != "":
		return errors.New("the kubeconfig impersonates a user, so listproxy cannot impersonate its callers: " +
			"remove as, as-uid, as-groups and as-user-extra from the kubeconfig")
	case base.Path != "":
		return fmt.Errorf("the API server's URL has the path %s: with \"..\" a caller could reach other paths of that server with "+
			"listproxy's credentials. Use an address without a path, or leave out --client-ca-file", base.Path)
	}
	return nil
}
