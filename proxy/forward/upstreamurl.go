package forward

import (
	"net/url"
	"strings"
)

// target returns the API server's URL for the target of a request, byte for byte. Unusual targets (double slashes, %2f,
// semicolons, stray per cent signs) are the API server's to judge.
//
// Only a space is escaped, which does not change the meaning: HTTP/2 allows a space in a path, but in HTTP/1.1 a space
// ends the target.
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
	// net/url would escape some bytes of this path. It sends Opaque as it is, but reads two slashes at the beginning of
	// Opaque as the beginning of a host.
	target.Opaque = raw
	if strings.HasPrefix(raw, "//") {
		target.Opaque = "//" + base.Host + raw
	}
	return target
}
