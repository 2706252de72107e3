package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// protobufShape writes lists in protobuf: a wrapper (runtime.Unknown) around the list's metadata and items. Like generated
// code, it writes four fields even if they are empty: selfLink and continue of the metadata, and contentEncoding and
// contentType of the wrapper.
type protobufShape struct{}

// shapes implements Encoding.
func (protobufEncoding) shapes() []shape { return []shape{protobufShape{}} }

// appendHead implements shape.
func (protobufShape) appendHead(dst []byte, e *Envelope, meta ListMeta, _, itemsSize int) []byte {
	// The numbers are those of metav1.ListMeta.
	listMeta := appendWireString(nil, 1, "")                                        // selfLink
	listMeta = appendWireString(listMeta, 2, strconv.FormatUint(meta.Revision, 10)) // resourceVersion
	listMeta = appendWireString(listMeta, 3, meta.Continue)                         // continue
	if meta.HasRemaining {
		listMeta = protowire.AppendTag(listMeta, 4, protowire.VarintType)   // remainingItemCount
		listMeta = protowire.AppendVarint(listMeta, uint64(meta.Remaining)) // #nosec G115 -- an int64 on the wire
	}
	if meta.Shards != "" {
		listMeta = appendWireBytes(listMeta, 5, appendWireString(nil, 1, meta.Shards)) // shardInfo.selector
	}
	typeMeta := appendWireString(nil, typeAPIVersionField, e.APIVersion)
	typeMeta = appendWireString(typeMeta, typeKindField, e.kind)
	listSize := tagSize + protowire.SizeBytes(len(listMeta)) + itemsSize

	dst = append(dst, protobufMagic...)
	dst = appendWireBytes(dst, wrapperTypeField, typeMeta)
	dst = appendWireLength(dst, wrapperObjectField, listSize)
	return appendWireBytes(dst, metadataField, listMeta)
}

// separator implements shape.
func (protobufShape) separator() string { return "" }

// appendItemHead implements shape.
func (protobufShape) appendItemHead(dst []byte, size int) []byte {
	return appendWireLength(dst, listItemsField, size)
}

// appendTail implements shape.
func (protobufShape) appendTail(dst []byte, _ *Envelope, _ ListMeta, _ int) []byte {
	return append(dst, wrapperEnd...)
}

// wrapperEnd is the empty contentEncoding and the empty contentType of a wrapper.
const wrapperEnd = "\x1a\x00\x22\x00"

// tagSize is the size of a field's tag in bytes. All fields that are written here have numbers below 16, so one byte is enough.
const tagSize = 1

// lengthPrefix is the size of the length that comes before each event.
const lengthPrefix = 4

// appendEventHead implements Encoding. An event has this form, and appendEventHead writes what comes before the item:
//
//	length, WatchEvent{type, RawExtension{magic, Unknown{TypeMeta{apiVersion, kind}, item, wrapperEnd}}}
func (protobufEncoding) appendEventHead(dst []byte, eventType string, form ItemForm, size int) (out []byte, skip int) {
	typeMetaSize := tagSize + protowire.SizeBytes(len(form.APIVersion)) + tagSize + protowire.SizeBytes(len(form.Kind))
	objectSize := tagSize + protowire.SizeBytes(size)
	wrapperSize := len(protobufMagic) + tagSize + protowire.SizeBytes(typeMetaSize) + objectSize + len(wrapperEnd)
	extensionSize := tagSize + protowire.SizeBytes(wrapperSize)
	eventSize := tagSize + protowire.SizeBytes(len(eventType)) + tagSize + protowire.SizeBytes(extensionSize)

	dst = binary.BigEndian.AppendUint32(dst, uint32(eventSize)) // #nosec G115 -- an object is far smaller than 4 GiB
	dst = appendWireString(dst, eventTypeField, eventType)
	dst = appendWireLength(dst, eventObjectField, extensionSize)
	dst = appendWireLength(dst, extensionRawField, wrapperSize)
	dst = append(dst, protobufMagic...)
	dst = appendWireLength(dst, wrapperTypeField, typeMetaSize)
	dst = appendWireString(dst, typeAPIVersionField, form.APIVersion)
	dst = appendWireString(dst, typeKindField, form.Kind)
	return appendWireLength(dst, wrapperObjectField, size), 0 // The caller writes the whole item.
}

// eventEnd implements Encoding.
func (protobufEncoding) eventEnd() string { return wrapperEnd }

// isReproducible reports whether [Envelope.AppendEvent] would write the bytes of the record for an event of this type, whose
// object has the wrapper w.
func (e protobufEncoding) isReproducible(record []byte, eventType string, w wrapper) bool {
	var buf [256]byte
	form := ItemForm{APIVersion: w.apiVersion, Kind: w.kind}
	head, _ := e.appendEventHead(buf[:0], eventType, form, len(w.object))
	head = head[lengthPrefix:] // The record has no length prefix.
	return len(record) == len(head)+len(w.object)+len(wrapperEnd) &&
		bytes.HasPrefix(record, head) && bytes.HasSuffix(record, []byte(wrapperEnd))
}

// Revise implements Encoding. If the new revision has another length, the length of the metadata changes, too, and it comes
// before the metadata. So the middle part begins with the tag and the length of the metadata, and ends with the revision. The
// bytes between are few: the name, the namespace and the like.
func (protobufEncoding) Revise(item []byte, revision uint64) (before, revised, after []byte, err error) {
	metadata, metadataAt, err := onlyField(item, metadataField)
	if err != nil {
		return nil, nil, nil, err
	}
	old, oldAt, err := onlyField(metadata, metaRevisionField)
	if err != nil {
		return nil, nil, nil, err
	}
	newRevision := appendWireString(nil, metaRevisionField, strconv.FormatUint(revision, 10))
	// afterRevision is the number of bytes of the metadata after the old revision.
	afterRevision := len(metadata) - oldAt - tagSize - protowire.SizeBytes(len(old))
	metadataEnd := metadataAt + tagSize + protowire.SizeBytes(len(metadata))
	metadataHead := appendWireLength(nil, metadataField, oldAt+len(newRevision)+afterRevision)
	return item[:metadataAt], slices.Concat(metadataHead, metadata[:oldAt], newRevision), item[metadataEnd-afterRevision:], nil
}

// onlyField returns the content of the only field with a number, and the index at which the field begins in the message.
// It returns an error if there is no such field, or more than one.
func onlyField(message []byte, number protowire.Number) (content []byte, at int, err error) {
	content, err = singularField(message, "an object", number)
	if err != nil {
		return nil, 0, err
	}
	if content != nil {
		at = offset(message, content) - protowire.SizeVarint(uint64(len(content))) - tagSize
	}
	// If the length has more bytes than it needs, the field begins before at, and at is not the index of its tag.
	if content == nil || uint64(message[at]) != protowire.EncodeTag(number, protowire.BytesType) {
		return nil, 0, fmt.Errorf("%w: no field %d, or its length has more bytes than it needs", errShape, number)
	}
	return content, at, nil
}

func appendWireString(dst []byte, number protowire.Number, value string) []byte {
	return protowire.AppendString(protowire.AppendTag(dst, number, protowire.BytesType), value)
}

func appendWireBytes(dst []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(dst, number, protowire.BytesType), value)
}

// appendWireLength appends the tag and the length of a field, whose content must follow.
func appendWireLength(dst []byte, number protowire.Number, length int) []byte {
	dst = protowire.AppendTag(dst, number, protowire.BytesType)
	return protowire.AppendVarint(dst, uint64(length)) // #nosec G115 -- a length
}
