package policy

import (
	"strings"

	"github.com/munnerz/goautoneg"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
)

// maxAcceptClauses bounds the media types that one request may name. The API server sorts them by an order that is not
// transitive, so the result depends on the algorithm. Up to 12 elements Go's sort is an insertion sort, as the API server's own is.
const maxAcceptClauses = 12

// Accept has the representations that a client accepts, read once from its Accept header. It never changes. The zero
// value accepts no representation that is kept.
type Accept struct {
	builtin, custom negotiated
}

// negotiated is the result for one kind of resource: a representation, or a reason.
type negotiated struct {
	representation media.Representation
	// pretty reports whether the clause that was chosen asks for indented JSON.
	pretty bool
	reason reason.Reason
}

// Representation returns the form in which the API server would write the list, or
// the reason why the request has to be forwarded: reason.Representation if the server
// would write another form, or none (406), or it is not certain which;
// reason.NotCanonical if the header has several readings.
//
// It depends on whether the resource is a custom one: these have no protobuf
// (except of their metadata), and no routes of their own in the server's router.
func (a Accept) Representation(custom bool) (media.Representation, reason.Reason) {
	result := a.negotiated(custom)
	if result == (negotiated{}) {
		return "", reason.Representation
	}
	return result.representation, result.reason
}

// negotiated returns the result for custom resources, or for all others.
func (a Accept) negotiated(custom bool) negotiated {
	if custom {
		return a.custom
	}
	return a.builtin
}

// reasonForAll returns a reason if the list must be forwarded whatever the kind of its resource is; else None.
func (a Accept) reasonForAll() reason.Reason {
	if _, why := a.Representation(true); why == reason.None {
		return reason.None
	}
	_, why := a.Representation(false)
	return why
}

// parseAccept reads the values of the Accept header of a list or a watch.
func parseAccept(values []string, watch bool) Accept {
	switch {
	case len(values) > 1:
		// The API server reads only the first line.
		return forAllKinds(negotiated{reason: reason.NotCanonical})
	case len(values) == 0 || values[0] == "":
		return forAllKinds(negotiated{representation: media.JSON})
	case strings.Count(values[0], ",") >= maxAcceptClauses:
		return forAllKinds(negotiated{reason: reason.NotCanonical})
	}
	clauses := goautoneg.ParseAccept(values[0])
	accept := Accept{custom: negotiate(clauses, true, watch)}
	if routed(values[0]) {
		accept.builtin = negotiate(clauses, false, watch)
	}
	return accept
}

// forAllKinds returns an Accept with the same result for every kind of resource.
func forAllKinds(result negotiated) Accept { return Accept{builtin: result, custom: result} }

// routed reports whether the API server's router lets the header through to the negotiation. For built-in resources
// go-restful compares the text of each clause, without its parameters, with the types of the route
// (Route.matchesAccept). So "application/*" or "*" alone gets a 406. Custom resources have no such routes, and
// answer these with JSON.
//
// A list's route has the types of its serializer (k8s.io/apiserver, endpoints/installer.go). It has
// the types of streams too, but with a parameter, and clauses are compared without theirs.
// application/cbor depends on a feature gate, so it does not count.
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

// negotiate chooses the first clause that can be answered, as the API server does; clauses of quality 0 count, too. If
// there is none, the API server answers 406, so the request is forwarded.
//
// A clause is skipped only if no API server answers it. Any other clause that listproxy does not know ends the search
// without a representation, since the upstream may know it.
func negotiate(clauses []goautoneg.Accept, custom, watch bool) negotiated {
	for _, clause := range clauses {
		result := represent(clause, watch)
		if custom && result.representation == media.Protobuf {
			continue
		}
		return result
	}
	return negotiated{reason: reason.Representation}
}

// represent returns the representation that one clause of an Accept header asks for. A watch asks for the kind of single
// objects, which its events hold, and may have the parameter stream=watch.
func represent(clause goautoneg.Accept, watch bool) negotiated {
	plain, metadata := media.JSON, media.MetadataJSON
	switch clause.Type + "/" + clause.SubType {
	case "application/json", "application/*", "*/*":
		// JSON is the first type the API server offers, so wildcards mean it.
	case "application/vnd.kubernetes.protobuf":
		plain, metadata = media.Protobuf, media.MetadataProtobuf
	default:
		return negotiated{reason: reason.Representation}
	}
	unread := len(clause.Params) // q is not among them
	result := negotiated{representation: plain, pretty: clause.Params["pretty"] == "1"}
	if result.pretty {
		unread--
	}
	kind := "PartialObjectMetadataList"
	if watch {
		kind = "PartialObjectMetadata"
		if clause.Params["stream"] == "watch" {
			unread--
		}
	}
	if unread == 0 {
		return result
	}
	if unread == 3 && clause.Params["as"] == kind &&
		clause.Params["g"] == "meta.k8s.io" && clause.Params["v"] == "v1" {
		result.representation = metadata
		return result
	}
	// Another transformation (a list as PartialObjectMetadata gets a 406), or an unknown parameter.
	return negotiated{reason: reason.Representation}
}

// acceptsGzip reports whether the API server would compress a large answer for this Accept-Encoding header. Only the
// bare token counts, without a quality and in lower case.
func acceptsGzip(acceptEncoding string) bool {
	for token := range strings.SplitSeq(acceptEncoding, ",") {
		if strings.TrimSpace(token) == "gzip" {
			return true
		}
	}
	return false
}
