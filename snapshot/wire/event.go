package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
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
func (f *Frame) AppendEvent(dst []byte, e Encoding, kind string, item []byte) []byte {
	return e.appendEvent(dst, kind, f.Item, item)
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
	again, err := e.AtRevision(b.item, ev.Meta.Revision)
	if err != nil || !bytes.Equal(again, b.item) || !ev.Framed || ev.Kind != Bookmarked {
		return nil, fmt.Errorf("%w: a bookmark has an unknown form", ErrForm)
	}
	return b, nil
}

// AppendTo appends the bookmark at a revision, as an event.
func (b *Bookmark) AppendTo(dst []byte, revision uint64) []byte {
	item, err := b.encoding.AtRevision(b.item, revision)
	if err != nil {
		return dst // it was possible when the form was learned
	}
	return b.encoding.appendEvent(dst, Bookmarked, b.form, item)
}

// Event framing in JSON: {"type":"ADDED","object":{…}} and a line break.
const (
	jsonEventType   = `{"type":"`
	jsonEventObject = `","object":`
	jsonEventEnd    = "}\n"
)

// appendEvent implements Encoding.
func (jsonEncoding) appendEvent(dst []byte, kind string, form ItemForm, item []byte) []byte {
	dst = append(append(append(dst, jsonEventType...), kind...), jsonEventObject...)
	if form.lead != "" {
		dst = append(append(dst, '{'), form.lead...)
		item = item[1:]
	}
	return append(append(dst, item...), jsonEventEnd...)
}

// framed says whether a record is an event with this object, as appendEvent writes it.
func (jsonEncoding) framed(record []byte, ev Event) bool {
	head := len(jsonEventType) + len(ev.Kind) + len(jsonEventObject)
	return len(record) == head+len(ev.Object)+len(jsonEventEnd) &&
		string(record[:head]) == jsonEventType+ev.Kind+jsonEventObject && bytes.HasSuffix(record, []byte(jsonEventEnd))
}

// AtRevision implements Encoding.
func (jsonEncoding) AtRevision(item []byte, revision uint64) ([]byte, error) {
	from, to := -1, -1
	err := members(item, func(key string, metadata []byte) error {
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
		return nil, err
	}
	if from < 0 {
		return nil, fmt.Errorf("%w: an object without resourceVersion", errShape)
	}
	out := make([]byte, 0, len(item)+maxRevisionDigits)
	out = append(out, item[:from]...)
	out = append(out, '"')
	out = strconv.AppendUint(out, revision, 10)
	out = append(out, '"')
	return append(out, item[to:]...), nil
}

// maxRevisionDigits is how many digits a revision has at most.
const maxRevisionDigits = 20

// lengthPrefix is the length before each event in protobuf: four bytes, big endian.
const lengthPrefix = 4

// appendEvent implements Encoding: a WatchEvent with the type in field 1 and, in field 2, a
// RawExtension around the object in its envelope.
func (protobufEncoding) appendEvent(dst []byte, kind string, form ItemForm, item []byte) []byte {
	dst = append(appendEventHead(dst, kind, form, len(item)), item...)
	return append(dst, envelopeEnd...)
}

// appendEventHead appends what comes before an object of so many bytes.
func appendEventHead(dst []byte, kind string, form ItemForm, size int) []byte {
	typeMeta := protowire.SizeBytes(len(form.APIVersion)) + protowire.SizeBytes(len(form.Kind)) + 2
	envelope := len(protobufMagic) + 1 + protowire.SizeBytes(typeMeta) + 1 + protowire.SizeBytes(size) + len(envelopeEnd)
	extension := 1 + protowire.SizeBytes(envelope)
	event := 1 + protowire.SizeBytes(len(kind)) + 1 + protowire.SizeBytes(extension)

	dst = binary.BigEndian.AppendUint32(dst, uint32(event)) // #nosec G115 -- MaxEvent bounds what is kept
	dst = appendWireString(dst, 1, kind)
	dst = appendWireLength(dst, 2, extension)
	dst = appendWireLength(dst, 1, envelope)
	dst = append(dst, protobufMagic...)
	dst = appendWireLength(dst, 1, typeMeta)
	dst = appendWireString(dst, 1, form.APIVersion)
	dst = appendWireString(dst, 2, form.Kind)
	return appendWireLength(dst, 2, size)
}

// envelopeEnd are the empty contentEncoding and contentType of an envelope.
const envelopeEnd = "\x1a\x00\x22\x00"

func appendWireLength(dst []byte, number protowire.Number, length int) []byte {
	dst = protowire.AppendTag(dst, number, protowire.BytesType)
	return protowire.AppendVarint(dst, uint64(length)) // #nosec G115 -- a length
}

// framed says whether a record is an event with this object, as appendEvent writes it.
func (protobufEncoding) framed(record []byte, ev Event) bool {
	e, err := openEnvelope(ev.Object)
	if err != nil {
		return false
	}
	var buf [256]byte
	head := appendEventHead(buf[:0], ev.Kind, ItemForm{APIVersion: e.apiVersion, Kind: e.kind}, len(e.raw))[lengthPrefix:]
	return len(record) == len(head)+len(e.raw)+len(envelopeEnd) &&
		bytes.HasPrefix(record, head) && bytes.HasSuffix(record, []byte(envelopeEnd))
}

// AtRevision implements Encoding. The length of the metadata changes too.
func (protobufEncoding) AtRevision(item []byte, revision uint64) ([]byte, error) {
	const metadataField, revisionField = 1, 6
	content, from, err := only(item, metadataField)
	if err != nil {
		return nil, err
	}
	was, at, err := only(content, revisionField)
	if err != nil {
		return nil, err
	}
	metadata := make([]byte, 0, len(content)+maxRevisionDigits)
	metadata = append(metadata, content[:at]...)
	metadata = appendWireString(metadata, revisionField, strconv.FormatUint(revision, 10))
	metadata = append(metadata, content[at+1+protowire.SizeBytes(len(was)):]...)

	out := make([]byte, 0, len(item)+2*maxRevisionDigits)
	out = append(out, item[:from]...)
	out = append(appendWireLength(out, metadataField, len(metadata)), metadata...)
	return append(out, item[from+1+protowire.SizeBytes(len(content)):]...), nil
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
