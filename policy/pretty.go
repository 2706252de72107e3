package policy

import (
	"strconv"
	"strings"
)

// Indented tells whether the API server would indent the answer, which it does with JSON only: if
// the clause that it chooses from the Accept header asks for it, or the request does so in another
// way (Pretty).
func (r *Request) Indented(custom bool) bool {
	result := r.Accept.of(custom)
	return (r.Pretty || result.pretty) && result.representation != "" && !result.representation.IsProtobuf()
}

// readPretty reads the parameter as the API server does (k8s.io/apiserver,
// endpoints/handlers/negotiation, isPrettyPrint): the empty string is an unset parameter; a value
// that is not a boolean means no.
func readPretty(value string, unset bool) bool {
	if value == "" {
		return unset
	}
	pretty, err := strconv.ParseBool(value)
	return err == nil && pretty
}

// isHuman recognises the clients that get indented JSON without asking for it.
func isHuman(userAgent string) bool {
	return strings.HasPrefix(userAgent, "curl") ||
		strings.HasPrefix(userAgent, "Wget") ||
		strings.HasPrefix(userAgent, "Mozilla/5.0")
}
