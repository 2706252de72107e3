package snapshot

// Representation is the form in which the upstream writes a collection: the resource itself or
// only its metadata (PartialObjectMetadata of meta.k8s.io/v1), as JSON or as protobuf. The words
// are those of policy.Representation.
type Representation string

// The representations.
const (
	JSON             Representation = "json"
	Protobuf         Representation = "protobuf"
	MetadataJSON     Representation = "metadata-json"
	MetadataProtobuf Representation = "metadata-protobuf"
)

// Representations returns all of them.
func Representations() []Representation {
	return []Representation{JSON, Protobuf, MetadataJSON, MetadataProtobuf}
}

const (
	jsonType     = "application/json"
	protobufType = "application/vnd.kubernetes.protobuf"
)

// acceptList is the Accept header of a list in this representation.
func (r Representation) acceptList() string { return r.accept("PartialObjectMetadataList") }

// acceptWatch is that of a watch, whose events hold single objects.
func (r Representation) acceptWatch() string { return r.accept("PartialObjectMetadata") }

func (r Representation) accept(metadataKind string) string {
	accept := jsonType
	if r.protobuf() {
		accept = protobufType
	}
	if r.metadata() {
		accept += ";as=" + metadataKind + ";g=meta.k8s.io;v=v1"
	}
	return accept
}

func (r Representation) protobuf() bool { return r == Protobuf || r == MetadataProtobuf }

// metadata is true where objects are their metadata only.
func (r Representation) metadata() bool { return r == MetadataJSON || r == MetadataProtobuf }

func (r Representation) encoding() encoding {
	if r.protobuf() {
		return protobufEncoding{}
	}
	return jsonEncoding{}
}
