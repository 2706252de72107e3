package analyze

import (
	"net/http"
	"strings"

	"github.com/listproxy/listproxy/telemetry"
)

// maxName is the longest name of a user or resource that is kept, in bytes.
const maxName = 253

// client is a program and the user as which it runs.
type client struct {
	agent string // program and version, see [telemetry.UserAgent]
	user  string
}

// newClient returns the client that sent a request. All nodes count as one user: a cluster has thousands, and their
// requests are alike.
func newClient(userAgent, user string) client {
	const node = "system:node:"
	if strings.HasPrefix(user, node) {
		user = node + "*"
	}
	return client{telemetry.UserAgent(userAgent), sanitized(user)}
}

// sanitized returns a name without control characters, which could command a terminal, and cut after maxName bytes.
func sanitized(name string) string {
	name = strings.Map(func(r rune) rune {
		if r < ' ' || (0x7f <= r && r < 0xa0) {
			return -1
		}
		return r
	}, name)
	if len(name) > maxName {
		return strings.ToValidUTF8(name[:maxName], "") + "…"
	}
	return name
}

// resourceName returns a resource as kubectl names it.
func resourceName(group, resource string) string {
	switch {
	case resource == "":
		return "?"
	case group == "":
		return sanitized(resource)
	}
	return sanitized(resource + "." + group)
}

// succeeded reports whether a request succeeded. The code is 0 if the log does not have it; then it is assumed.
func succeeded(code int) bool { return code == 0 || code == http.StatusOK }
