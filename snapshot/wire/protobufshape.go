package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// protobufShape writes lists in protobuf: a wrapper (runtime.Unknown) around the list's metadata in field 1 and its
// items in field 2, each with its length before it. Like the API server, it writes the selfLink and the continue of
// metadata, and the contentEncoding and the contentType of the wrapper, even if they are empty.
type protobufShape struct{}

// shapes implements Encoding.
func (protobufEncoding) shapes() []shape { return []shape{protobufShape{}} }

func (protobufShape) appendHead(dst []byte, f *Envelope, meta ListMeta, _, itemsSize int) []byte {
	listMeta := appendWireString(nil, 1, "") // selfLink
	listMeta = appendWireString(listMeta, 2, strconv.FormatUint(meta.Revision, 10))
	listMeta = appendWireString(listMeta, 3, meta.Continue)
	if meta.HasRemaining {
		listMeta = protowire.AppendTag(listMeta, 4, protowire.VarintType)   // remainingItemCount
		listMeta = protowire.AppendVarint(listMeta, uint64(meta.Remaining)) // #nosec G115 -- an int64 on the wire
	}
	if meta.Shards != "" {
		listMeta = appendWireBytes(listMeta, 5, appendWireString(nil, 1, meta.Shards)) // shardInfo.selector
	}
	typeMeta := appendWireString(nil, 1, f.APIVersion)
	typeMeta = appendWireString(typeMeta, 2, f.kind)
	rawSize := tagSize + protowire.SizeBytes(len(listMeta)) + itemsSize

	dst = append(dst, protobufMagic...)
	dst = appendWireBytes(dst, 1, typeMeta)
	dst = protowire.AppendTag(dst, 2, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(rawSize)) // #nosec G115 -- a length
	return appendWireBytes(dst, 1, listMeta)
}

func (protobufShape) separator() string { return "" }

func (protobufShape) appendItemHead(dst []byte, size int) []byte {
	dst = protowire.AppendTag(dst, 2, protowire.BytesType)
	return protowire.AppendVarint(dst, uint64(size)) // #nosec G115 -- a length
}

func (protobufShape) appendTail(dst []byte, _ *Envelope, _ ListMeta, _ int) []byte {
	return append(dst, wrapperEnd...)
}

// wrapperEnd is the empty contentEncoding and the empty contentType of a wrapper, fields 3 and 4.
const wrapperEnd = "\x1a\x00\x22\x00"

// tagSize is the size of a field's tag: all fields that are written here have numbers below 16.
const tagSize = 1

// lengthPrefix is the length before each event in protobuf: four bytes, big endian.
const lengthPrefix = 4

// appendEventHead implements Encoding: a WatchEvent with the type in field 1 and, in field 2, a
// RawExtension around the object in its wrapper.
func (protobufEncoding) appendEventHead(dst []byte, kind string, form ItemForm, size int) (out []byte, skip int) {
	typeMetaSize := tagSize + protowire.SizeBytes(len(form.APIVersion)) + tagSize + protowire.SizeBytes(len(form.Kind))
	rawSize := tagSize + protowire.SizeBytes(size)
	wrapperSize := len(protobufMagic) + tagSize + protowire.SizeBytes(typeMetaSize) + rawSize + len(wrapperEnd)
	extensionSize := tagSize + protowire.SizeBytes(wrapperSize)
	eventSize := tagSize + protowire.SizeBytes(len(kind)) + tagSize + protowire.SizeBytes(extensionSize)

	dst = binary.BigEndian.AppendUint32(dst, uint32(eventSize)) // #nosec G115 -- maxEvent bounds what is kept
	dst = appendWireString(dst, 1, kind)
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
func (p protobufEncoding) isReproducible(record []byte, ev Event) bool {
	wrapped, err := parseWrapper(ev.Object)
	if err != nil {
		return false
	}
	var buf [256]byte
	form := ItemForm{APIVersion: wrapped.apiVersion, Kind: wrapped.kind}
	head, _ := p.appendEventHead(buf[:0], ev.Kind, form, len(wrapped.object))
	head = head[lengthPrefix:]
	return len(record) == len(head)+len(wrapped.object)+len(wrapperEnd) &&
		bytes.HasPrefix(record, head) && bytes.HasSuffix(record, []byte(wrapperEnd))
}

// Revise implements Encoding. The length before the metadata changes too, so instead has the metadata from there up
// to the revision. What is copied is short: the name, the namespace and the like.
func (protobufEncoding) Revise(item []byte, revision uint64) (before, instead, after []byte, err error) {
	const metadataField, revisionField = 1, 6
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
	instead = appendWireLength(nil, metadataField, oldAt+len(field)+restSize)
	return item[:metadataAt], slices.Concat(instead, metadata[:oldAt], field), item[metadataEnd-restSize:], nil
}

// onlyField returns the content of a message's only field of that number, and where the field begins. It fails if there
// is none, or more than one.
func onlyField(message []byte, number protowire.Number) (content []byte, at int, err error) {
	at = -1
	err = wireFields(message, func(f wireField) error {
		if f.number != number {
			return nil
		}
		if f.kind != protowire.BytesType || at >= 0 {
			return f.unknown("an object")
		}
		content = f.content
		// If the length is not written in as few bytes as it takes, this is no tag.
		at = offset(message, content) - protowire.SizeVarint(uint64(len(content))) - tagSize
		return nil
	})
	if err == nil && (at < 0 || uint64(message[at]) != protowire.EncodeTag(number, protowire.BytesType)) {
		err = fmt.Errorf("%w: no field %d, or its length is written with more bytes than it takes", errShape, number)
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
