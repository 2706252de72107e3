package upstream

import (
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// Client returns a client of one server, which follows no redirect: its credentials are for that
// server only.
func Client(cfg *rest.Config) (*http.Client, error) {
	client, err := rest.HTTPClientFor(cfg)
	if err == nil {
		client.CheckRedirect = kubehttp.NoRedirect
	}
	return client, err
}
