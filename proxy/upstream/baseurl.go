package upstream

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"k8s.io/client-go/rest"
)

// BaseURL returns the URL of the API server that cfg names, without a slash at the end of its path. It fails if the URL is
// not https, since callers' tokens are sent to it, or if it has other parts than scheme, host, port and path.
func BaseURL(cfg *rest.Config) (*url.URL, error) {
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		// The error may quote the host, which may hold a password.
		return nil, errors.New("the API server's address in the client configuration is not a URL: write it as https://host:port")
	}
	switch {
	case base.Scheme != "https":
		return nil, fmt.Errorf("the API server's URL on %s is not https: callers' tokens would be readable on the way, use https",
			base.Host)
	case base.User != nil || base.RawQuery != "" || base.Fragment != "":
		return nil, fmt.Errorf("the API server's URL on %s has a user, a query or a fragment: write it as https://host:port/prefix",
			base.Host)
	}
	// The path is trimmed in its escaped form, which tells a slash at the end from %2F, which is no separator.
	raw := strings.TrimRight(base.EscapedPath(), "/")
	path, _ := url.PathUnescape(raw) // an escaped path is well-formed
	return &url.URL{Scheme: base.Scheme, Host: base.Host, Path: path, RawPath: raw}, nil
}
