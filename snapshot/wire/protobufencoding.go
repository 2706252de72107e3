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
// (k8s.io/apimachinery, runtime.Unknown) after a magic number.
type protobufEncoding struct{}

var _ Encoding = protobufEncoding{}

// protobufMagic is the magic number before every wrapper.
const protobufMagic = "k8s\x00"

// The numbers of fields in the generated.proto files of apimachinery. The prefix of a name stands for the field's message.
const (
	metadataField  = 1 // All objects and lists have it.
	listItemsField = 2 // All lists have it.

	// metav1.ObjectMeta
	metaNameField        = 1
	metaNamespaceField   = 3
	metaUIDField         = 5 // Only FieldPaths reads the UID.
	metaRevisionField    = 6
	metaLabelsField      = 11
	metaAnnotationsField = 12

	// runtime.Unknown, the wrapper
	wrapperTypeField   = 1
	wrapperObjectField = 2

	// runtime.TypeMeta
	typeAPIVersionField = 1
	typeKindField       = 2

	// metav1.WatchEvent
	eventTypeField   = 1
	eventObjectField = 2

	// runtime.RawExtension, the object of a WatchEvent
	extensionRawField = 1
)

// wireField is one field of a message.
type wireField struct {
	begin, end int // The field is message[begin:end], with its tag.
	number     protowire.Number
	wireType   protowire.Type
	content    []byte // The value if wireType is BytesType, never nil then.
	varint     uint64 // The value if wireType is VarintType.
}

// walkFields calls visit with each field of a message, in order. It stops at the first error of visit, and returns it.
func walkFields(message []byte, visit func(wireField) error) error {
	for at := 0; at < len(message); {
		number, wireType, tagSize := protowire.ConsumeTag(message[at:])
		if tagSize < 0 {
			return errShape
		}
		f := wireField{begin: at, number: number, wireType: wireType}
		value := message[at+tagSize:]
		var valueSize int
		switch wireType {
		case protowire.BytesType:
			f.content, valueSize = protowire.ConsumeBytes(value)
		case protowire.VarintType:
			f.varint, valueSize = protowire.ConsumeVarint(value)
		default:
			valueSize = protowire.ConsumeFieldValue(number, wireType, value)
		}
		if valueSize < 0 {
			return errShape
		}
		at += tagSize + valueSize
		f.end = at
		if err := visit(f); err != nil {
			return err
		}
	}
	return nil
}

// splitMessage sets *contents[0] to the content of field 1 of a message, *contents[1] to the content of field 2, and so on.
// The content of an absent field stays nil. A field with a higher number is an error, and so is a repeated field, since a
// client could read either value. name is the name of the message in the error.
func splitMessage(message []byte, name string, contents ...*[]byte) error {
	return walkFields(message, func(f wireField) error {
		if int(f.number) > len(contents) {
			return f.unexpected(name)
		}
		return f.setOnce(contents[f.number-1], name)
	})
}

// singularField returns the field with a number in an object or in its metadata. The content is nil if there is no such
// field. A repeated field is an error.
func singularField(message []byte, number protowire.Number) (only wireField, err error) {
	err = walkFields(message, func(f wireField) error {
		switch {
		case f.number != number:
			return nil
		case f.wireType != protowire.BytesType, only.content != nil:
			return f.unexpected("an object")
		}
		only = f
		return nil
	})
	return only, err
}

// setOnce sets *content to the content of f. It returns an error if f has no content, or if *content was set before by a
// field with the same number.
func (f wireField) setOnce(content *[]byte, message string) error {
	if f.wireType != protowire.BytesType || *content != nil {
		return f.unexpected(message)
	}
	*content = f.content
	return nil
}

// isBytesField reports whether f has a number and a content.
func (f wireField) isBytesField(number protowire.Number) bool {
	return f.number == number && f.wireType == protowire.BytesType
}

// unexpected returns the error for a field that a message must not have, or not twice, or not with this type.
func (f wireField) unexpected(message string) error {
	return fmt.Errorf("%w: %s with a field %d of type %d", errShape, message, f.number, f.wireType)
}

// wrapper is a runtime.Unknown: an object or a list, with its type.
type wrapper struct {
	apiVersion, kind string
	object           []byte // This is the object or the list without its type.
}

// parseWrapper parses an object or a list with its magic number. The result uses the memory of text.
func parseWrapper(text []byte) (w wrapper, err error) {
	message, found := bytes.CutPrefix(text, []byte(protobufMagic))
	if !found {
		return w, fmt.Errorf("%w: no protobuf wrapper", errShape)
	}
	var typeMeta, contentEncoding, contentType []byte
	err = splitMessage(message, "a wrapper", &typeMeta, &w.object, &contentEncoding, &contentType)
	switch {
	case err != nil:
		return w, err
	case w.object == nil:
		return w, fmt.Errorf("%w: an empty wrapper", errShape)
	case len(contentEncoding) > 0, len(contentType) > 0:
		return w, fmt.Errorf("%w: a wrapper with a content type, which API servers leave empty", errShape)
	}
	var parsed runtime.TypeMeta
	err = parsed.Unmarshal(typeMeta)
	w.apiVersion = intern(parsed.APIVersion)
	w.kind = intern(parsed.Kind)
	return w, err
}

// ParseList implements Encoding.
func (protobufEncoding) ParseList(body []byte) (List, error) {
	w, err := parseWrapper(body)
	if err != nil {
		return List{}, err
	}
	l := List{APIVersion: w.apiVersion, kind: w.kind}
	err = walkFields(w.object, func(f wireField) (fieldErr error) {
		switch {
		case f.isBytesField(metadataField):
			l.Meta, fieldErr = protobufListMeta(f.content)
		case f.isBytesField(listItemsField):
			l.Items = append(l.Items, f.content)
		default:
			fieldErr = f.unexpected("a list")
		}
		return fieldErr
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
	}
	if parsed.ShardInfo != nil {
		m.Shards = parsed.ShardInfo.Selector
	}
	var err error
	m.Revision, err = parseRevision(parsed.ResourceVersion)
	return m, err
}

// ReadRecord implements Encoding. Each event comes after its length, which has four bytes, big endian.
func (protobufEncoding) ReadRecord(in *bufio.Reader, buf []byte) ([]byte, error) {
	var length [lengthPrefix]byte
	if _, err := io.ReadFull(in, length[:]); err != nil {
		return buf, fmt.Errorf("%w: %w", ErrEnded, err)
	}
	size := binary.BigEndian.Uint32(length[:])
	if size > maxEvent {
		return buf, Inconsistent("an event of more than %d bytes", maxEvent)
	}
	out := bytes.NewBuffer(buf) // It grows as bytes arrive, since the length may be wrong.
	if _, err := io.CopyN(out, in, int64(size)); err != nil {
		if errors.Is(err, io.EOF) { // io.EOF would mean that the stream has ended between two events.
			err = io.ErrUnexpectedEOF
		}
		return buf, fmt.Errorf("%w: %w", ErrEnded, err)
	}
	return out.Bytes(), nil
}

// parseEvent implements Encoding.
func (e protobufEncoding) parseEvent(record []byte) (ev Event, err error) {
	var eventType, extension []byte
	if err := splitMessage(record, "an event", &eventType, &extension); err != nil {
		return ev, err
	}
	if err := splitMessage(extension, "an event's object", &ev.Object); err != nil {
		return ev, err
	}
	ev.Type = intern(string(eventType))
	if ev.Type == errorType { // The object is a Status, so it has no ObjectMeta.
		return ev, nil
	}
	var w wrapper
	w, ev.Meta, err = e.unwrap(ev.Object)
	ev.Reproducible = e.isReproducible(record, ev.Type, w)
	return ev, err
}

// unwrap parses the wrapper of an object, and the object's metadata.
func (e protobufEncoding) unwrap(wrapped []byte) (wrapper, ObjectMeta, error) {
	w, err := parseWrapper(wrapped)
	if err != nil {
		return wrapper{}, ObjectMeta{}, err
	}
	m, err := e.ParseItem(w.object)
	m.APIVersion = w.apiVersion
	m.Kind = w.kind
	return w, m, err
}

// ParseItem implements Encoding. It skips most of the metadata, so it takes half as long as apimachinery's Unmarshal.
func (protobufEncoding) ParseItem(item []byte) (ObjectMeta, error) {
	metadata, err := singularField(item, metadataField)
	if err != nil {
		return ObjectMeta{}, err
	}
	return parseProtobufMeta(metadata.content)
}

// parseProtobufMeta parses a metav1.ObjectMeta.
func parseProtobufMeta(metadata []byte) (m ObjectMeta, err error) {
	var name, namespace, revision []byte
	var labels [][]byte // They are key, value, key, value and so on.
	err = walkFields(metadata, func(f wireField) error {
		switch f.number {
		case metaNameField:
			return f.setOnce(&name, "metadata")
		case metaNamespaceField:
			return f.setOnce(&namespace, "metadata")
		case metaRevisionField:
			return f.setOnce(&revision, "metadata")
		case metaLabelsField:
			key, value, entryErr := f.mapEntry()
			labels = append(labels, key, value)
			return entryErr
		case metaAnnotationsField:
			key, value, entryErr := f.mapEntry()
			if string(key) == initialEventsEndAnnotation {
				m.EndsInitial = string(value) == "true"
			}
			return entryErr
		}
		return nil
	})
	if err != nil {
		return m, err
	}
	m.Name = string(name)
	m.Namespace = intern(string(namespace))
	if m.Labels, err = MakeLabels(labels); err != nil {
		return m, err
	}
	m.Revision, err = parseRevision(string(revision))
	return m, err
}

// mapEntry parses an entry of the labels or annotations of metadata.
func (f wireField) mapEntry() (key, value []byte, err error) {
	if f.wireType != protowire.BytesType {
		return nil, nil, f.unexpected("metadata")
	}
	err = splitMessage(f.content, "a map entry", &key, &value)
	return key, value, err
}

// ItemOf implements Encoding. A list has objects without their wrappers.
func (protobufEncoding) ItemOf(_ ItemForm, inEvent []byte) ([]byte, error) {
	w, err := parseWrapper(inEvent)
	if err != nil {
		return nil, Inconsistent("an object in a watch event: %v", err)
	}
	return w.object, nil
}

// readValues implements Encoding.
func (protobufEncoding) readValues(paths *FieldPaths, item []byte, values []string) error {
	return protobufValues(paths, paths.protobuf, item, values)
}

// protobufValues sets the values of the fields that are in a message. node is the message's node in the tree of paths.
func protobufValues(paths *FieldPaths, node *pathNode[protowire.Number], message []byte, values []string) error {
	return walkFields(message, func(f wireField) error {
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
		text, err := f.scalarLike(paths.fields[child.ends[0]].Zero) // All fields that end here have the same Zero.
		if err != nil {
			return err
		}
		for _, field := range child.ends {
			values[field] = text
		}
		return nil
	})
}

// scalarLike returns the value of f as field selectors compare it. zero is the [Field.Zero] of the field, which shows the
// type: "" for a string, "false" for a boolean, "0" for a number.
func (f wireField) scalarLike(zero string) (string, error) {
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
