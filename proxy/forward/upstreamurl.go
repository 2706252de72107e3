package forward

import (
	"net/url"
	"strings"
)

// upstreamURL returns the URL at the API server for a request with this target. base is the API server's base URL. The bytes of
// the target stay as they are, since only the API server can judge unusual targets (double slashes, %2f, semicolons, stray
// percent signs). The exception is a space: HTTP/2 allows it in a path, but in HTTP/1.1 it ends the target. So it is escaped.
func upstreamURL(base *url.URL, target string) *url.URL {
	path, query, hasQuery := strings.Cut(strings.ReplaceAll(target, " ", "%20"), "?")
	raw := base.EscapedPath() + path
	unescaped, err := url.PathUnescape(raw)
	u := &url.URL{
		Scheme: base.Scheme, Host: base.Host,
		Path: unescaped, RawPath: raw, RawQuery: query, ForceQuery: hasQuery && query == "",
	}
	if err == nil && u.EscapedPath() == raw {
		return u
	}
	// net/url would escape some bytes of this path, but it writes Opaque as it is.
	u.Opaque = raw
	if strings.HasPrefix(raw, "//") {
		// net/url takes what follows two slashes for a host, so the host must come before the path.
		u.Opaque = "//" + base.Host + raw
	}
	return u
}
