package policy

import (
	"strings"

	"github.com/munnerz/goautoneg"
)

// Representation is a form in which the API server can write a list. Each one has
// a feed and a collection of its own.
type Representation string

const (
	// JSON is the resource itself as application/json.
	JSON Representation = "json"
	// Protobuf is the resource itself as application/vnd.kubernetes.protobuf. Custom
	// resources do not have it.
	Protobuf Representation = "protobuf"
	// MetadataJSON is a PartialObjectMetadataList of meta.k8s.io/v1 as application/json.
	MetadataJSON Representation = "metadata-json"
	// MetadataProtobuf is the same as application/vnd.kubernetes.protobuf. Custom
	// resources have it too.
	MetadataProtobuf Representation = "metadata-protobuf"
)

// Representations returns every Representation in the order of its declaration, for
// documentation, tests and metrics. The slice is the caller's.
func Representations() []Representation {
	return []Representation{JSON, Protobuf, MetadataJSON, MetadataProtobuf}
}

// maxAcceptClauses bounds the media types that one request may name. The API
// server sorts them with an order that is not transitive, so the result depends
// on the algorithm; up to 12 elements Go's sort is an insertion sort.
const maxAcceptClauses = 12

// Accept is what a client accepts, read once from its Accept header. It is a value
// that never changes; the zero value accepts nothing that we have.
type Accept struct {
	builtin, custom negotiated
}

// negotiated is the result for one kind of resource; one of the two is set.
type negotiated struct {
	representation Representation
	reason         Reason
}

// Representation returns the form in which the API server would write the list, or
// the reason why the request has to be forwarded: ReasonRepresentation if the server
// would write another form, or none (406), or it is not certain which;
// ReasonPretty if it would indent; ReasonNotCanonical if the header has several readings.
//
// It depends on whether the resource is a custom one: these have no protobuf (but
// for their metadata), and no routes of their own in the server's router.
func (a Accept) Representation(custom bool) (Representation, Reason) {
	result := a.builtin
	if custom {
		result = a.custom
	}
	if result == (negotiated{}) {
		return "", ReasonRepresentation
	}
	return result.representation, result.reason
}

// refused returns the reason if the list is to be forwarded whatever the resource.
func (a Accept) refused() Reason {
	if _, reason := a.Representation(true); reason == "" {
		return ""
	}
	_, reason := a.Representation(false)
	return reason
}

// parseAccept reads the values of the Accept header.
func parseAccept(values []string) Accept {
	switch {
	case len(values) > 1:
		// The API server reads only the first line.
		return everywhere("", ReasonNotCanonical)
	case len(values) == 0 || values[0] == "":
		return everywhere(JSON, "")
	case strings.Count(values[0], ",") >= maxAcceptClauses:
		return everywhere("", ReasonNotCanonical)
	}
	clauses := goautoneg.ParseAccept(values[0])
	accept := Accept{custom: negotiate(clauses, true)}
	if routed(values[0]) {
		accept.builtin = negotiate(clauses, false)
	}
	return accept
}

// everywhere is the same result for every kind of resource.
func everywhere(representation Representation, reason Reason) Accept {
	result := negotiated{representation, reason}
	return Accept{builtin: result, custom: result}
}

// routed tells whether the API server's router lets the header through to the
// negotiation. For built-in resources go-restful compares each clause, without its
// parameters, with the types of the route as text (Route.matchesAccept), so
// "application/*" and "*" alone get a 406, where custom resources, which have no
// such routes, get JSON.
//
// A list's route has the types of its serializer (k8s.io/apiserver,
// endpoints/installer.go). Those of streams are in it too, but with a parameter, which
// no clause keeps. application/cbor depends on a feature gate, so it does not count.
func routed(accept string) bool {
	for clause := range strings.SplitSeq(accept, ",") {
		mediaType, _, _ := strings.Cut(clause, ";")
		switch strings.Trim(mediaType, " ") {
		case "application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "*/*":
			return true
		}
	}
	return false
}

// negotiate chooses as the API server does: it takes the first clause that it can
// answer. Clauses of quality 0 count like others, as they do there. No clause that it
// can answer is a 406.
//
// A clause is passed over only if no API server answers it. Any other clause that
// is not ours ends the search, since the upstream may know more than we.
func negotiate(clauses []goautoneg.Accept, custom bool) negotiated {
	for _, clause := range clauses {
		representation, reason := represent(clause)
		if custom && representation == Protobuf {
			continue
		}
		return negotiated{representation, reason}
	}
	return negotiated{reason: ReasonRepresentation}
}

// represent maps one clause of an Accept header to the representation it asks for.
func represent(clause goautoneg.Accept) (Representation, Reason) {
	plain, metadata := JSON, MetadataJSON
	switch clause.Type + "/" + clause.SubType {
	case "application/json", "application/*", "*/*":
		// JSON is the first type the API server offers, so wildcards mean it.
	case "application/vnd.kubernetes.protobuf":
		plain, metadata = Protobuf, MetadataProtobuf
	default:
		return "", ReasonRepresentation
	}
	params := len(clause.Params) // goautoneg keeps q apart
	pretty := clause.Params["pretty"] == "1"
	if pretty {
		params--
	}
	asMetadata := params == 3 && clause.Params["as"] == "PartialObjectMetadataList" &&
		clause.Params["g"] == "meta.k8s.io" && clause.Params["v"] == "v1"
	switch {
	case params != 0 && !asMetadata:
		// Another transformation (a list as PartialObjectMetadata gets a 406), or a
		// parameter that we do not know.
		return "", ReasonRepresentation
	case pretty:
		return "", ReasonPretty
	case asMetadata:
		return metadata, ""
	default:
		return plain, ""
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
