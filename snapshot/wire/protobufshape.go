package wire

import (
	"bytes"
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"
)

// separator implements Encoding.
func (protobufEncoding) separator() string { return "" }

// appendItemTag implements Encoding.
func (protobufEncoding) appendItemTag(dst []byte, size int) []byte {
	return appendWireLength(dst, listItemsField, size)
}

// listFrame implements Encoding. A list is its metadata and items in a wrapper (runtime.Unknown):
//
//	magic, Unknown{TypeMeta{apiVersion, kind}, list{metadata, items}, wrapperEnd}
//	head ───────────────────────────────────────────────────┘         └─ tail
//
// Like generated code, listFrame writes selfLink and continue in the metadata even if they are empty.
func (protobufEncoding) listFrame(e *Envelope, meta ListMeta, _, itemsSize int) (head, tail []byte) {
	apiMeta := meta.toAPIMachinery()
	listMeta, _ := apiMeta.Marshal() // Generated code returns no error here.
	typeMeta := appendWireField(nil, typeAPIVersionField, e.APIVersion)
	typeMeta = appendWireField(typeMeta, typeKindField, e.kind)
	listSize := tagSize + protowire.SizeBytes(len(listMeta)) + itemsSize

	head = appendWireField([]byte(protobufMagic), wrapperTypeField, typeMeta)
	head = appendWireLength(head, wrapperObjectField, listSize)
	return appendWireField(head, metadataField, listMeta), []byte(wrapperEnd)
}

// wrapperEnd is the end of a wrapper: the fields contentEncoding and contentType, which generated code writes even if they are
// empty.
const wrapperEnd = "\x1a\x00\x22\x00"

// tagSize is the size in bytes of a field's tag. It is 1 since all fields that are written here have numbers below 16.
const tagSize = 1

// lengthPrefix is the size in bytes of the length that comes before each record.
const lengthPrefix = 4

// appendEventHead implements Encoding. The head of an event is everything before the item:
//
//	length, WatchEvent{type, RawExtension{magic, Unknown{TypeMeta{apiVersion, kind}, item, wrapperEnd}}}
//	head ──────────────────────────────────────────────────────────────────────────┘       └─ end
//
// The length of each message comes before the message. So the lengths are calculated first, from the innermost message
// outwards.
func (protobufEncoding) appendEventHead(dst []byte, eventType string, form ItemForm, size int) (out []byte, skip int) {
	typeMetaSize := tagSize + protowire.SizeBytes(len(form.APIVersion)) + tagSize + protowire.SizeBytes(len(form.Kind))
	objectSize := tagSize + protowire.SizeBytes(size)
	wrapperSize := len(protobufMagic) + tagSize + protowire.SizeBytes(typeMetaSize) + objectSize + len(wrapperEnd)
	extensionSize := tagSize + protowire.SizeBytes(wrapperSize)
	eventSize := tagSize + protowire.SizeBytes(len(eventType)) + tagSize + protowire.SizeBytes(extensionSize)

	dst = binary.BigEndian.AppendUint32(dst, uint32(eventSize)) // #nosec G115 -- an object is far smaller than 4 GiB
	dst = appendWireField(dst, eventTypeField, eventType)
	dst = appendWireLength(dst, eventObjectField, extensionSize)
	dst = appendWireLength(dst, extensionRawField, wrapperSize)
	dst = append(dst, protobufMagic...)
	dst = appendWireLength(dst, wrapperTypeField, typeMetaSize)
	dst = appendWireField(dst, typeAPIVersionField, form.APIVersion)
	dst = appendWireField(dst, typeKindField, form.Kind)
	return appendWireLength(dst, wrapperObjectField, size), 0 // The caller writes the whole item.
}

// eventEnd implements Encoding.
func (protobufEncoding) eventEnd() string { return wrapperEnd }

// isReproducible reports whether AppendEvent would write an event of this type, with the object in w, with the same bytes as
// record. eventType and w were parsed from record.
func (e protobufEncoding) isReproducible(record []byte, eventType string, w wrapper) bool {
	var buf [256]byte
	form := ItemForm{APIVersion: w.apiVersion, Kind: w.kind}
	head, _ := e.appendEventHead(buf[:0], eventType, form, len(w.object))
	head = head[lengthPrefix:] // A record has no length prefix.
	return len(record) == len(head)+len(w.object)+len(wrapperEnd) &&
		bytes.HasPrefix(record, head) && bytes.HasSuffix(record, []byte(wrapperEnd))
}

// appendWireField appends a field with its content.
func appendWireField[T string | []byte](dst []byte, number protowire.Number, content T) []byte {
	return append(appendWireLength(dst, number, len(content)), content...)
}

// appendWireLength appends the tag and the length of a field. The caller must append the content.
func appendWireLength(dst []byte, number protowire.Number, length int) []byte {
	dst = protowire.AppendTag(dst, number, protowire.BytesType)
	return protowire.AppendVarint(dst, uint64(length)) // #nosec G115 -- a length
}
