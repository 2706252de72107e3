package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// The types of watch events.
const (
	Added      = "ADDED"
	Modified   = "MODIFIED"
	Deleted    = "DELETED"
	Bookmarked = "BOOKMARK"
)

// AppendEvent appends an event of a watch as the upstream writes it, with the list form of an
// object whose form in events was learned.
func (f *Frame) AppendEvent(dst []byte, kind string, item []byte) []byte {
	return appendEvent(dst, f.Encoding, kind, f.Item, item)
}

func appendEvent(dst []byte, e Encoding, kind string, form ItemForm, item []byte) []byte {
	dst, skip := e.appendEventHead(dst, kind, form, len(item))
	return append(append(dst, item[skip:]...), e.eventEnd()...)
}

// AppendEventHead and EventEnd are AppendEvent for an item that is not copied: they are what comes
// before an item of that size, whose first skip bytes are left out, and after it.
func (f *Frame) AppendEventHead(dst []byte, kind string, size int) (out []byte, skip int) {
	return f.Encoding.appendEventHead(dst, kind, f.Item, size)
}

// EventEnd is what comes after the item in an event.
func (f *Frame) EventEnd() string { return f.Encoding.eventEnd() }

// AtRevision returns a list's item with another resourceVersion, in memory of its own.
func AtRevision(e Encoding, item []byte, revision uint64) ([]byte, error) {
	before, instead, after, err := e.Revise(item, revision)
	if err != nil {
		return nil, err
	}
	return slices.Concat(before, instead, after), nil
}

// Bookmark is how the upstream writes a bookmark of one collection: the zero value of the type at a
// revision, and in the bookmark that ends the initial events an annotation. It is immutable.
type Bookmark struct {
	encoding Encoding
	form     ItemForm
	item     []byte
}

// LearnBookmark learns the form of a bookmark from one that the upstream has sent. It returns an
// error if the bookmark could not be written again with the same bytes.
func LearnBookmark(e Encoding, ev Event) (*Bookmark, error) {
	b := &Bookmark{encoding: e, form: ItemForm{APIVersion: ev.Meta.APIVersion, Kind: ev.Meta.Kind}}
	var err error
	if b.item, err = e.Cut(b.form, bytes.Clone(ev.Object)); err != nil {
		return nil, err
	}
	again, err := AtRevision(e, b.item, ev.Meta.Revision)
	if err != nil || !bytes.Equal(again, b.item) || !ev.Framed || ev.Kind != Bookmarked {
		return nil, fmt.Errorf("%w: a bookmark has an unknown form", ErrForm)
	}
	return b, nil
}

// AppendTo appends the bookmark at a revision, as an event.
func (b *Bookmark) AppendTo(dst []byte, revision uint64) []byte {
	item, err := AtRevision(b.encoding, b.item, revision)
	if err != nil {
		return dst // it was possible when the form was learned
	}
	return appendEvent(dst, b.encoding, Bookmarked, b.form, item)
}

// Event framing in JSON: {"type":"ADDED","object":{…}} and a line break.
const (
	jsonEventType   = `{"type":"`
	jsonEventObject = `","object":`
	jsonEventEnd    = "}\n"
)

// appendEventHead implements Encoding.
func (jsonEncoding) appendEventHead(dst []byte, kind string, form ItemForm, _ int) (out []byte, skip int) {
	dst = append(append(append(dst, jsonEventType...), kind...), jsonEventObject...)
	if form.lead != "" {
		return append(append(dst, '{'), form.lead...), 1
	}
	return dst, 0
}

// eventEnd implements Encoding.
func (jsonEncoding) eventEnd() string { return jsonEventEnd }

// framed says whether a record is an event with this object, as appendEvent writes it.
func (jsonEncoding) framed(record []byte, ev Event) bool {
	head := len(jsonEventType) + len(ev.Kind) + len(jsonEventObject)
	return len(record) == head+len(ev.Object)+len(jsonEventEnd) &&
		string(record[:head]) == jsonEventType+ev.Kind+jsonEventObject && bytes.HasSuffix(record, []byte(jsonEventEnd))
}

// Revise implements Encoding.
func (jsonEncoding) Revise(item []byte, revision uint64) (before, instead, after []byte, err error) {
	from, to := -1, -1
	err = members(item, func(key string, metadata []byte) error {
		if key != "metadata" {
			return nil
		}
		return members(metadata, func(key string, value []byte) error {
			if key == "resourceVersion" {
				from = cap(item) - cap(value) // both end with the same memory
				to = from + len(value)
			}
			return nil
		})
	})
	if err != nil {
		return nil, nil, nil, err
	}
	if from < 0 {
		return nil, nil, nil, fmt.Errorf("%w: an object without resourceVersion", errShape)
	}
	return item[:from], strconv.AppendQuote(nil, strconv.FormatUint(revision, 10)), item[to:], nil
}

// lengthPrefix is the length before each event in protobuf: four bytes, big endian.
const lengthPrefix = 4

// appendEventHead implements Encoding: a WatchEvent with the type in field 1 and, in field 2, a
// RawExtension around the object in its envelope.
func (protobufEncoding) appendEventHead(dst []byte, kind string, form ItemForm, size int) (out []byte, skip int) {
	typeMeta := protowire.SizeBytes(len(form.APIVersion)) + protowire.SizeBytes(len(form.Kind)) + 2
	envelope := len(protobufMagic) + 1 + protowire.SizeBytes(typeMeta) + 1 + protowire.SizeBytes(size) + len(envelopeEnd)
	extension := 1 + protowire.SizeBytes(envelope)
	event := 1 + protowire.SizeBytes(len(kind)) + 1 + protowire.SizeBytes(extension)

	dst = binary.BigEndian.AppendUint32(dst, uint32(event)) // #nosec G115 -- maxEvent bounds what is kept
	dst = appendWireString(dst, 1, kind)
	dst = appendWireLength(dst, 2, extension)
	dst = appendWireLength(dst, 1, envelope)
	dst = append(dst, protobufMagic...)
	dst = appendWireLength(dst, 1, typeMeta)
	dst = appendWireString(dst, 1, form.APIVersion)
	dst = appendWireString(dst, 2, form.Kind)
	return appendWireLength(dst, 2, size), 0
}

// eventEnd implements Encoding.
func (protobufEncoding) eventEnd() string { return envelopeEnd }

// envelopeEnd are the empty contentEncoding and contentType of an envelope.
const envelopeEnd = "\x1a\x00\x22\x00"

func appendWireLength(dst []byte, number protowire.Number, length int) []byte {
	dst = protowire.AppendTag(dst, number, protowire.BytesType)
	return protowire.AppendVarint(dst, uint64(length)) // #nosec G115 -- a length
}

// framed says whether a record is an event with this object, as appendEvent writes it.
func (p protobufEncoding) framed(record []byte, ev Event) bool {
	e, err := openEnvelope(ev.Object)
	if err != nil {
		return false
	}
	var buf [256]byte
	head, _ := p.appendEventHead(buf[:0], ev.Kind, ItemForm{APIVersion: e.apiVersion, Kind: e.kind}, len(e.raw))
	head = head[lengthPrefix:]
	return len(record) == len(head)+len(e.raw)+len(envelopeEnd) &&
		bytes.HasPrefix(record, head) && bytes.HasSuffix(record, []byte(envelopeEnd))
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
		at = cap(message) - cap(content) - protowire.SizeBytes(len(content)) + len(content) - 1
		return nil
	})
	if err == nil && (at < 0 || uint64(message[at]) != protowire.EncodeTag(number, protowire.BytesType)) {
		err = fmt.Errorf("%w: no field %d, or its length is written with more bytes than it takes", errShape, number)
	}
	return content, at, err
}
