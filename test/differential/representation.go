package differential

import (
	"strings"

	"github.com/listproxy/listproxy/test/differential/cluster"
)

// Parts of Accept headers.
const (
	asMetadata = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	asJSON     = "application/json"
	asProtobuf = "application/vnd.kubernetes.protobuf"
)

// accepts returns Accept headers that ask for a representation of a list of a resource. "" stands for no header.
func accepts(r cluster.Resource, representation representation) []string {
	switch representation {
	case plainJSON, indentedJSON:
		return []string{
			"", "", asJSON, asJSON, "*/*", "application/json, */*", "application/json;q=0.5", "application/json , application/yaml",
		}
	case protobuf:
		// Those of typed clients. A custom resource has no protobuf, and comes by the second clause.
		both := []string{asProtobuf + "," + asJSON, asProtobuf + ", " + asJSON, asProtobuf + "," + asJSON + ";q=0.9"}
		if r.Group == cluster.Group || r.JSONOnly {
			return both
		}
		return append(both, asProtobuf)
	case metadataJSON, metadataIndented:
		return []string{
			asJSON + asMetadata, asJSON + ";as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", asJSON + asMetadata + "," + asJSON,
		}
	case metadataProtobuf:
		both := []string{
			asProtobuf + asMetadata + "," + asJSON + asMetadata,
			// The metadata client of client-go.
			asProtobuf + asMetadata + "," + asJSON + asMetadata + "," + asJSON,
		}
		if r.JSONOnly {
			return both
		}
		return append(both, asProtobuf+asMetadata)
	}
	return []string{""}
}

// accept returns the simplest Accept header for a representation of a list, or of the events of a watch.
func (r representation) accept(watch bool) string {
	accept := asJSON
	if r.protobuf() {
		accept = asProtobuf
	}
	if r.metadata() {
		accept += asMetadata
	}
	if watch {
		accept = ofEvents(accept)
	}
	return accept
}

// ofEvents returns the Accept header of a watch for that of a list.
func ofEvents(accept string) string {
	return strings.ReplaceAll(accept, "PartialObjectMetadataList", "PartialObjectMetadata")
}

// represent makes a question one for a representation.
func (g *generator) represent(q *question, representation representation) {
	q.Representation = representation
	q.Header.Del("Accept")
	q.Header.Del("User-Agent")
	q.Query.Del("pretty")
	if accept := pick(g, accepts(q.Resource, representation)...); accept != "" {
		q.Header.Set("Accept", accept)
	}
	if representation.indented() {
		g.indent(q)
	}
}

// indent makes a question one for indented JSON, in one of the ways of clients.
func (g *generator) indent(q *question) {
	switch accept := q.Header.Get("Accept"); g.rng.IntN(4) {
	case 0:
		q.Query.Set("pretty", pick(g, "true", "1", "t", "TRUE"))
	case 1:
		q.Header.Set("User-Agent", pick(g, humans...))
	case 2: // an empty parameter leaves the User-Agent to decide
		q.Header.Set("User-Agent", pick(g, humans...))
		q.Query.Set("pretty", "")
	case 3:
		if accept == "" {
			accept = asJSON
		}
		// kube-apiserver takes the first clause.
		first, rest, more := strings.Cut(accept, ",")
		first = strings.TrimRight(first, " ") + ";pretty=1"
		if more {
			first += "," + rest
		}
		q.Header.Set("Accept", first)
	}
}

// humans are User-Agents that get indented JSON.
var humans = []string{"curl/8.5.0", "Wget/1.21", "Mozilla/5.0 (X11; Linux x86_64)"}
