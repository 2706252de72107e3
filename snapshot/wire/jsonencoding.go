package wire

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// jsonEncoding is the encoding of application/json. This file reads; jsonshape.go writes.
type jsonEncoding struct{}

// ParseList implements Encoding. An unknown member of the list is an error, since no envelope could write the list.
func (jsonEncoding) ParseList(body []byte) (List, error) {
	var l List
	s := jsonScanner{text: body}
	err := s.object(func(key []byte) (memberErr error) {
		switch string(key) {
		case "apiVersion":
			l.APIVersion, memberErr = s.stringOrNull()
		case "kind":
			l.kind, memberErr = s.stringOrNull()
		case "metadata":
			l.Meta, memberErr = s.listMeta()
		case "items":
			memberErr = s.readItems(&l)
		default:
			memberErr = fmt.Errorf("%w: a list with a member %q", errMalformed, key)
		}
		return memberErr
	})
	if err == nil {
		err = s.end()
	}
	return l, err
}

// readItems reads the items of a list, an array or null, into l.
func (s *jsonScanner) readItems(l *List) error {
	l.itemsAreNull = s.skipNull()
	if l.itemsAreNull {
		return nil
	}
	return s.array(func() error {
		item, err := s.value()
		l.Items = append(l.Items, item)
		return err
	})
}

// ReadRecord implements Encoding. Each record is a line.
func (jsonEncoding) ReadRecord(in *bufio.Reader, buf []byte) ([]byte, error) {
	for {
		part, err := in.ReadSlice('\n')
		buf = append(buf, part...)
		switch {
		case err == nil: // The line has ended.
			return buf, nil
		case errors.Is(err, bufio.ErrBufferFull): // The line goes on.
			if len(buf) > maxEvent {
				return buf, Inconsistent("an event of more than %d bytes", maxEvent)
			}
		case errors.Is(err, io.EOF) && len(buf) > 0: // The stream has ended inside an event.
			return buf, fmt.Errorf("%w: %w", ErrEnded, io.ErrUnexpectedEOF)
		default:
			return buf, fmt.Errorf("%w: %w", ErrEnded, err)
		}
	}
}

// parseEvent implements Encoding.
func (e jsonEncoding) parseEvent(line []byte) (ev Event, err error) {
	s := jsonScanner{text: line}
	err = s.object(func(key []byte) (memberErr error) {
		switch {
		case string(key) == "type" && ev.Type == "":
			ev.Type, memberErr = s.stringOrNull()
		case string(key) == "object" && ev.Object == nil:
			s.skipSpace()
			begin := s.at
			ev.Meta, memberErr = s.objectMeta()
			ev.Object = line[begin:s.at]
		default:
			memberErr = fmt.Errorf("%w: an event with an unknown or a second member %q", errMalformed, key)
		}
		return memberErr
	})
	if err != nil {
		return ev, err
	}
	if ev.Object == nil {
		return ev, fmt.Errorf("%w: an event without an object", errMalformed)
	}
	ev.Reproducible = e.isReproducible(line, ev)
	return ev, s.end()
}

// ParseItem implements Encoding.
func (jsonEncoding) ParseItem(item []byte) (ObjectMeta, error) {
	s := jsonScanner{text: item}
	return s.objectMeta()
}

// ItemOf implements Encoding. It removes the eventMembers in place: it writes a brace over the comma at their end, and returns
// the object from that brace on.
//
//	{"kind":"Pod","apiVersion":"v1","metadata":…
//	                               {"metadata":…
func (jsonEncoding) ItemOf(form ItemForm, object []byte) ([]byte, error) {
	if form.eventMembers == "" {
		return object, nil
	}
	if !bytes.HasPrefix(object, []byte("{"+form.eventMembers)) {
		return nil, Inconsistent("an object in a watch event has another form than was learned")
	}
	item := object[len(form.eventMembers):]
	item[0] = '{'
	return item, nil
}

// listMeta reads the metadata of a list.
func (s *jsonScanner) listMeta() (ListMeta, error) {
	text, err := s.value()
	if err != nil {
		return ListMeta{}, err
	}
	var parsed metav1.ListMeta
	if err := utiljson.Unmarshal(text, &parsed); err != nil {
		return ListMeta{}, fmt.Errorf("%w: %w", errMalformed, err)
	}
	return newListMeta(parsed)
}

// objectMeta reads an object, and returns its metadata.
func (s *jsonScanner) objectMeta() (ObjectMeta, error) {
	var m ObjectMeta
	var seen seenKeys
	err := s.object(func(key []byte) (memberErr error) {
		switch string(key) {
		case "apiVersion":
			m.APIVersion, memberErr = s.stringOrNull()
		case "kind":
			m.Kind, memberErr = s.stringOrNull()
		case "metadata":
			memberErr = s.readMetadata(&m)
		default:
			return s.skip()
		}
		return cmp.Or(memberErr, seen.add(key))
	})
	return m, err
}

// readMetadata reads the metadata of an object into m.
func (s *jsonScanner) readMetadata(m *ObjectMeta) error {
	var seen seenKeys
	return s.object(func(key []byte) (memberErr error) {
		switch string(key) {
		case "name":
			m.Name, memberErr = s.stringOrNull()
		case "namespace":
			m.Namespace, memberErr = s.stringOrNull()
		case "resourceVersion":
			m.Revision, memberErr = s.revision()
		case "labels":
			m.Labels, memberErr = s.labels()
		default:
			return s.skip()
		}
		return cmp.Or(memberErr, seen.add(key))
	})
}

// seenKeys has those keys of a JSON object that were read and must not appear twice.
type seenKeys [][]byte

// add adds a key. It returns an error if the key was added before, since some clients would read the first value of the key,
// and others the last.
func (s *seenKeys) add(key []byte) error {
	for _, before := range *s {
		if bytes.Equal(before, key) {
			return fmt.Errorf("%w: %q appears twice", errMalformed, key)
		}
	}
	*s = append(*s, key)
	return nil
}

// labels reads the labels of an object.
func (s *jsonScanner) labels() (Labels, error) {
	if s.skipNull() {
		return Labels{}, nil
	}
	var pairs [][2][]byte
	err := s.object(func(key []byte) error {
		value, err := s.bytesOrNull()
		pairs = append(pairs, [2][]byte{key, value})
		return err
	})
	if err != nil {
		return Labels{}, err
	}
	return MakeLabels(pairs)
}

// revision reads a resourceVersion.
func (s *jsonScanner) revision() (uint64, error) {
	text, err := s.stringOrNull()
	if err != nil {
		return 0, err
	}
	return parseRevision(text)
}
