package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// protobufShape writes lists in protobuf: a wrapper (runtime.Unknown) around the list's metadata and items. As in
// generated code, the selfLink and the continue of metadata, and the contentEncoding and the contentType of the wrapper
// are written even if they are empty.
type protobufShape struct{}

// shapes implements Encoding.
func (protobufEncoding) shapes() []shape { return []shape{protobufShape{}} }

func (protobufShape) appendHead(dst []byte, e *Envelope, meta ListMeta, _, itemsSize int) []byte {
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
	typeMeta := appendWireString(nil, 1, e.APIVersion)
	typeMeta = appendWireString(typeMeta, 2, e.kind)
	listSize := tagSize + protowire.SizeBytes(len(listMeta)) + itemsSize

	dst = append(dst, protobufMagic...)
	dst = appendWireBytes(dst, 1, typeMeta)
	dst = appendWireLength(dst, 2, listSize)
	return appendWireBytes(dst, metadataField, listMeta)
}

func (protobufShape) separator() string { return "" }

func (protobufShape) appendItemHead(dst []byte, size int) []byte {
	return appendWireLength(dst, itemsField, size)
}

func (protobufShape) appendTail(dst []byte, _ *Envelope, _ ListMeta, _ int) []byte {
	return append(dst, wrapperEnd...)
}

// wrapperEnd is the empty contentEncoding and the empty contentType of a wrapper, fields 3 and 4.
const wrapperEnd = "\x1a\x00\x22\x00"

// tagSize is the size of a field's tag, since all fields that are written here have numbers below 16.
const tagSize = 1

// lengthPrefix is the number of bytes of the length before each event.
const lengthPrefix = 4

// appendEventHead implements Encoding. An event is a WatchEvent with the type in field 1. In field 2 it has a
// RawExtension around the object in its wrapper.
func (protobufEncoding) appendEventHead(dst []byte, eventType string, form ItemForm, size int) (out []byte, skip int) {
	typeMetaSize := tagSize + protowire.SizeBytes(len(form.APIVersion)) + tagSize + protowire.SizeBytes(len(form.Kind))
	rawSize := tagSize + protowire.SizeBytes(size)
	wrapperSize := len(protobufMagic) + tagSize + protowire.SizeBytes(typeMetaSize) + rawSize + len(wrapperEnd)
	extensionSize := tagSize + protowire.SizeBytes(wrapperSize)
	eventSize := tagSize + protowire.SizeBytes(len(eventType)) + tagSize + protowire.SizeBytes(extensionSize)

	dst = binary.BigEndian.AppendUint32(dst, uint32(eventSize)) // #nosec G115 -- maxEvent bounds what is kept
	dst = appendWireString(dst, 1, eventType)
	dst = appendWireLength(dst, 2, extensionSize)
	dst = appendWireLength(dst, 1, wrapperSize)
	dst = append(dst, protobufMagic...)
	dst = appendWireLength(dst, 1, typeMetaSize)
	dst = appendWireString(dst, 1, form.APIVersion)
	dst = appendWireString(dst, 2, form.Kind)
	return appendWireLength(dst, 2, size), 0 // the item is written whole
}

// eventEnd implements Encoding.
func (protobufEncoding) eventEnd() string { return wrapperEnd }

// isReproducible reports whether a record is what appendEvent writes for this event.
func (e protobufEncoding) isReproducible(record []byte, ev Event) bool {
	w, err := parseWrapper(ev.Object)
	if err != nil {
		return false
	}
	var buf [256]byte
	form := ItemForm{APIVersion: w.apiVersion, Kind: w.kind}
	head, _ := e.appendEventHead(buf[:0], ev.Type, form, len(w.object))
	head = head[lengthPrefix:] // which is no part of the record
	return len(record) == len(head)+len(w.object)+len(wrapperEnd) &&
		bytes.HasPrefix(record, head) && bytes.HasSuffix(record, []byte(wrapperEnd))
}

// Revise implements Encoding. The length of the metadata may change, too. So the middle part begins with this length, and
// has the metadata up to the revision. These bytes are few: the name, the namespace and the like.
func (protobufEncoding) Revise(item []byte, revision uint64) (before, revised, after []byte, err error) {
	metadata, metadataAt, err := onlyField(item, metadataField)
	if err != nil {
		return nil, nil, nil, err
	}
	old, oldAt, err := onlyField(metadata, revisionField)
	if err != nil {
		return nil, nil, nil, err
	}
	field := appendWireString(nil, revisionField, strconv.FormatUint(revision, 10))
	restSize := len(metadata) - oldAt - tagSize - protowire.SizeBytes(len(old)) // of the metadata, after the revision
	metadataEnd := metadataAt + tagSize + protowire.SizeBytes(len(metadata))
	head := appendWireLength(nil, metadataField, oldAt+len(field)+restSize)
	return item[:metadataAt], slices.Concat(head, metadata[:oldAt], field), item[metadataEnd-restSize:], nil
}

// onlyField returns the content of the only field with a number, and the index at which the field begins in the message.
// It returns an error if there is no such field, or more than one.
func onlyField(message []byte, number protowire.Number) (content []byte, at int, err error) {
	at = -1
	err = wireFields(message, func(f wireField) error {
		if f.number != number {
			return nil
		}
		if !f.isBytes(number) || at >= 0 {
			return f.unexpected("an object")
		}
		content = f.content
		// If the length has more bytes than it needs, there is no tag at this index.
		at = offset(message, content) - protowire.SizeVarint(uint64(len(content))) - tagSize
		return nil
	})
	if err == nil && (at < 0 || uint64(message[at]) != protowire.EncodeTag(number, protowire.BytesType)) {
		err = fmt.Errorf("%w: no field %d, or its length has more bytes than it needs", errShape, number)
	}
	return content, at, err
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
