package analyze

import (
	"net/http"
	"strings"

	"github.com/listproxy/listproxy/telemetry"
)

// maxName is the longest name of a user or resource that is kept, in bytes.
const maxName = 253

// client is who asks.
type client struct {
	agent string // program and version, see [telemetry.UserAgent]
	user  string
}

// clientOf names a client. All nodes are one user: a cluster has thousands, which do the same.
func clientOf(userAgent, user string) client {
	const node = "system:node:"
	if strings.HasPrefix(user, node) {
		user = node + "*"
	}
	return client{telemetry.UserAgent(userAgent), bounded(user)}
}

// bounded is a name that is no longer than maxName, and has nothing that could command a terminal.
func bounded(name string) string {
	name = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || 0x80 <= r && r < 0xa0 {
			return -1
		}
		return r
	}, name)
	if len(name) > maxName {
		return strings.ToValidUTF8(name[:maxName], "") + "…"
	}
	return name
}

// resourceName is a resource as kubectl names it.
func resourceName(group, resource string) string {
	switch {
	case resource == "":
		return "?"
	case group == "":
		return bounded(resource)
	}
	return bounded(resource + "." + group)
}

// succeeded reports whether the answer was what was asked for. 0 is a log that does not say.
func succeeded(code int) bool { return code == 0 || code == http.StatusOK }
