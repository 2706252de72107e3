package snapshot

import "github.com/listproxy/listproxy/policy/media"

func encodingOf(r media.Representation) encoding {
	if r.IsProtobuf() {
		return protobufEncoding{}
	}
	return jsonEncoding{}
}
