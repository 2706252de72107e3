package differential

// What clients send to ask for a representation, and for how it may be compressed.
const (
	asMetadata = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	asJSON     = "application/json"
	asProtobuf = "application/vnd.kubernetes.protobuf"
)

// accepts returns the Accept headers that ask for a representation of a resource; "" is none.
func accepts(r Resource, representation Representation) []string {
	switch representation {
	case JSON:
		return []string{
			"", "", asJSON, asJSON, "*/*", "application/json, */*", "application/json;q=0.5", "application/json , application/yaml",
		}
	case Protobuf:
		// Typed clients; for a custom resource, the next clause applies.
		both := []string{asProtobuf + "," + asJSON, asProtobuf + ", " + asJSON, asProtobuf + "," + asJSON + ";q=0.9"}
		if r.Group == group {
			return both
		}
		return append(both, asProtobuf)
	case MetadataJSON:
		return []string{
			asJSON + asMetadata, asJSON + ";as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", asJSON + asMetadata + "," + asJSON,
		}
	case MetadataProtobuf:
		return []string{
			asProtobuf + asMetadata,
			asProtobuf + asMetadata + "," + asJSON + asMetadata,
			// client-go's metadata client.
			asProtobuf + asMetadata + "," + asJSON + asMetadata + "," + asJSON,
		}
	}
	return []string{""}
}

// represent asks for a representation.
func (g *Generator) represent(q *Question, representation Representation) {
	q.Representation = representation
	q.Header.Del("Accept")
	if accept := g.pick(accepts(q.Resource, representation)); accept != "" {
		q.Header.Set("Accept", accept)
	}
}
