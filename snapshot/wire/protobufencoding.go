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

// The numbers of fields. The prefix of a name says the message that has the field.
const (
	metadataField  = 1 // The field is in every type.
	listItemsField = 2 // The field is in every list.

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
	number   protowire.Number
	wireType protowire.Type
	content  []byte // It is not nil if wireType is BytesType.
	varint   uint64 // It is set if wireType is VarintType.
}

// walkFields calls visit with each field of a message, in order. It ends with the first error of visit, and returns that.
func walkFields(message []byte, visit func(wireField) error) error {
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
		if err := visit(f); err != nil {
			return err
		}
		message = message[n:]
	}
	return nil
}

// splitMessage sets *contents[0] to the content of field 1 of a message, *contents[1] to the content of field 2, and so on.
// Each field may be absent: its content is nil. Other fields are an error, and so are repeated ones, since a client could
// read either value. name is the name of the message in the error.
func splitMessage(message []byte, name string, contents ...*[]byte) error {
	return walkFields(message, func(f wireField) error {
		if int(f.number) > len(contents) {
			return f.unexpected(name)
		}
		return f.setOnce(contents[f.number-1], name)
	})
}

// singularField returns the content of the field of a message that has a number; nil if there is none. A repeated field is
// an error. name is the name of the message in the error.
func singularField(message []byte, name string, number protowire.Number) (content []byte, err error) {
	err = walkFields(message, func(f wireField) error {
		if f.number != number {
			return nil
		}
		return f.setOnce(&content, name)
	})
	return content, err
}

// setOnce sets *content to the content of f. It is an error if *content is not nil, because of an earlier field with the same
// number, or if f has no content.
func (f wireField) setOnce(content *[]byte, message string) error {
	if f.wireType != protowire.BytesType || *content != nil {
		return f.unexpected(message)
	}
	*content = f.content
	return nil
}

// isBytesField reports whether f is the field with a number, and has a content.
func (f wireField) isBytesField(number protowire.Number) bool {
	return f.number == number && f.wireType == protowire.BytesType
}

// unexpected returns an error which says that a message must not have this field, or not once more.
func (f wireField) unexpected(message string) error {
	return fmt.Errorf("%w: %s with a field %d of type %d", errShape, message, f.number, f.wireType)
}

// wrapper is a runtime.Unknown: an object or a list with its type.
type wrapper struct {
	apiVersion, kind string
	object           []byte // without its type
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
		m.HasRemaining = true
	}
	if parsed.ShardInfo != nil {
		m.Shards = parsed.ShardInfo.Selector
	}
	var err error
	m.Revision, err = parseRevision(parsed.ResourceVersion)
	return m, err
}

// ReadRecord implements Encoding: the length of an event comes before the event, in four bytes, big endian.
func (protobufEncoding) ReadRecord(in *bufio.Reader, buf []byte) ([]byte, error) {
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
		if errors.Is(err, io.EOF) { // With io.EOF, the stream would seem to have ended between two events.
			err = io.ErrUnexpectedEOF
		}
		return buf, fmt.Errorf("%w: %w", ErrEnded, err)
	}
	return out.Bytes(), nil
}

// ParseEvent implements Encoding.
func (e protobufEncoding) ParseEvent(record []byte) (Event, error) {
	var eventType, extension []byte
	var ev Event
	err := splitMessage(record, "an event", &eventType, &extension)
	if err == nil {
		err = splitMessage(extension, "an event's object", &ev.Object)
	}
	ev.Type = intern(string(eventType))
	if err == nil && ev.Type == errorType { // The object is a Status, so it has no ObjectMeta.
		return Event{}, eventError(ev.Object)
	}
	var w wrapper
	if err == nil {
		w, ev.Meta, err = e.unwrap(ev.Object)
	}
	if err != nil {
		return Event{}, Inconsistent("an event cannot be decoded: %v", err)
	}
	ev.Reproducible = e.isReproducible(record, ev.Type, w)
	// The next event is read into the memory of record. Meta has copies already.
	ev.Object = bytes.Clone(ev.Object)
	return ev, ev.check()
}

// unwrap reads the wrapper of an object, and the object's metadata.
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
	metadata, err := singularField(item, "an object", metadataField)
	if err != nil {
		return ObjectMeta{}, err
	}
	return parseProtobufMeta(metadata)
}

// parseProtobufMeta parses a metav1.ObjectMeta.
func parseProtobufMeta(metadata []byte) (m ObjectMeta, err error) {
	var name, namespace, revision []byte
	var labels [][]byte // The labels are key, value, key, value.
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

// mapEntry parses a field of metadata that is an entry of a map of strings.
func (f wireField) mapEntry() (key, value []byte, err error) {
	if f.wireType != protowire.BytesType {
		return nil, nil, f.unexpected("metadata")
	}
	err = splitMessage(f.content, "a map entry", &key, &value)
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

// ReadValues implements Encoding.
func (protobufEncoding) ReadValues(paths *FieldPaths, item []byte) ([]string, error) {
	if len(paths.fields) == 0 {
		return nil, nil
	}
	values := paths.zeros()
	return values, protobufValues(paths, paths.protobuf, item, values)
}

// protobufValues reads a message, and sets the values of the fields in it. node is the message's node in the tree of paths.
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
		text, err := f.scalarLike(paths.fields[child.ends[0]].Zero) // All fields that end here have one type.
		if err != nil {
			return err
		}
		for _, field := range child.ends {
			values[field] = text
		}
		return nil
	})
}

// scalarLike returns the value of f as field selectors compare it. The value must have the type of zero, which is a
// [Field.Zero]: "" for a string, "false" for a boolean, "0" for a number.
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
