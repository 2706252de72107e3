package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// jsonEncoding takes apart what is written as application/json.
type jsonEncoding struct{}

var _ Encoding = jsonEncoding{}

// List implements Encoding. Members it does not know are an error: an envelope that was learned
// from such a list could not be right.
func (jsonEncoding) List(body []byte) (List, error) {
	var l List
	s := jsonScanner{text: body}
	err := s.object(func(key []byte) (err error) {
		switch string(key) {
		case "apiVersion":
			l.APIVersion, err = s.string()
		case "kind":
			l.kind, err = s.string()
		case "metadata":
			l.Meta, err = s.listMeta()
		case "items":
			if l.itemsNull = s.null(); l.itemsNull {
				return nil
			}
			return s.array(func() error {
				item, err := s.value()
				l.Items = append(l.Items, item)
				return err
			})
		default:
			err = fmt.Errorf("%w: a list with a member %q", errShape, key)
		}
		return err
	})
	if err == nil {
		err = s.end()
	}
	return l, err
}

// listMeta reads the metadata of a list. Members that it does not know are an error.
func (s *jsonScanner) listMeta() (ListMeta, error) {
	var m ListMeta
	err := s.object(func(key []byte) (err error) {
		switch string(key) {
		case "resourceVersion":
			m.Revision, err = s.revision()
		case "continue":
			m.Continue, err = s.string()
		case "remainingItemCount":
			m.HasRemaining = true
			m.Remaining, err = s.integer()
		case "shardInfo":
			err = s.object(func([]byte) (err error) {
				m.Shards, err = s.string() // if there is more, the list is not written with the same bytes
				return err
			})
		default:
			err = fmt.Errorf("%w: list metadata with a member %q", errShape, key)
		}
		return err
	})
	return m, err
}

// integer reads a number without a fraction.
func (s *jsonScanner) integer() (int64, error) {
	value, err := s.value()
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(value), 10, 64)
}

// Record implements Encoding: an event is a line.
func (jsonEncoding) Record(in *bufio.Reader, buf []byte) ([]byte, error) {
	for {
		part, err := in.ReadSlice('\n')
		buf = append(buf, part...)
		if err == nil {
			return buf, nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			if err == io.EOF && len(buf) > 0 {
				err = io.ErrUnexpectedEOF
			}
			// A line that was cut is not an event, but not an inconsistency either.
			return buf, fmt.Errorf("%w: %w", ErrEnded, err)
		}
		if len(buf) > maxEvent {
			return buf, Inconsistent("an event of more than %d bytes", maxEvent)
		}
	}
}

// Event implements Encoding. A complete line that is not an event is an [InconsistencyError]; an
// ERROR event becomes an [AnswerError].
func (jsonEncoding) Event(line []byte) (Event, error) {
	var ev Event
	s := jsonScanner{text: line}
	err := s.object(func(key []byte) (err error) {
		switch {
		case string(key) == "type" && ev.Kind == "":
			ev.Kind, err = s.string()
		case string(key) == "object" && ev.Object == nil:
			s.next()
			begin := s.at
			ev.Meta, err = s.meta()
			ev.Object = line[begin:s.at]
		default:
			err = fmt.Errorf("%w: an event with a member %q", errShape, key)
		}
		return err
	})
	switch {
	case err == nil && ev.Object == nil:
		err = errShape
	case err == nil:
		err = s.end()
	}
	if err != nil {
		return Event{}, Inconsistent("an event cannot be decoded: %v", err)
	}
	if ev.Kind == "ERROR" {
		var status struct{ Message string }
		if json.Unmarshal(ev.Object, &status) == nil {
			ev.Meta.message = status.Message
		}
		return Event{}, ev.Meta.asError()
	}
	ev.Reproducible = jsonEncoding{}.isReproducible(line, ev)
	// The line's memory is used again for the next.
	ev.Object = bytes.Clone(ev.Object)
	return ev, ev.check()
}

// asError returns the error for a Status, with which the upstream says why a stream ends.
func (m ObjectMeta) asError() error {
	answer := &AnswerError{Code: m.code, Message: m.message}
	if answer.Code == 0 {
		answer.Code = http.StatusInternalServerError
	}
	return fmt.Errorf("the watch ended with an error: %w", answer)
}

// Item implements Encoding.
func (jsonEncoding) Item(item []byte) (ObjectMeta, error) {
	s := jsonScanner{text: item}
	return s.meta()
}

// Cut implements Encoding.
func (jsonEncoding) Cut(form ItemForm, inEvent []byte) ([]byte, error) {
	if form.lead == "" {
		return inEvent, nil
	}
	if !bytes.HasPrefix(inEvent, []byte("{"+form.lead)) {
		return nil, Inconsistent("an object in a watch event has another form than was learned")
	}
	inEvent = inEvent[len(form.lead):]
	inEvent[0] = '{'
	return inEvent, nil
}

// meta reads an object for its metadata. A member that appears twice is refused, since it is not clear which one
// counts.
func (s *jsonScanner) meta() (ObjectMeta, error) {
	var m ObjectMeta
	var seen seenOnce
	err := s.object(func(key []byte) (err error) {
		switch string(key) {
		case "apiVersion":
			m.APIVersion, err = s.string()
		case "kind":
			m.Kind, err = s.string()
		case "code": // absent from most objects, free to be anything in a custom resource
			value, err := s.value()
			m.code, _ = strconv.Atoi(string(value))
			return err
		case "metadata":
			err = s.metadata(&m)
		default:
			_, err = s.value()
			return err
		}
		return seen.check(key, err)
	})
	return m, err
}

// metadata reads the metadata of an object.
func (s *jsonScanner) metadata(m *ObjectMeta) error {
	var seen seenOnce
	return s.object(func(key []byte) (err error) {
		switch string(key) {
		case "name":
			m.Name, err = s.string()
		case "namespace":
			m.Namespace, err = s.string()
		case "resourceVersion":
			m.Revision, err = s.revision()
		case "labels":
			m.Labels, err = s.labels()
		case "annotations":
			m.EndsInitial, err = s.endsInitial()
		default:
			_, err = s.value()
			return err
		}
		return seen.check(key, err)
	})
}

// labels reads the labels of an object.
func (s *jsonScanner) labels() (Labels, error) {
	if s.null() {
		return Labels{}, nil
	}
	var pairs [][]byte
	err := s.object(func(key []byte) error {
		text, err := s.textBytes()
		pairs = append(pairs, key, text)
		return err
	})
	if err != nil {
		return Labels{}, err
	}
	return MakeLabels(pairs)
}

// endsInitial reads annotations, and reports whether they are those of the bookmark that ends initial events.
func (s *jsonScanner) endsInitial() (bool, error) {
	if s.null() {
		return false, nil
	}
	ends := false
	err := s.object(func(key []byte) error {
		value, err := s.value()
		if string(key) == initialEventsEnd {
			ends = string(value) == `"true"`
		}
		return err
	})
	return ends, err
}

// initialEventsEnd is metav1.InitialEventsAnnotationKey.
const initialEventsEnd = "k8s.io/initial-events-end"

// revision reads a resourceVersion.
func (s *jsonScanner) revision() (uint64, error) {
	text, err := s.string()
	if err != nil {
		return 0, err
	}
	return parseRevision(text)
}

// parseRevision reads a resourceVersion. An empty one is 0.
func parseRevision(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	rev, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%w: resourceVersion %q is not a number", errShape, text)
	}
	return rev, nil
}

// seenOnce has the keys that were read of those that may be there once.
type seenOnce [][]byte

// check returns err, or an error if the key was read before.
func (s *seenOnce) check(key []byte, err error) error {
	if err != nil {
		return err
	}
	for _, before := range *s {
		if bytes.Equal(before, key) {
			return fmt.Errorf("%w: %q appears twice", errShape, key)
		}
	}
	*s = append(*s, key)
	return nil
}

// Values implements Encoding.
func (jsonEncoding) Values(paths *FieldPaths, item []byte) ([]string, error) {
	if len(paths.fields) == 0 {
		return nil, nil
	}
	values := paths.zeros()
	s := jsonScanner{text: item}
	return values, s.fields(paths.json, values)
}

// fields reads the values of the fields whose paths go on from a node, which stands for this object.
func (s *jsonScanner) fields(node *pathNode[string], values []string) error {
	return s.object(func(key []byte) error {
		child := node.children[string(key)]
		switch {
		case s.null():
			return nil
		case child != nil && len(child.fields) > 0:
			text, err := s.scalar()
			for _, field := range child.fields {
				values[field] = text
			}
			return err
		case child != nil && s.next() == '{':
			return s.fields(child, values)
		}
		_, err := s.value() // no such path in this object
		return err
	})
}

// scalar reads a value, and returns it as a field selector sees it: the text of a string, true, false, or a number as
// it is written.
func (s *jsonScanner) scalar() (string, error) {
	switch s.next() {
	case '"':
		text, err := s.string()
		return intern(text), err
	case '{', '[':
		return "", fmt.Errorf("%w: a selectable field holds no single value", errShape)
	}
	value, err := s.value()
	return intern(string(value)), err
}
