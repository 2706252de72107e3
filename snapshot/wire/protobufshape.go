package wire

import (
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// protobufShape is how lists are written in protobuf: an envelope (runtime.Unknown) around the
// list's metadata in field 1 and its items in field 2, each with its length before it. The API
// server writes the empty selfLink and continue of metadata, and the empty contentEncoding and
// contentType of the envelope.
type protobufShape struct{}

// shapes implements Encoding.
func (protobufEncoding) shapes() []shape { return []shape{protobufShape{}} }

func (protobufShape) appendHead(dst []byte, f *Frame, meta ListMeta, _, size int) []byte {
	listMeta := appendWireString(nil, 1, "")
	listMeta = appendWireString(listMeta, 2, strconv.FormatUint(meta.Revision, 10))
	listMeta = appendWireString(listMeta, 3, meta.Continue)
	if meta.HasRemaining {
		listMeta = protowire.AppendTag(listMeta, 4, protowire.VarintType)
		listMeta = protowire.AppendVarint(listMeta, uint64(meta.Remaining)) // #nosec G115 -- an int64 on the wire
	}
	if meta.Shards != "" {
		listMeta = appendWireBytes(listMeta, 5, appendWireString(nil, 1, meta.Shards))
	}
	typeMeta := appendWireString(nil, 1, f.APIVersion)
	typeMeta = appendWireString(typeMeta, 2, f.kind)
	raw := 1 + protowire.SizeBytes(len(listMeta)) + size // the tag has one byte

	dst = append(dst, protobufMagic...)
	dst = appendWireBytes(dst, 1, typeMeta)
	dst = protowire.AppendTag(dst, 2, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(raw)) // #nosec G115 -- a length
	return appendWireBytes(dst, 1, listMeta)
}

func (protobufShape) appendItemHead(dst []byte, _, size int) []byte {
	dst = protowire.AppendTag(dst, 2, protowire.BytesType)
	return protowire.AppendVarint(dst, uint64(size)) // #nosec G115 -- a length
}

func (protobufShape) appendTail(dst []byte, _ *Frame, _ ListMeta, _ int) []byte {
	return appendWireString(appendWireString(dst, 3, ""), 4, "")
}

func appendWireString(dst []byte, number protowire.Number, value string) []byte {
	return protowire.AppendString(protowire.AppendTag(dst, number, protowire.BytesType), value)
}

func appendWireBytes(dst []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(dst, number, protowire.BytesType), value)
}
