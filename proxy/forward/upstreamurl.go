package forward

import (
	"net/url"
	"strings"
)

// upstreamURL returns the URL at the API server for a request with this target. base is the API server's base URL. The bytes
// of the target stay as they are, since only the API server can judge unusual targets (double slashes, %2f, semicolons,
// stray percent signs). Only a space is escaped. HTTP/2 allows it in a path, but in HTTP/1.1 it ends the target.
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
	// net/url would escape some bytes of this path. It sends Opaque as it is.
	u.Opaque = raw
	if strings.HasPrefix(raw, "//") {
		// net/url sends an Opaque that begins with two slashes as an absolute URL, so the host must come before the path.
		u.Opaque = "//" + base.Host + raw
	}
	return u
}
