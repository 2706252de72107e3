package kubehttp

import (
	"net/http"

	"k8s.io/client-go/rest"
)

// NewClient returns a client with the credentials, the CA and the timeout of cfg. It follows no redirects ([NoRedirect]).
func NewClient(cfg *rest.Config) (*http.Client, error) {
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: transport, Timeout: cfg.Timeout, CheckRedirect: NoRedirect}, nil
}

// NoRedirect is the [http.Client.CheckRedirect] of clients whose credentials are for one server only. The client returns
// a redirect as the answer.
func NoRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
