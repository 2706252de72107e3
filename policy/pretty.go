package policy

import (
	"strconv"
	"strings"
)

// Indented reports whether the API server would indent the answer. It indents JSON only, if the clause that it chooses
// from the Accept header asks for it, or Pretty is true.
func (r *Request) Indented(custom bool) bool {
	chosen := r.Accept.choiceFor(custom)
	return (r.Pretty || chosen.pretty) && chosen.representation != "" && !chosen.representation.IsProtobuf()
}

// readPretty reads the parameter as the API server does (k8s.io/apiserver, endpoints/handlers/negotiation,
// isPrettyPrint). An empty value counts as none, and byDefault is returned. A value that is not a boolean means no.
func readPretty(value string, byDefault bool) bool {
	if value == "" {
		return byDefault
	}
	pretty, err := strconv.ParseBool(value)
	return err == nil && pretty
}

// isHuman reports whether the API server sends indented JSON to a client that does not ask for it.
func isHuman(userAgent string) bool {
	return strings.HasPrefix(userAgent, "curl") ||
		strings.HasPrefix(userAgent, "Wget") ||
		strings.HasPrefix(userAgent, "Mozilla/5.0")
}
