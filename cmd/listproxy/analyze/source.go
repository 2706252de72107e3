package analyze

import (
	"cmp"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/telemetry"
)

// maxNameBytes is the number of bytes that are kept of the name of a user or resource. Kubernetes allows most names this
// length (RFC 1123 subdomains).
const maxNameBytes = 253

// Source is what requests for one resource come from: a program and its user.
type Source struct {
	UserAgent string `json:"userAgent"` // program and version, see [telemetry.UserAgent]
	User      string `json:"user,omitempty"`
	Resource  string `json:"resource"` // as kubectl names it, like deployments.apps; "?" if the request names none
}

// newSource returns the Source of an event. All nodes count as one user: a cluster has thousands of them, and their requests
// are alike.
func newSource(e *auditEvent) Source {
	const nodePrefix = "system:node:"
	user := e.User.Username
	if strings.HasPrefix(user, nodePrefix) {
		user = nodePrefix + "*"
	}
	resource := "?"
	if e.ObjectRef.Resource != "" {
		resource = schema.GroupResource{Group: e.ObjectRef.Group, Resource: e.ObjectRef.Resource}.String()
	}
	return Source{
		UserAgent: telemetry.UserAgent(e.UserAgent),
		User:      sanitize(user),
		Resource:  sanitize(resource),
	}
}

// compare compares two Sources, as [cmp.Compare] does.
func (s Source) compare(other Source) int {
	return cmp.Or(
		cmp.Compare(s.UserAgent, other.UserAgent), cmp.Compare(s.User, other.User), cmp.Compare(s.Resource, other.Resource))
}

// clientName formats the program and its user for people. The user of a service account is NAMESPACE/NAME, without the usual
// prefix.
func (s Source) clientName() string {
	user := s.User
	if account, ok := strings.CutPrefix(user, "system:serviceaccount:"); ok {
		user = strings.Replace(account, ":", "/", 1)
	}
	return strings.TrimSpace(s.UserAgent + " " + user)
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
