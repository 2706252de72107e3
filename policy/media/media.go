// Package media names the representations in which the API server can write a list and listproxy can keep it.
package media

// Representation says whether objects are whole or only metadata, and in JSON or in protobuf. Each representation of a
// resource has a feed and a collection of its own.
type Representation string

const (
	// JSON is the resource itself as application/json.
	JSON Representation = "json"
	// Protobuf is the resource itself as application/vnd.kubernetes.protobuf. Custom resources do not have it.
	Protobuf Representation = "protobuf"
	// MetadataJSON is a PartialObjectMetadataList of meta.k8s.io/v1 as application/json.
	MetadataJSON Representation = "metadata-json"
	// MetadataProtobuf is a PartialObjectMetadataList as application/vnd.kubernetes.protobuf. Custom resources have it, too.
	MetadataProtobuf Representation = "metadata-protobuf"
)

// The media types of the two encodings.
const (
	JSONType     = "application/json"
	ProtobufType = "application/vnd.kubernetes.protobuf"
)

// All returns every Representation in the order of its declaration. The caller may change the slice.
func All() []Representation {
	return []Representation{JSON, Protobuf, MetadataJSON, MetadataProtobuf}
}

// IsProtobuf reports whether the encoding is protobuf.
func (r Representation) IsProtobuf() bool { return r == Protobuf || r == MetadataProtobuf }

// IsMetadata reports whether objects are only metadata.
func (r Representation) IsMetadata() bool { return r == MetadataJSON || r == MetadataProtobuf }

// AcceptList returns the Accept header that asks for a list in this representation.
func (r Representation) AcceptList() string { return r.accept("PartialObjectMetadataList") }

// AcceptWatch returns the Accept header that asks for a watch in this representation. The events of a watch hold single
// objects.
func (r Representation) AcceptWatch() string { return r.accept("PartialObjectMetadata") }

// accept returns the Accept header. metadataKind is the kind to ask for if objects are only metadata.
func (r Representation) accept(metadataKind string) string {
	accept := JSONType
	if r.IsProtobuf() {
		accept = ProtobufType
	}
	if r.IsMetadata() {
		accept += ";as=" + metadataKind + ";g=meta.k8s.io;v=v1"
	}
	return accept
}
