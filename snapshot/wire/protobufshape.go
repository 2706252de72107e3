package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// protobufShape is how lists are written in protobuf: a wrapper (runtime.Unknown) around the
// list's metadata in field 1 and its items in field 2, each with its length before it. The API
// server writes the empty selfLink and continue of metadata, and the empty contentEncoding and
// contentType of the wrapper.
type protobufShape struct{}

// shapes implements Encoding.
func (protobufEncoding) shapes() []shape { return []shape{protobufShape{}} }

func (protobufShape) appendHead(dst []byte, f *Envelope, meta ListMeta, _, size int) []byte {
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

func (protobufShape) appendTail(dst []byte, _ *Envelope, _ ListMeta, _ int) []byte {
	return appendWireString(appendWireString(dst, 3, ""), 4, "")
}

// lengthPrefix is the length before each event in protobuf: four bytes, big endian.
const lengthPrefix = 4

// appendEventHead implements Encoding: a WatchEvent with the type in field 1 and, in field 2, a
// RawExtension around the object in its wrapper.
func (protobufEncoding) appendEventHead(dst []byte, kind string, form ItemForm, size int) (out []byte, skip int) {
	typeMeta := protowire.SizeBytes(len(form.APIVersion)) + protowire.SizeBytes(len(form.Kind)) + 2
	wrapper := len(protobufMagic) + 1 + protowire.SizeBytes(typeMeta) + 1 + protowire.SizeBytes(size) + len(wrapperEnd)
	extension := 1 + protowire.SizeBytes(wrapper)
	event := 1 + protowire.SizeBytes(len(kind)) + 1 + protowire.SizeBytes(extension)

	dst = binary.BigEndian.AppendUint32(dst, uint32(event)) // #nosec G115 -- maxEvent bounds what is kept
	dst = appendWireString(dst, 1, kind)
	dst = appendWireLength(dst, 2, extension)
	dst = appendWireLength(dst, 1, wrapper)
	dst = append(dst, protobufMagic...)
	dst = appendWireLength(dst, 1, typeMeta)
	dst = appendWireString(dst, 1, form.APIVersion)
	dst = appendWireString(dst, 2, form.Kind)
	return appendWireLength(dst, 2, size), 0
}

// eventEnd implements Encoding.
func (protobufEncoding) eventEnd() string { return wrapperEnd }

// wrapperEnd are the empty contentEncoding and contentType of a wrapper.
const wrapperEnd = "\x1a\x00\x22\x00"

// framed reports whether a record is an event with this object, as appendEvent writes it.
func (p protobufEncoding) framed(record []byte, ev Event) bool {
	e, err := unwrap(ev.Object)
	if err != nil {
		return false
	}
	var buf [256]byte
	head, _ := p.appendEventHead(buf[:0], ev.Kind, ItemForm{APIVersion: e.apiVersion, Kind: e.kind}, len(e.raw))
	head = head[lengthPrefix:]
	return len(record) == len(head)+len(e.raw)+len(wrapperEnd) &&
		bytes.HasPrefix(record, head) && bytes.HasSuffix(record, []byte(wrapperEnd))
}

// Revise implements Encoding. The length of the metadata changes too, so what comes in it before the
// revision is copied: names.
func (protobufEncoding) Revise(item []byte, revision uint64) (before, instead, after []byte, err error) {
	const metadataField, revisionField = 1, 6
	content, from, err := only(item, metadataField)
	if err != nil {
		return nil, nil, nil, err
	}
	was, at, err := only(content, revisionField)
	if err != nil {
		return nil, nil, nil, err
	}
	field := appendWireString(nil, revisionField, strconv.FormatUint(revision, 10))
	left := len(content) - at - 1 - protowire.SizeBytes(len(was)) // of the metadata, after the revision
	end := from + 1 + protowire.SizeBytes(len(content))
	instead = appendWireLength(nil, metadataField, at+len(field)+left)
	return item[:from], slices.Concat(instead, content[:at], field), item[end-left:], nil
}

// only returns the content of a message's only field of that number, whose tag has one byte, and
// where the field begins.
func only(message []byte, number protowire.Number) (content []byte, at int, err error) {
	at = -1
	err = wireFields(message, func(f wireField) error {
		if f.number != number {
			return nil
		}
		if f.kind != protowire.BytesType || at >= 0 {
			return f.unknown("an object")
		}
		content = f.content
		at = offset(message, content) - protowire.SizeVarint(uint64(len(content))) - 1
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

func appendWireLength(dst []byte, number protowire.Number, length int) []byte {
	dst = protowire.AppendTag(dst, number, protowire.BytesType)
	return protowire.AppendVarint(dst, uint64(length)) // #nosec G115 -- a length
}
