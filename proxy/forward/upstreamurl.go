package forward

import (
	"net/url"
	"strings"
)

// target returns the API server's URL for the target of a request, byte for byte. Unusual targets
// (double slashes, %2f, semicolons, stray per cent signs) are passed on for the API server to
// judge.
//
// Only a space is escaped, which does not change the meaning: HTTP/2 allows a space in a path, but
// in HTTP/1.1 it would end the target.
func (f *Forwarder) target(requestURI string) *url.URL {
	base := f.base
	path, query, hasQuery := strings.Cut(strings.ReplaceAll(requestURI, " ", "%20"), "?")
	raw := base.EscapedPath() + path
	target := &url.URL{
		Scheme: base.Scheme, Host: base.Host,
		RawPath: raw, RawQuery: query, ForceQuery: hasQuery && query == "",
	}
	var err error
	if target.Path, err = url.PathUnescape(raw); err == nil && target.EscapedPath() == raw {
		return target
	}
	// There are bytes that net/url would escape. It sends Opaque as it is, except that two slashes
	// at its beginning would begin a host.
	target.Opaque = raw
	if strings.HasPrefix(raw, "//") {
		target.Opaque = "//" + base.Host + raw
	}
	return target
}
