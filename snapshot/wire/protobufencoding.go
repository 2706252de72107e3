package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// protobufEncoding is the encoding of application/vnd.kubernetes.protobuf. A list, and an object in an event, is inside a
// wrapper (k8s.io/apimachinery, runtime.Unknown), which follows a magic number. The items of a list have no wrappers of their
// own. This file reads; protobufshape.go writes.
type protobufEncoding struct{}

// protobufMagic is the magic number before every wrapper.
const protobufMagic = "k8s\x00"

// wrapper is a runtime.Unknown: an object or a list, with its type.
type wrapper struct {
	apiVersion, kind string
	object           []byte // The object or the list, without its type.
}

// parseWrapper parses the wrapper of an object or a list, with its magic number. The result uses the memory of encoded.
func parseWrapper(encoded []byte) (w wrapper, err error) {
	message, found := bytes.CutPrefix(encoded, []byte(protobufMagic))
	if !found {
		return w, fmt.Errorf("%w: no protobuf wrapper", errMalformed)
	}
	var typeMeta, contentEncoding, contentType []byte
	err = splitMessage(message, "a wrapper", &typeMeta, &w.object, &contentEncoding, &contentType)
	switch {
	case err != nil:
		return w, err
	case w.object == nil:
		return w, fmt.Errorf("%w: an empty wrapper", errMalformed)
	case len(contentEncoding) > 0, len(contentType) > 0:
		return w, fmt.Errorf("%w: a wrapper with a content type, which API servers leave empty", errMalformed)
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
		case f.wireType != protowire.BytesType || f.number > listItemsField:
			return f.unexpected("a list")
		case f.number == metadataField:
			l.Meta, fieldErr = parseProtobufListMeta(f.content)
		default: // listItemsField
			l.Items = append(l.Items, f.content)
		}
		return fieldErr
	})
	return l, err
}

// parseProtobufListMeta parses a metav1.ListMeta.
func parseProtobufListMeta(metadata []byte) (ListMeta, error) {
	var parsed metav1.ListMeta
	if err := parsed.Unmarshal(metadata); err != nil {
		return ListMeta{}, fmt.Errorf("%w: %w", errMalformed, err)
	}
	return newListMeta(parsed)
}

// ReadRecord implements Encoding. Each record comes after its length, a big-endian number of four bytes.
func (protobufEncoding) ReadRecord(in *bufio.Reader, buf []byte) ([]byte, error) {
	var length [lengthPrefix]byte
	if _, err := io.ReadFull(in, length[:]); err != nil {
		return buf, fmt.Errorf("%w: %w", ErrEnded, err)
	}
	size := binary.BigEndian.Uint32(length[:])
	if size > maxEvent {
		return buf, Inconsistent("an event of more than %d bytes", maxEvent)
	}
	record := bytes.NewBuffer(buf) // It grows as bytes arrive, since the length may be wrong.
	if _, err := io.CopyN(record, in, int64(size)); err != nil {
		if errors.Is(err, io.EOF) { // The stream has ended inside an event.
			err = io.ErrUnexpectedEOF
		}
		return buf, fmt.Errorf("%w: %w", ErrEnded, err)
	}
	return record.Bytes(), nil
}

// parseEvent implements Encoding. A record is a metav1.WatchEvent: a type, and a RawExtension whose only field is the object in
// its wrapper.
func (e protobufEncoding) parseEvent(record []byte) (ev Event, err error) {
	var eventType, extension []byte
	if err := splitMessage(record, "an event", &eventType, &extension); err != nil {
		return ev, err
	}
	if err := splitMessage(extension, "an event's object", &ev.Object); err != nil {
		return ev, err
	}
	ev.Type = intern(string(eventType))
	if ev.Type == errorType { // The object is a Status, which has no ObjectMeta.
		return ev, nil
	}
	w, err := parseWrapper(ev.Object)
	if err != nil {
		return ev, err
	}
	ev.Meta, err = e.ParseItem(w.object)
	ev.Meta.APIVersion, ev.Meta.Kind = w.apiVersion, w.kind
	ev.Reproducible = e.isReproducible(record, ev.Type, w)
	return ev, err
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
	var labels [][2][]byte
	err = walkFields(metadata, func(f wireField) error {
		switch f.number {
		case metaNameField:
			return f.setOnce(&name, "metadata")
		case metaNamespaceField:
			return f.setOnce(&namespace, "metadata")
		case metaRevisionField:
			return f.setOnce(&revision, "metadata")
		case metaLabelsField:
			label, labelErr := f.parseLabel()
			labels = append(labels, label)
			return labelErr
		}
		return nil
	})
	if err != nil {
		return m, err
	}
	m.Name = string(name)
	m.Namespace = intern(string(namespace))
	m.Labels, err = MakeLabels(labels)
	if err != nil {
		return m, err
	}
	m.Revision, err = parseRevision(string(revision))
	return m, err
}

// ItemOf implements Encoding. An item has no wrapper.
func (protobufEncoding) ItemOf(_ ItemForm, object []byte) ([]byte, error) {
	w, err := parseWrapper(object)
	if err != nil {
		return nil, Inconsistent("an object in a watch event: %v", err)
	}
	return w.object, nil
}
