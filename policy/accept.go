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
	builtin, custom choice
	// ambiguous reports whether the header has several readings.
	ambiguous bool
}

// choice is what the API server chooses from the header for one kind of resource. The zero value means that the API
// server writes a form that is not kept, or none (406), or that it is not certain which.
type choice struct {
	representation media.Representation
	// pretty reports whether the clause that was chosen asks for indented JSON.
	pretty bool
}

// maxAcceptClauses bounds the media types that one request may name. The API server sorts them by an order that is not
// transitive, so the result depends on the algorithm. Up to 12 elements Go's sort is an insertion sort, as the API
// server's own is.
const maxAcceptClauses = 12

// Representation returns the form in which the API server would write the list, or
// the reason why the request has to be forwarded.
//
// It depends on whether the resource is a custom one: these have no protobuf
// (except of their metadata), and no routes of their own in the server's router.
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
	case len(values) > 1: // the API server reads only the first line
		return Accept{ambiguous: true}
	case len(values) == 0 || values[0] == "":
		plain := choice{representation: media.JSON}
		return Accept{builtin: plain, custom: plain}
	case strings.Count(values[0], ",") >= maxAcceptClauses:
		return Accept{ambiguous: true}
	}
	clauses := goautoneg.ParseAccept(values[0])
	accept := Accept{custom: negotiate(clauses, true, watch)}
	if routed(values[0]) {
		accept.builtin = negotiate(clauses, false, watch)
	}
	return accept
}

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

// negotiate chooses the first clause that can be answered, as the API server does. Clauses of quality 0 count, too.
//
// A clause is skipped only if no API server answers it. Any other clause that listproxy does not know ends the search
// without a choice, since the upstream may know it.
func negotiate(clauses []goautoneg.Accept, custom, watch bool) choice {
	for _, clause := range clauses {
		result := represent(clause, watch)
		if custom && result.representation == media.Protobuf {
			continue
		}
		return result
	}
	return choice{}
}

// represent returns the choice of one clause of an Accept header. A watch asks for the kind of single objects, which
// its events hold, and may have the parameter stream=watch.
func represent(clause goautoneg.Accept, watch bool) choice {
	plain, metadata := media.JSON, media.MetadataJSON
	switch clause.Type + "/" + clause.SubType {
	case "application/json", "application/*", "*/*":
		// JSON is the first type the API server offers, so wildcards mean it.
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
	if unread == 0 {
		return result
	}
	if unread == 3 && clause.Params["as"] == kind &&
		clause.Params["g"] == "meta.k8s.io" && clause.Params["v"] == "v1" {
		result.representation = metadata
		return result
	}
	// Another transformation (a list as PartialObjectMetadata gets a 406), or an unknown parameter.
	return choice{}
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
