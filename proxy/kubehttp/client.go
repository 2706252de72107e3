package kubehttp

import (
	"net/http"

	"k8s.io/client-go/rest"
)

// NewClient returns a client of one server, which follows no redirect: its credentials are for that
// server only, and what it asks for is there or nowhere.
func NewClient(cfg *rest.Config) (*http.Client, error) {
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: transport, Timeout: cfg.Timeout, CheckRedirect: NoRedirect}, nil
}

// NoRedirect is for [http.Client.CheckRedirect] of clients whose credentials are for one server
// only: what would send them elsewhere is their answer.
func NoRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
