package policy

import (
	"strings"

	"github.com/munnerz/goautoneg"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
)

// Accept is what a client accepts, read once from its Accept header. The zero value accepts no representation that is kept
// in memory.
type Accept struct {
	// builtin and custom are the API server's choices for built-in and for custom resources.
	builtin, custom choice
	// ambiguous means that the header can be read in several ways: the request is forwarded.
	ambiguous bool
}

// choice is what the API server chooses from the header. The zero value means that the API server writes a representation
// that is not kept, or answers 406, or may know a parameter that listproxy does not know.
type choice struct {
	representation media.Representation
	// pretty means that the chosen clause asks for indented JSON.
	pretty bool
}

// maxAcceptClauses is the largest number of clauses that listproxy sorts as the API server does. The order of clauses is not
// transitive, so the result depends on the algorithm. For up to 12 elements, Go's sort is insertion sort, there and here.
const maxAcceptClauses = 12

// representation returns the representation in which the API server would write the list, or the reason to forward the
// request. custom says whether the resource is a custom one. Custom resources have no protobuf, except of their metadata.
func (a Accept) representation(custom bool) (media.Representation, reason.Reason) {
	chosen := a.choiceFor(custom).representation
	switch {
	case a.ambiguous:
		return "", reason.NotCanonical
	case chosen == "":
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

// reasonForAnyResource returns None if a request with this header can be answered for custom or for built-in resources. If
// it can be answered for neither, it returns the reason.
func (a Accept) reasonForAnyResource() reason.Reason {
	if _, why := a.representation(true); why == reason.None {
		return reason.None
	}
	_, why := a.representation(false)
	return why
}

// parseAccept reads the values of the Accept header of a list or a watch.
func parseAccept(values []string, watch bool) Accept {
	switch {
	case len(values) > 1: // the API server reads only the first
		return Accept{ambiguous: true}
	case len(values) == 0 || values[0] == "":
		plain := choice{representation: media.JSON}
		return Accept{builtin: plain, custom: plain}
	case strings.Count(values[0], ",")+1 > maxAcceptClauses:
		return Accept{ambiguous: true}
	}
	clauses := goautoneg.ParseAccept(values[0])
	accept := Accept{custom: negotiate(clauses, true, watch)}
	if isRouted(values[0]) {
		accept.builtin = negotiate(clauses, false, watch)
	}
	return accept
}

// isRouted reports whether the API server's router accepts the header for built-in resources. go-restful compares each
// clause, without its parameters, with the media types of the route (Route.matchesAccept). So "application/*" or "*" alone
// gets a 406. Custom resources have no such routes: for them, both mean JSON.
//
// The route of a list has the media types of its serializer (k8s.io/apiserver, endpoints/installer.go). It also has those
// of streams, but these have a parameter, so no clause equals them. application/cbor depends on a feature gate, so it is
// left out here.
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

// negotiate returns the choice for the first clause, even if its quality is 0, as the API server does. It skips only a
// clause that no API server can answer. A clause that listproxy does not know has the zero choice, since the upstream may
// know it.
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

// represent returns the choice for one clause. The clause of a watch names the kind of the single objects in its events,
// and may have the parameter stream=watch.
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
	unread := len(clause.Params) // q is not among them
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
		// A parameter is unknown, or asks for another form, such as a table. (A list as PartialObjectMetadata gets a 406.)
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
