package differential

import (
	"cmp"
	"strings"

	"github.com/listproxy/listproxy/test/differential/cluster"
)

// Parts of Accept headers.
const (
	asMetadata = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	asJSON     = "application/json"
	asProtobuf = "application/vnd.kubernetes.protobuf"
)

// acceptHeaders returns Accept headers that ask for a list of the resource in the representation. "" stands for no header. A
// header that is there twice is chosen more often.
func acceptHeaders(r cluster.Resource, representation representation) []string {
	switch representation {
	case plainJSON, indentedJSON:
		return []string{
			"", "", asJSON, asJSON, "*/*", "application/json, */*", "application/json;q=0.5", "application/json , application/yaml",
		}
	case protobuf:
		// Typed clients accept JSON as well. Custom resources, which have no protobuf, come in JSON.
		withJSON := []string{asProtobuf + "," + asJSON, asProtobuf + ", " + asJSON, asProtobuf + "," + asJSON + ";q=0.9"}
		if r.Group == cluster.Group || r.JSONOnly {
			return withJSON
		}
		return append(withJSON, asProtobuf)
	case metadataJSON, metadataIndented:
		return []string{
			asJSON + asMetadata, asJSON + ";as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", asJSON + asMetadata + "," + asJSON,
		}
	case metadataProtobuf:
		withJSON := []string{
			asProtobuf + asMetadata + "," + asJSON + asMetadata,
			// The metadata client of client-go.
			asProtobuf + asMetadata + "," + asJSON + asMetadata + "," + asJSON,
		}
		if r.JSONOnly {
			return withJSON
		}
		return append(withJSON, asProtobuf+asMetadata)
	}
	panic("no Accept header of " + representation)
}

// simplestAccept returns the simplest Accept header for a list in a representation.
func (r representation) simplestAccept() string {
	accept := asJSON
	if r.isProtobuf() {
		accept = asProtobuf
	}
	if r.isMetadata() {
		accept += asMetadata
	}
	return accept
}

// watchAccept returns the Accept header with which a watch asks for the representation that accept asks for in a list.
func watchAccept(accept string) string {
	return strings.ReplaceAll(accept, "PartialObjectMetadataList", "PartialObjectMetadata")
}

// setRepresentation makes a question ask for a representation.
func (g *generator) setRepresentation(q *question, representation representation) {
	q.Representation = representation
	q.Header.Del("Accept")
	q.Header.Del("User-Agent")
	q.Query.Del("pretty")
	if accept := pick(g, acceptHeaders(q.Resource, representation)...); accept != "" {
		q.Header.Set("Accept", accept)
	}
	if representation.isIndented() {
		g.setIndentation(q)
	}
}

// setIndentation makes a question ask for indented JSON, in one of the ways in which clients do.
func (g *generator) setIndentation(q *question) {
	switch g.rng.IntN(4) {
	case 0:
		q.Query.Set("pretty", pick(g, "true", "1", "t", "TRUE"))
	case 1:
		q.Header.Set("User-Agent", pick(g, humanAgents...))
	case 2: // an empty parameter leaves the User-Agent to decide
		q.Header.Set("User-Agent", pick(g, humanAgents...))
		q.Query.Set("pretty", "")
	case 3: // a parameter of the first clause, which kube-apiserver takes
		accept := cmp.Or(q.Header.Get("Accept"), asJSON)
		first, others, hasOthers := strings.Cut(accept, ",")
		accept = strings.TrimRight(first, " ") + ";pretty=1"
		if hasOthers {
			accept += "," + others
		}
		q.Header.Set("Accept", accept)
	}
}

// humanAgents are User-Agents that get indented JSON.
var humanAgents = []string{"curl/8.5.0", "Wget/1.21", "Mozilla/5.0 (X11; Linux x86_64)"}
