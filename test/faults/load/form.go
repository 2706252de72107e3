package load

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/listproxy/listproxy/test/harness/ask"
)

// Form is a representation of a list.
type Form struct{ Name, Accept string }

// The forms, by the names that metrics have for them.
var (
	AsJSON     = Form{"json", ask.JSON}
	AsProtobuf = Form{"protobuf", ask.Protobuf}
	AsMetadata = Form{"metadata-json", ask.Metadata}
	// AsBinaryMetadata is no form of [Collections].
	AsBinaryMetadata = Form{"metadata-protobuf", ask.Protobuf + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
)

// Read decodes a list.
func (f Form) Read(body []byte) (ask.List, error) {
	if f == AsBinaryMetadata {
		return readBinaryMetadata(body)
	}
	return ask.ReadList(f.Accept, body)
}

// readBinaryMetadata decodes metadata in protobuf, which client-go knows only of objects.
func readBinaryMetadata(body []byte) (ask.List, error) {
	var decoded metav1.PartialObjectMetadataList
	known := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(known); err != nil {
		return ask.List{}, err
	}
	if err := runtime.DecodeInto(serializer.NewCodecFactory(known).UniversalDeserializer(), body, &decoded); err != nil {
		return ask.List{}, err
	}
	revision, err := strconv.ParseUint(decoded.ResourceVersion, 10, 64)
	l := ask.List{Revision: revision, Next: decoded.Continue}
	for i := range decoded.Items {
		l.Objects = append(l.Objects, ask.IdentityOf(&decoded.Items[i]))
	}
	return l, err
}
