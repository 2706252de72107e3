package upstream

import (
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// Client returns a client of one server, which follows no redirect: its credentials are for that
// server only, and what it asks for is there or nowhere.
func Client(cfg *rest.Config) (*http.Client, error) {
	client, err := rest.HTTPClientFor(cfg) // which may be http.DefaultClient
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: client.Transport, Timeout: client.Timeout, CheckRedirect: kubehttp.NoRedirect}, nil
}
