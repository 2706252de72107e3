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

// protobufEncoding takes apart what is written as application/vnd.kubernetes.protobuf: each
// object in a wrapper (k8s.io/apimachinery, runtime.Unknown) behind a magic number. The field
// numbers are those of the generated.proto files of apimachinery; every kind has its metadata in
// field 1, and every list its items in field 2.
type protobufEncoding struct{}

var _ Encoding = protobufEncoding{}

// protobufMagic is what every wrapper begins with.
const protobufMagic = "k8s\x00"

// wireField is one field of a message: the content of a length-delimited one, or a number.
type wireField struct {
	number  protowire.Number
	kind    protowire.Type
	content []byte
	varint  uint64
}

// wireFields calls yield with each field of a message, in order. An error of yield ends the walk and is returned.
func wireFields(message []byte, yield func(wireField) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return errShape
		}
		message = message[n:]
		f := wireField{number: number, kind: kind}
		switch kind {
		case protowire.BytesType:
			f.content, n = protowire.ConsumeBytes(message)
		case protowire.VarintType:
			f.varint, n = protowire.ConsumeVarint(message)
		default:
			n = protowire.ConsumeFieldValue(number, kind, message)
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

// unknown returns an error which says that a message of some kind must not have this field.
func (f wireField) unknown(where string) error {
	return fmt.Errorf("%w: %s with a field %d of type %d", errShape, where, f.number, f.kind)
}

// wrapper is a runtime.Unknown: an object with its type.
type wrapper struct {
	apiVersion, kind string
	object           []byte // without its type
}

// parseWrapper parses what the upstream sends for one object or list.
func parseWrapper(text []byte) (wrapper, error) {
	var w wrapper
	message, found := bytes.CutPrefix(text, []byte(protobufMagic))
	if !found {
		return w, fmt.Errorf("%w: no protobuf wrapper", errShape)
	}
	err := wireFields(message, func(f wireField) error {
		switch {
		case f.number == 1 && f.kind == protowire.BytesType:
			return w.parseType(f.content)
		case f.number == 2 && f.kind == protowire.BytesType && w.object == nil:
			w.object = f.content
		case (f.number == 3 || f.number == 4) && f.kind == protowire.BytesType && len(f.content) == 0:
			// contentEncoding and contentType: empty in all that an API server writes
		default:
			return f.unknown("a wrapper")
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
		case f.number == 1 && f.kind == protowire.BytesType:
			l.Meta, err = protobufListMeta(f.content)
		case f.number == 2 && f.kind == protowire.BytesType:
			l.Items = append(l.Items, f.content)
		default:
			err = f.unknown("a list")
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

// Record implements Encoding: an event is preceded by its length, four bytes, big endian.
func (protobufEncoding) Record(in *bufio.Reader, buf []byte) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return buf, fmt.Errorf("%w: %w", ErrEnded, err)
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > maxEvent {
		return buf, Inconsistent("an event of more than %d bytes", maxEvent)
	}
	// The length is only what the upstream claims, so memory is allocated as bytes arrive.
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
func (protobufEncoding) Event(record []byte) (Event, error) {
	var ev Event
	err := wireFields(record, func(f wireField) error {
		switch {
		case f.number == 1 && f.kind == protowire.BytesType && ev.Kind == "":
			ev.Kind = intern(string(f.content))
		case f.number == 2 && f.kind == protowire.BytesType && ev.Object == nil:
			return wireFields(f.content, func(f wireField) error { // runtime.RawExtension
				if f.number != 1 || f.kind != protowire.BytesType {
					return f.unknown("an event's object")
				}
				ev.Object = f.content
				return nil
			})
		default:
			return f.unknown("an event")
		}
		return nil
	})
	if err == nil {
		ev.Meta, err = protobufMeta(ev.Object)
	}
	if err != nil {
		return Event{}, Inconsistent("an event cannot be decoded: %v", err)
	}
	if ev.Kind == "ERROR" {
		return Event{}, ev.Meta.asError()
	}
	ev.Reproducible = protobufEncoding{}.isReproducible(record, ev)
	// The record's memory is used again for the next.
	ev.Object = bytes.Clone(ev.Object)
	return ev, ev.check()
}

// protobufMeta reads the metadata of an object in its wrapper. Of a Status it reads the code and the message.
func protobufMeta(text []byte) (ObjectMeta, error) {
	w, err := parseWrapper(text)
	if err != nil {
		return ObjectMeta{}, err
	}
	if w.kind == "Status" && w.apiVersion == "v1" {
		return w.status()
	}
	m, err := protobufEncoding{}.Item(w.object)
	m.APIVersion = w.apiVersion
	m.Kind = w.kind
	return m, err
}

// status reads the code and the message of a Status.
func (w wrapper) status() (ObjectMeta, error) {
	var s metav1.Status
	err := s.Unmarshal(w.object)
	return ObjectMeta{APIVersion: w.apiVersion, Kind: w.kind, code: int(s.Code), message: s.Message}, err
}

// Item implements Encoding. A field that appears twice is refused, since it is not clear which one
// counts.
func (protobufEncoding) Item(item []byte) (ObjectMeta, error) {
	var m ObjectMeta
	seen := false
	err := wireFields(item, func(f wireField) error {
		if f.number != 1 {
			return nil
		}
		if f.kind != protowire.BytesType || seen {
			return f.unknown("an object")
		}
		seen = true
		return m.parseProtobuf(f.content)
	})
	return m, err
}

// parseProtobuf parses a metav1.ObjectMeta.
func (m *ObjectMeta) parseProtobuf(metadata []byte) error {
	var pairs [][]byte // the keys and the values of the labels, in turn
	seen := uint64(0)  // a bit for the number of each field that was read of those that may be there once
	err := wireFields(metadata, func(f wireField) (err error) {
		switch f.number {
		case 1, 3, 6:
			if f.kind != protowire.BytesType || seen&(1<<f.number) != 0 {
				return f.unknown("metadata")
			}
			seen |= 1 << f.number
		case 11, 12:
			if f.kind != protowire.BytesType {
				return f.unknown("metadata")
			}
		}
		switch f.number {
		case 1:
			m.Name = string(f.content)
		case 3:
			m.Namespace = intern(string(f.content))
		case 6:
			m.Revision, err = parseRevision(string(f.content))
		case 11:
			var key, value []byte
			key, value, err = wirePair(f.content)
			pairs = append(pairs, key, value)
		case 12:
			var key, value []byte
			key, value, err = wirePair(f.content)
			m.EndsInitial = m.EndsInitial || string(key) == initialEventsEnd && string(value) == "true"
		}
		return err
	})
	if err == nil {
		m.Labels, err = MakeLabels(pairs)
	}
	return err
}

// wirePair reads an entry of a map of strings.
func wirePair(entry []byte) (key, value []byte, err error) {
	err = wireFields(entry, func(f wireField) error {
		switch {
		case f.number == 1 && f.kind == protowire.BytesType:
			key = f.content
		case f.number == 2 && f.kind == protowire.BytesType:
			value = f.content
		default:
			return f.unknown("a map")
		}
		return nil
	})
	return key, value, err
}

// Cut implements Encoding: a list holds what is in the wrapper.
func (protobufEncoding) Cut(_ ItemForm, inEvent []byte) ([]byte, error) {
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

// protobufValues reads the values of the fields whose paths go on from a node, which stands for this message.
func protobufValues(paths *FieldPaths, node *pathNode[protowire.Number], message []byte, values []string) error {
	return wireFields(message, func(f wireField) error {
		child := node.children[f.number]
		switch {
		case child == nil: // no path has this field
			return nil
		case len(child.fields) == 0:
			if f.kind != protowire.BytesType {
				return f.unknown("a message on the way to a selectable field")
			}
			return protobufValues(paths, child, f.content, values)
		}
		text, err := f.scalar(paths.fields[child.fields[0]].Zero)
		for _, field := range child.fields {
			values[field] = text
		}
		return err
	})
}

// scalar returns a value as a field selector sees it. zero is [Field.Zero], which tells the type.
func (f wireField) scalar(zero string) (string, error) {
	switch {
	case zero == "" && f.kind == protowire.BytesType:
		return intern(string(f.content)), nil
	case zero == "false" && f.kind == protowire.VarintType:
		return strconv.FormatBool(f.varint != 0), nil
	case zero == "0" && f.kind == protowire.VarintType:
		return intern(strconv.FormatInt(int64(f.varint), 10)), nil // #nosec G115 -- an int on the wire
	}
	return "", f.unknown("a selectable field")
}
