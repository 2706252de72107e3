package analyze

import (
	"strings"

	"github.com/listproxy/listproxy/telemetry"
)

// maxName bounds the bytes that are kept of the name of a user or resource.
const maxName = 253

// client is a program and its user.
type client struct {
	userAgent string // program and version, see [telemetry.UserAgent]
	user      string
}

// newClient returns the client that sent a request. All nodes count as one user: a cluster has thousands of them, and
// their requests are alike.
func newClient(userAgent, user string) client {
	const nodePrefix = "system:node:"
	if strings.HasPrefix(user, nodePrefix) {
		user = nodePrefix + "*"
	}
	return client{userAgent: telemetry.UserAgent(userAgent), user: sanitize(user)}
}

// sanitize returns a name without control characters, which could command a terminal. It truncates the name after
// maxName bytes.
func sanitize(name string) string {
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

// resourceName returns the name of a resource as in kubectl: deployments.apps. It is "?" for requests that name none.
func resourceName(group, resource string) string {
	switch {
	case resource == "":
		return "?"
	case group == "":
		return sanitize(resource)
	}
	return sanitize(resource + "." + group)
}
