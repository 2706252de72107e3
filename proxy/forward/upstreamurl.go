package forward

import (
	"net/url"
	"strings"
)

// upstreamURL returns the URL at the API server for a request with this target. base is the API server's base URL. The bytes
// of the target stay as they are, since only the API server can judge unusual targets (double slashes, %2f, semicolons,
// stray per cent signs).
//
// Only a space is escaped, which does not change the meaning. HTTP/2 allows a space in a path, but in HTTP/1.1 a space ends
// the target.
func upstreamURL(base *url.URL, target string) *url.URL {
	path, query, hasQuery := strings.Cut(strings.ReplaceAll(target, " ", "%20"), "?")
	raw := base.EscapedPath() + path
	u := &url.URL{
		Scheme: base.Scheme, Host: base.Host, RawPath: raw, RawQuery: query, ForceQuery: hasQuery && query == "",
	}
	var err error
	u.Path, err = url.PathUnescape(raw)
	if err == nil && u.EscapedPath() == raw {
		return u
	}
	// net/url would escape some bytes of this path. Opaque is sent as it is.
	u.Opaque = raw
	if strings.HasPrefix(raw, "//") {
		// An Opaque that begins with two slashes is sent as an absolute URL, so the host must come before the path.
		u.Opaque = "//" + base.Host + raw
	}
	return u
}
