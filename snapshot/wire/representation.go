package wire

import "github.com/listproxy/listproxy/policy/media"

// EncodingOf returns the encoding of a representation.
func EncodingOf(r media.Representation) Encoding {
	if r.IsProtobuf() {
		return protobufEncoding{}
	}
	return jsonEncoding{}
}
