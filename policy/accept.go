package policy

import (
	"strings"

	"github.com/munnerz/goautoneg"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
)

// Accept says how the API server would write the answer to a client, judged by the Accept header alone. There is one choice for
// built-in and one for custom resources. The zero value means that the request is forwarded.
//
//	header of a list                                    built-in    custom
//	none, application/json or */*                       JSON        JSON
//	application/* or * (alone)                          forwarded   JSON
//	application/vnd.kubernetes.protobuf                 protobuf    forwarded
//	application/vnd.kubernetes.protobuf,*/*             protobuf    JSON
//	…;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1   metadata    metadata
//	…;as=Table;g=meta.k8s.io;v=v1,application/json      forwarded   forwarded
//	two headers, or more than 12 clauses                forwarded   forwarded
type Accept struct{ builtin, custom choice }

// choice is how the API server writes the answer, chosen from the clauses of the header. The zero value means that the request
// is forwarded, for one of these reasons:
//
//   - The API server writes a representation that listproxy does not keep.
//   - The API server answers 406.
//   - The header has a parameter that the API server may know and listproxy does not know.
//   - The header can be read in several ways.
type choice struct {
	representation media.Representation
	// pretty reports whether the chosen clause asks for indented JSON.
	pretty bool
}

// maxAcceptClauses is the largest number of clauses that listproxy reads. goautoneg, which the API server uses, too, sorts the
// clauses by an order that is not transitive. So the result depends on the sorting algorithm. Up to 12 elements, Go's sort is
// insertion sort, in the API server as in listproxy.
const maxAcceptClauses = 12

// parseAccept reads the values of the Accept header of a list or a watch.
func parseAccept(values []string, watch bool) Accept {
	switch {
	case len(values) > 1:
		return Accept{}
	case len(values) == 0 || values[0] == "":
		plain := choice{representation: media.JSON}
		return Accept{builtin: plain, custom: plain}
	case strings.Count(values[0], ",")+1 > maxAcceptClauses:
		return Accept{}
	}
	clauses := goautoneg.ParseAccept(values[0])
	const builtin, custom = false, true
	accept := Accept{custom: negotiate(clauses, custom, watch)}
	if isRouted(values[0]) {
		accept.builtin = negotiate(clauses, builtin, watch)
	}
	return accept
}

// isRouted reports whether the API server's router, go-restful, accepts the header for built-in resources. (It has no routes
// for custom resources.) The router compares each clause, without its parameters, with the media types of the route
// (Route.matchesAccept). "application/*" or "*" alone is none of these types, so it gets a 406.
//
// The route has the media types of the API server's serializers (k8s.io/apiserver, endpoints/installer.go). isRouted leaves out
// two kinds of them:
//
//   - types with ";stream=watch", which a clause without its parameters never equals
//   - application/cbor, which only some API servers have (a feature gate)
func isRouted(accept string) bool {
	for clause := range strings.SplitSeq(accept, ",") {
		mediaType, _, _ := strings.Cut(clause, ";")
		switch strings.Trim(mediaType, " ") {
		case "application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "*/*":
			return true
		}
	}
	return false
}

// negotiate returns the choice for a built-in or a custom resource. The clauses are sorted, the preferred one first. negotiate
// takes the first clause, or for a custom resource the first that does not ask for protobuf of whole objects. The API server
// does so, too, but skips clauses that it cannot serve. negotiate takes that clause even in these cases:
//
//   - The clause has q=0. In HTTP that means "not acceptable", but the API server takes it.
//   - listproxy does not know the clause. The API server may know it, so the choice is to forward the request.
func negotiate(clauses []goautoneg.Accept, custom, watch bool) choice {
	for _, clause := range clauses {
		result := choiceForClause(clause, watch)
		isSkipped := custom && result.representation == media.Protobuf
		if !isSkipped {
			return result
		}
	}
	return choice{}
}

// choiceForClause returns the choice if the API server takes this clause. A clause that asks for metadata must name the kind
// PartialObjectMetadataList in a list, and PartialObjectMetadata in a watch, where it is the kind of the object in each event.
func choiceForClause(clause goautoneg.Accept, watch bool) choice {
	plain, metadata := media.JSON, media.MetadataJSON
	switch clause.Type + "/" + clause.SubType {
	case "application/json", "application/*", "*/*":
		// A wildcard means JSON, the first type that the API server offers.
	case "application/vnd.kubernetes.protobuf":
		plain, metadata = media.Protobuf, media.MetadataProtobuf
	default:
		return choice{}
	}
	kind := "PartialObjectMetadataList"
	if watch {
		kind = "PartialObjectMetadata"
	}
	asMetadata := clause.Params["as"] == kind && clause.Params["g"] == "meta.k8s.io" && clause.Params["v"] == "v1"
	for name, value := range clause.Params { // without q
		if !isKnownParameter(name, value, watch, asMetadata) {
			return choice{}
		}
	}
	result := choice{representation: plain, pretty: clause.Params["pretty"] == "1"}
	if asMetadata {
		result.representation = metadata
	}
	return result
}

// isKnownParameter reports whether listproxy knows what a parameter of a clause means. A parameter that it does not know could
// ask for another representation, such as a table. asMetadata says whether the clause asks for metadata.
func isKnownParameter(name, value string, watch, asMetadata bool) bool {
	switch name {
	case "pretty":
		return value == "1"
	case "stream":
		return watch && value == "watch"
	case "as", "g", "v":
		return asMetadata
	}
	return false
}

// representation returns the representation in which the API server would write the list, or the reason to forward the
// request. custom says whether the resource is a custom one.
func (a Accept) representation(custom bool) (media.Representation, reason.Reason) {
	chosen := a.choiceFor(custom).representation
	if chosen == "" {
		return "", reason.Representation
	}
	return chosen, reason.None
}

// choiceFor returns the choice for custom or for built-in resources.
func (a Accept) choiceFor(custom bool) choice {
	if custom {
		return a.custom
	}
	return a.builtin
}

// reasonForAnyResource returns the reason to forward the request whatever its resource is, or None if the request can be
// answered for a built-in or for a custom resource.
func (a Accept) reasonForAnyResource() reason.Reason {
	if a.builtin.representation == "" && a.custom.representation == "" {
		return reason.Representation
	}
	return reason.None
}

// acceptsGzip reports whether the API server would compress a large answer for this Accept-Encoding header. The header must
// have the token gzip in lower case and without a quality.
func acceptsGzip(acceptEncoding string) bool {
	for token := range strings.SplitSeq(acceptEncoding, ",") {
		if strings.TrimSpace(token) == "gzip" {
			return true
		}
	}
	return false
}
