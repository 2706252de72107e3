package policy

import (
	"strconv"
	"strings"
)

// Indented reports whether the API server would indent the answer: the answer is JSON, and Pretty or the chosen clause of the
// Accept header asks for indented JSON. custom says whether the resource is a custom one.
func (r *Request) Indented(custom bool) bool {
	chosen := r.Accept.choiceFor(custom)
	isJSON := chosen.representation != "" && !chosen.representation.IsProtobuf()
	return isJSON && (r.Pretty || chosen.pretty)
}

// parsePretty reads the parameter pretty as the API server does (k8s.io/apiserver, endpoints/handlers/negotiation,
// isPrettyPrint): an empty value means the default, and a value that is no boolean means false.
func parsePretty(value string, defaultPretty bool) bool {
	if value == "" {
		return defaultPretty
	}
	pretty, err := strconv.ParseBool(value)
	return err == nil && pretty
}

// isHumanClient reports whether the API server indents JSON for this client by default, since a person may read it.
func isHumanClient(userAgent string) bool {
	return strings.HasPrefix(userAgent, "curl") ||
		strings.HasPrefix(userAgent, "Wget") ||
		strings.HasPrefix(userAgent, "Mozilla/5.0")
}
