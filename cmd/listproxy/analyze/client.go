package analyze

import (
	"strings"
	"unicode"

	"github.com/listproxy/listproxy/telemetry"
)

// maxNameBytes is the number of bytes that are kept of the name of a user or resource. Kubernetes allows most names this
// length (RFC 1123 subdomains).
const maxNameBytes = 253

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

// sanitize removes control characters from a name, since a terminal would obey them. It cuts a name that is longer than
// maxNameBytes.
func sanitize(name string) string {
	name = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, name)
	if len(name) > maxNameBytes {
		return strings.ToValidUTF8(name[:maxNameBytes], "") + "…"
	}
	return name
}

// resourceName returns the name of a resource as in kubectl, like deployments.apps; "?" if the request names none.
func resourceName(group, resource string) string {
	switch {
	case resource == "":
		return "?"
	case group == "":
		return sanitize(resource)
	}
	return sanitize(resource + "." + group)
}
