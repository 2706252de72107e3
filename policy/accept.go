package policy

import (
	"strings"

	"github.com/munnerz/goautoneg"
)

// Representation is a form in which the API server can write a list. Each one has
// a feed and a collection of its own.
type Representation string

// JSON is the resource itself as application/json.
const JSON Representation = "json"

// maxAcceptClauses bounds the media types that one request may name. The API
// server sorts them with an order that is not transitive, so the result depends
// on the algorithm; up to 12 elements Go's sort is an insertion sort.
const maxAcceptClauses = 12

// negotiate chooses the representation from the values of the Accept header as
// the API server does, or says why we cannot.
//
// The API server takes the first clause that it can answer. Whether it can
// answer a clause that we do not know depends on the resource (custom resources
// have no protobuf), so the first clause decides: it is one of ours, or the
// request is forwarded. Clauses of quality 0 count like others, as they do there.
func negotiate(accept []string) (Representation, Reason) {
	switch {
	case len(accept) > 1:
		// The API server reads only the first line.
		return "", ReasonNotCanonical
	case len(accept) == 0 || accept[0] == "":
		return JSON, ""
	case strings.Count(accept[0], ",") >= maxAcceptClauses:
		return "", ReasonNotCanonical
	}
	clauses := goautoneg.ParseAccept(accept[0])
	if len(clauses) == 0 || !routed(accept[0]) {
		// Nothing that parses, or nothing that a route matches: 406 upstream.
		return "", ReasonRepresentation
	}
	return represent(clauses[0])
}

// routed tells whether the API server's router lets the header through to the
// negotiation. For built-in resources go-restful compares each clause, without its
// parameters, with the types of the route as text (Route.matchesAccept), so
// "application/*" and "*" alone get a 406, where custom resources, which have no
// such routes, get JSON.
func routed(accept string) bool {
	for clause := range strings.SplitSeq(accept, ",") {
		mediaType, _, _ := strings.Cut(clause, ";")
		switch strings.Trim(mediaType, " ") {
		case "application/json", "*/*":
			return true
		}
	}
	return false
}

// represent maps one clause of an Accept header to the representation it asks for.
func represent(clause goautoneg.Accept) (Representation, Reason) {
	// JSON is the first type the API server offers, so wildcards mean it.
	isJSON := clause.Type == "application" && (clause.SubType == "json" || clause.SubType == "*") ||
		clause.Type == "*" && clause.SubType == "*"
	switch {
	case !isJSON:
		return "", ReasonRepresentation
	case len(clause.Params) == 0: // goautoneg keeps q apart
		return JSON, ""
	case len(clause.Params) == 1 && clause.Params["pretty"] == "1":
		return "", ReasonPretty
	default:
		// A transformation (as, g, v), or a parameter that we do not know.
		return "", ReasonRepresentation
	}
}

// isHuman recognises the clients that get indented JSON without asking for it.
func isHuman(userAgent string) bool {
	return strings.HasPrefix(userAgent, "curl") ||
		strings.HasPrefix(userAgent, "Wget") ||
		strings.HasPrefix(userAgent, "Mozilla/5.0")
}

// acceptsGzip tells whether the API server would compress a large answer for this
// Accept-Encoding header: only the bare token counts, with no quality and in
// lower case.
func acceptsGzip(acceptEncoding string) bool {
	for token := range strings.SplitSeq(acceptEncoding, ",") {
		if strings.TrimSpace(token) == "gzip" {
			return true
		}
	}
	return false
}
