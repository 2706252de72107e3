package kubehttp

import (
	"net/http"

	"k8s.io/client-go/rest"
)

// NewClient returns a client of one server. It follows no redirect, see [NoRedirect].
func NewClient(cfg *rest.Config) (*http.Client, error) {
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: transport, Timeout: cfg.Timeout, CheckRedirect: NoRedirect}, nil
}

// NoRedirect is the [http.Client.CheckRedirect] of clients whose credentials are for one server only. A redirect
// is the answer that they get.
func NoRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
