package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// protobufEncoding is the encoding of application/vnd.kubernetes.protobuf. Each object and each list is in a wrapper
// (k8s.io/apimachinery, runtime.Unknown) after a magic number. The numbers of fields are those of the generated.proto
// files of apimachinery.
type protobufEncoding struct{}

var _ Encoding = protobufEncoding{}

// protobufMagic is the magic number before every wrapper.
const protobufMagic = "k8s\x00"

// The numbers of fields, by message.
const (
	metadataField = 1 // in every type
	itemsField    = 2 // in every list

	// metav1.ObjectMeta
	nameField        = 1
	namespaceField   = 3
	uidField         = 5
	revisionField    = 6
	labelsField      = 11
	annotationsField = 12

	// runtime.Unknown, the wrapper
	typeMetaField        = 1
	objectField          = 2
	contentEncodingField = 3
	contentTypeField     = 4

	// runtime.TypeMeta
	apiVersionField = 1
	kindField       = 2

	// metav1.WatchEvent, and the runtime.RawExtension in it
	eventTypeField   = 1
	eventObjectField = 2
	rawField         = 1

	// an entry of a map
	keyField   = 1
	valueField = 2
)

// wireField is one field of a message.
type wireField struct {
	number   protowire.Number
	wireType protowire.Type
	content  []byte // if wireType is BytesType
	varint   uint64 // if wireType is VarintType
}

// wireFields calls yield with each field of a message, in order. An error of yield ends the walk and is returned.
func wireFields(message []byte, yield func(wireField) error) error {
	for len(message) > 0 {
		number, wireType, n := protowire.ConsumeTag(message)
		if n < 0 {
			return errShape
		}
		message = message[n:]
		f := wireField{number: number, wireType: wireType}
		switch wireType {
		case protowire.BytesType:
			f.content, n = protowire.ConsumeBytes(message)
		case protowire.VarintType:
			f.varint, n = protowire.ConsumeVarint(message)
		default:
			n = protowire.ConsumeFieldValue(number, wireType, message)
		}
		if n < 0 {
			return errShape
		}
		if err := yield(f); err != nil {
			return err
		}
		message = message[n:]
	}
	return nil
}

// isBytes reports whether f is the field with a number, and has a content.
func (f wireField) isBytes(number protowire.Number) bool {
	return f.number == number && f.wireType == protowire.BytesType
}

// unexpected returns an error which says that a message must not have this field.
func (f wireField) unexpected(message string) error {
	return fmt.Errorf("%w: %s with a field %d of type %d", errShape, message, f.number, f.wireType)
}

// wrapper is a runtime.Unknown: an object or a list with its type.
type wrapper struct {
	apiVersion, kind string
	object           []byte // without its type
}

// parseWrapper parses an object or a list with its magic number. The result uses the memory of text.
func parseWrapper(text []byte) (wrapper, error) {
	var w wrapper
	message, found := bytes.CutPrefix(text, []byte(protobufMagic))
	if !found {
		return w, fmt.Errorf("%w: no protobuf wrapper", errShape)
	}
	hasType := false
	err := wireFields(message, func(f wireField) error {
		switch {
		case f.isBytes(typeMetaField) && !hasType:
			hasType = true
			return w.parseType(f.content)
		case f.isBytes(objectField) && w.object == nil:
			w.object = f.content
		case (f.isBytes(contentEncodingField) || f.isBytes(contentTypeField)) && len(f.content) == 0:
			// API servers leave both empty
		default: // also for a repeated type or object
			return f.unexpected("a wrapper")
		}
		return nil
	})
	if err == nil && w.object == nil {
		err = fmt.Errorf("%w: an empty wrapper", errShape)
	}
	return w, err
}

// parseType parses a runtime.TypeMeta.
func (w *wrapper) parseType(message []byte) error {
	var t runtime.TypeMeta
	err := t.Unmarshal(message)
	w.apiVersion = intern(t.APIVersion)
	w.kind = intern(t.Kind)
	return err
}

// List implements Encoding.
func (protobufEncoding) List(body []byte) (List, error) {
	w, err := parseWrapper(body)
	if err != nil {
		return List{}, err
	}
	l := List{APIVersion: w.apiVersion, kind: w.kind}
	err = wireFields(w.object, func(f wireField) (err error) {
		switch {
		case f.isBytes(metadataField):
			l.Meta, err = protobufListMeta(f.content)
		case f.isBytes(itemsField):
			l.Items = append(l.Items, f.content)
		default:
			err = f.unexpected("a list")
		}
		return err
	})
	return l, err
}

// protobufListMeta parses a metav1.ListMeta.
func protobufListMeta(message []byte) (ListMeta, error) {
	var parsed metav1.ListMeta
	if err := parsed.Unmarshal(message); err != nil {
		return ListMeta{}, fmt.Errorf("%w: %w", errShape, err)
	}
	m := ListMeta{Continue: parsed.Continue}
	if parsed.RemainingItemCount != nil {
		m.Remaining = *parsed.RemainingItemCount
		m.HasRemaining = true
	}
	if parsed.ShardInfo != nil {
		m.Shards = parsed.ShardInfo.Selector
	}
	var err error
	m.Revision, err = parseRevision(parsed.ResourceVersion)
	return m, err
}

// Record implements Encoding: the length of an event comes before the event, in four bytes, big endian.
func (protobufEncoding) Record(in *bufio.Reader, buf []byte) ([]byte, error) {
	var length [lengthPrefix]byte
	if _, err := io.ReadFull(in, length[:]); err != nil {
		return buf, fmt.Errorf("%w: %w", ErrEnded, err)
	}
	size := binary.BigEndian.Uint32(length[:])
	if size > maxEvent {
		return buf, Inconsistent("an event of more than %d bytes", maxEvent)
	}
	// The length may be wrong, so memory is allocated as bytes arrive.
	out := bytes.NewBuffer(buf)
	if _, err := io.CopyN(out, in, int64(size)); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return buf, fmt.Errorf("%w: %w", ErrEnded, err)
	}
	return out.Bytes(), nil
}

// Event implements Encoding.
func (e protobufEncoding) Event(record []byte) (Event, error) {
	var ev Event
	err := wireFields(record, func(f wireField) error {
		switch {
		case f.isBytes(eventTypeField) && ev.Type == "":
			ev.Type = intern(string(f.content))
		case f.isBytes(eventObjectField) && ev.Object == nil:
			return wireFields(f.content, func(f wireField) error { // runtime.RawExtension
				if !f.isBytes(rawField) {
					return f.unexpected("an event's object")
				}
				ev.Object = f.content
				return nil
			})
		default:
			return f.unexpected("an event")
		}
		return nil
	})
	if err == nil {
		ev.Meta, err = e.meta(ev.Object)
	}
	if err != nil {
		return Event{}, Inconsistent("an event cannot be decoded: %v", err)
	}
	if ev.Type == errorType {
		return Event{}, eventError(ev.Object)
	}
	ev.Reproducible = e.isReproducible(record, ev)
	ev.Object = bytes.Clone(ev.Object) // the next event is read into the memory of record
	return ev, ev.check()
}

// meta reads the metadata of an object in its wrapper.
func (e protobufEncoding) meta(wrapped []byte) (ObjectMeta, error) {
	w, err := parseWrapper(wrapped)
	if err != nil {
		return ObjectMeta{}, err
	}
	m, err := e.Item(w.object)
	m.APIVersion = w.apiVersion
	m.Kind = w.kind
	return m, err
}

// Item implements Encoding. It skips most of the metadata, so it takes half as long as apimachinery's Unmarshal.
func (protobufEncoding) Item(item []byte) (ObjectMeta, error) {
	var m ObjectMeta
	seen := false
	err := wireFields(item, func(f wireField) error {
		if f.number != metadataField {
			return nil
		}
		if !f.isBytes(metadataField) || seen {
			return f.unexpected("an object")
		}
		seen = true
		return m.parseProtobuf(f.content)
	})
	return m, err
}

// parseProtobuf parses a metav1.ObjectMeta.
func (m *ObjectMeta) parseProtobuf(metadata []byte) error {
	var labels [][]byte // key, value, key, value
	seen := uint64(0)   // see uniqueContent
	err := wireFields(metadata, func(f wireField) (err error) {
		var content, key, value []byte
		switch f.number {
		case nameField:
			content, err = f.uniqueContent(&seen)
			m.Name = string(content)
		case namespaceField:
			content, err = f.uniqueContent(&seen)
			m.Namespace = intern(string(content))
		case revisionField:
			if content, err = f.uniqueContent(&seen); err == nil {
				m.Revision, err = parseRevision(string(content))
			}
		case labelsField:
			key, value, err = f.mapEntry()
			labels = append(labels, key, value)
		case annotationsField:
			key, value, err = f.mapEntry()
			if string(key) == initialEventsEnd {
				m.EndsInitial = string(value) == "true"
			}
		}
		return err
	})
	if err == nil {
		m.Labels, err = MakeLabels(labels)
	}
	return err
}

// uniqueContent returns the content of a field of metadata that must not be repeated. seen has the bits of the numbers of
// such fields that were read.
func (f wireField) uniqueContent(seen *uint64) ([]byte, error) {
	if f.wireType != protowire.BytesType || *seen&(1<<f.number) != 0 {
		return nil, f.unexpected("metadata")
	}
	*seen |= 1 << f.number
	return f.content, nil
}

// mapEntry parses a field of metadata that is an entry of a map of strings.
func (f wireField) mapEntry() (key, value []byte, err error) {
	if f.wireType != protowire.BytesType {
		return nil, nil, f.unexpected("metadata")
	}
	err = wireFields(f.content, func(f wireField) error {
		switch {
		case f.isBytes(keyField):
			key = f.content
		case f.isBytes(valueField):
			value = f.content
		default:
			return f.unexpected("a map")
		}
		return nil
	})
	return key, value, err
}

// ItemOf implements Encoding: a list has objects without their wrappers.
func (protobufEncoding) ItemOf(_ ItemForm, inEvent []byte) ([]byte, error) {
	w, err := parseWrapper(inEvent)
	if err != nil {
		return nil, Inconsistent("an object in a watch event: %v", err)
	}
	return w.object, nil
}

// Values implements Encoding.
func (protobufEncoding) Values(paths *FieldPaths, item []byte) ([]string, error) {
	if len(paths.fields) == 0 {
		return nil, nil
	}
	values := paths.zeros()
	return values, protobufValues(paths, paths.protobuf, item, values)
}

// protobufValues reads a message, and sets the values of the fields in it. node is the message's node in the tree of paths.
func protobufValues(paths *FieldPaths, node *pathNode[protowire.Number], message []byte, values []string) error {
	return wireFields(message, func(f wireField) error {
		child := node.children[f.number]
		if child == nil {
			return nil
		}
		if !child.isEnd() {
			if f.wireType != protowire.BytesType {
				return f.unexpected("a message on the path to a selectable field")
			}
			return protobufValues(paths, child, f.content, values)
		}
		text, err := f.scalar(paths.fields[child.ends[0]].Zero) // all that end here are of one type
		for _, field := range child.ends {
			values[field] = text
		}
		return err
	})
}

// scalar returns the field's value as field selectors compare it. zero is the [Field.Zero], which tells the type: "" of a
// string, "false" of a boolean, "0" of a number.
func (f wireField) scalar(zero string) (string, error) {
	switch {
	case zero == "" && f.wireType == protowire.BytesType:
		return intern(string(f.content)), nil
	case zero == "false" && f.wireType == protowire.VarintType:
		return strconv.FormatBool(f.varint != 0), nil
	case zero == "0" && f.wireType == protowire.VarintType:
		return intern(strconv.FormatInt(int64(f.varint), 10)), nil // #nosec G115 -- an int on the wire
	}
	return "", f.unexpected("a selectable field")
}
