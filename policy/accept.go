package policy

import (
	"strings"

	"github.com/munnerz/goautoneg"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
)

// Accept has the representations that a client accepts, read once from its Accept header. It never changes. The zero
// value accepts no representation that is kept.
type Accept struct {
	// builtin and custom are the API server's choices for built-in and for custom resources.
	builtin, custom choice
	// ambiguous reports whether the header has several readings: then it is forwarded for any resource.
	ambiguous bool
}

// choice is what the API server chooses from the header. The zero value means that the API server writes a representation
// that is not kept in memory, or answers 406, or may know a parameter that listproxy does not know.
type choice struct {
	representation media.Representation
	// pretty reports whether the chosen clause asks for indented JSON.
	pretty bool
}

// maxAcceptClauses bounds the clauses of a header. The API server sorts clauses by an order that is not transitive, so the
// result depends on the algorithm. Go sorts up to 12 elements by insertion, as the API server does, too.
const maxAcceptClauses = 12

// Representation returns the representation in which the API server would write the list, or the reason why the request has
// to be forwarded. custom says whether the resource is a custom one: these have no protobuf, except of their metadata.
func (a Accept) Representation(custom bool) (media.Representation, reason.Reason) {
	representation := a.choiceFor(custom).representation
	switch {
	case a.ambiguous:
		return "", reason.NotCanonical
	case representation == "":
		return "", reason.Representation
	}
	return representation, reason.None
}

// choiceFor returns the choice for custom resources, or for all others.
func (a Accept) choiceFor(custom bool) choice {
	if custom {
		return a.custom
	}
	return a.builtin
}

// reasonForAnyResource returns None if a list of some resource, custom or built-in, can be answered with this header;
// otherwise the reason why the request has to be forwarded.
func (a Accept) reasonForAnyResource() reason.Reason {
	if _, why := a.Representation(true); why == reason.None {
		return reason.None
	}
	_, why := a.Representation(false)
	return why
}

// parseAccept reads the values of the Accept header of a list or a watch.
func parseAccept(values []string, watch bool) Accept {
	switch {
	case len(values) > 1: // the API server reads only the first header
		return Accept{ambiguous: true}
	case len(values) == 0 || values[0] == "":
		plain := choice{representation: media.JSON}
		return Accept{builtin: plain, custom: plain}
	case strings.Count(values[0], ",")+1 > maxAcceptClauses:
		return Accept{ambiguous: true}
	}
	clauses := goautoneg.ParseAccept(values[0])
	accept := Accept{custom: negotiate(clauses, true, watch)}
	if routed(values[0]) {
		accept.builtin = negotiate(clauses, false, watch)
	}
	return accept
}

// routed reports whether the API server's router passes a request with this header on to the negotiation. For built-in
// resources, go-restful compares each clause, without its parameters, with the media types of the route
// (Route.matchesAccept). So "application/*" or "*" alone gets a 406. Custom resources have no such routes: there both
// mean JSON.
//
// The route of a list has the media types of its serializer (k8s.io/apiserver, endpoints/installer.go), and those of
// streams. The latter have a parameter, so no clause equals them. application/cbor depends on a feature gate, so it is
// not among the types here.
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

// negotiate takes the first clause, as the API server does, even at quality 0. It skips a clause only if no API server can
// answer it. A clause that listproxy does not know is not skipped, since the upstream may know it: there is no choice then.
func negotiate(clauses []goautoneg.Accept, custom, watch bool) choice {
	for _, clause := range clauses {
		result := represent(clause, watch)
		if custom && result.representation == media.Protobuf {
			continue // no API server has protobuf of a custom resource
		}
		return result
	}
	return choice{}
}

// represent returns the choice if the clause is chosen. The clause of a watch names the kind of single objects, which the
// events hold, and may have the parameter stream=watch.
func represent(clause goautoneg.Accept, watch bool) choice {
	plain, metadata := media.JSON, media.MetadataJSON
	switch clause.Type + "/" + clause.SubType {
	case "application/json", "application/*", "*/*":
		// A wildcard means JSON, the first type that the API server offers.
	case "application/vnd.kubernetes.protobuf":
		plain, metadata = media.Protobuf, media.MetadataProtobuf
	default:
		return choice{}
	}
	unread := len(clause.Params) // the parameters that were not read yet; q is not among them
	result := choice{representation: plain, pretty: clause.Params["pretty"] == "1"}
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
	asMetadata := clause.Params["as"] == kind && clause.Params["g"] == "meta.k8s.io" && clause.Params["v"] == "v1"
	if asMetadata {
		result.representation = metadata
		unread -= 3 // as, g and v
	}
	if unread > 0 {
		// A parameter is not known, or asks for another transformation. (A list as PartialObjectMetadata gets a 406.)
		return choice{}
	}
	return result
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
