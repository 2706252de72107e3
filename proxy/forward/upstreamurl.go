package forward

import (
	"net/url"
	"strings"
)

// upstreamURL returns the URL at the API server for the target of a request, whose bytes it keeps. Unusual targets (double
// slashes, %2f, semicolons, stray per cent signs) are the API server's to judge. base is the API server's base URL.
//
// Only a space is escaped, which does not change the meaning: HTTP/2 allows a space in a path, but in HTTP/1.1 a space
// ends the target.
func upstreamURL(base *url.URL, target string) *url.URL {
	path, query, hasQuery := strings.Cut(strings.ReplaceAll(target, " ", "%20"), "?")
	raw := base.EscapedPath() + path
	u := &url.URL{
		Scheme: base.Scheme, Host: base.Host,
		RawPath: raw, RawQuery: query, ForceQuery: hasQuery && query == "",
	}
	var err error
	u.Path, err = url.PathUnescape(raw)
	if err == nil && u.EscapedPath() == raw {
		return u
	}
	// net/url would escape some bytes of this path. It sends Opaque as it is, but reads two slashes at the beginning of
	// Opaque as the beginning of a host.
	u.Opaque = raw
	if strings.HasPrefix(raw, "//") {
		u.Opaque = "//" + base.Host + raw
	}
	return u
}
