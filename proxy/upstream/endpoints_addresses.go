package upstream

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
)

// ParseEndpoints returns host:port of each of the URLs, which are https://host:port or without a
// port. It refuses two that are the same.
func ParseEndpoints(urls []string) ([]string, error) {
	var addresses []string
	for _, u := range urls {
		address, err := parseEndpoint(u)
		if err != nil {
			return nil, err
		}
		if slices.Contains(addresses, address) {
			return nil, fmt.Errorf("%s is there twice: leave one out", address)
		}
		addresses = append(addresses, address)
	}
	return addresses, nil
}

// parseEndpoint returns host:port of an endpoint's URL.
func parseEndpoint(address string) (string, error) {
	const form = "write it as https://host:port"
	u, err := url.Parse(address)
	switch {
	case err != nil: // the error quotes what may hold a password
		return "", fmt.Errorf("an address is not a URL: %s", form)
	case u.User != nil:
		return "", fmt.Errorf("%s holds a user or password: %s", u.Redacted(), form)
	case u.Scheme != "https":
		return "", fmt.Errorf("%q is not https, and callers' tokens would be readable on the way: %s", address, form)
	case u.Hostname() == "":
		return "", fmt.Errorf("%q names no host: %s", address, form)
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return "", fmt.Errorf("%q has more than a host and a port (a path is the kubeconfig's to say): %s", address, form)
	}
	return strings.ToLower(hostPort(u)), nil
}

// hostPort returns where to connect to for an https URL.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = "443"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// reachedDirectly returns an error if the API server is reached through a network proxy: then the
// proxy makes the connections, and listproxy cannot choose an endpoint.
func reachedDirectly(cfg *rest.Config, base *url.URL) error {
	find, where := cfg.Proxy, "the kubeconfig's proxy-url"
	if find == nil {
		find, where = http.ProxyFromEnvironment, "the environment (HTTPS_PROXY)"
	}
	found, err := find(&http.Request{URL: base})
	if err != nil {
		return fmt.Errorf("%s is not understood: correct it, or take it away", where)
	}
	if found != nil {
		return fmt.Errorf("%s names a network proxy for %s, which would choose where to connect: use one or the other", where, base.Host)
	}
	return nil
}
