package wire

import "github.com/listproxy/listproxy/policy/media"

// EncodingOf is how a representation is encoded.
func EncodingOf(r media.Representation) Encoding {
	if r.IsProtobuf() {
		return protobufEncoding{}
	}
	return jsonEncoding{}
}
