package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
)

// jsonEncoding takes apart what is written as application/json.
type jsonEncoding struct{}

var _ Encoding = jsonEncoding{}

// List implements Encoding. Members it does not know are an error: an envelope that was learned
// from such a list could not be right.
func (jsonEncoding) List(body []byte) (List, error) {
	var l List
	if !validJSON(body) {
		return l, fmt.Errorf("%w: the list is not valid JSON", errShape)
	}
	err := members(body, func(key string, value []byte) (err error) {
		switch key {
		case "apiVersion":
			l.APIVersion, err = unquote(value)
		case "kind":
			l.kind, err = unquote(value)
		case "metadata":
			l.Meta, err = jsonListMeta(value)
		case "items":
			if string(value) == "null" {
				l.itemsNull = true
				return nil
			}
			return elements(value, func(item []byte) error {
				l.Items = append(l.Items, item)
				return nil
			})
		default:
			err = fmt.Errorf("%w: a list with a member %q", errShape, key)
		}
		return err
	})
	return l, err
}

func jsonListMeta(metadata []byte) (ListMeta, error) {
	var m ListMeta
	err := members(metadata, func(key string, value []byte) (err error) {
		switch key {
		case "resourceVersion":
			m.Revision, err = jsonRevision(value)
		case "continue":
			m.Continue, err = unquote(value)
		case "remainingItemCount":
			m.HasRemaining = true
			m.Remaining, err = strconv.ParseInt(string(value), 10, 64)
		case "shardInfo":
			err = members(value, func(_ string, value []byte) (err error) {
				m.Shards, err = unquote(value) // if there is more, the list is not written with the same bytes
				return err
			})
		default:
			err = fmt.Errorf("%w: list metadata with a member %q", errShape, key)
		}
		return err
	})
	return m, err
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
	if !validJSON(line) {
		return Event{}, Inconsistent("an event is not valid JSON")
	}
	var ev Event
	err := members(line, func(key string, value []byte) (err error) {
		switch {
		case key == "type" && ev.Kind == "":
			ev.Kind, err = unquote(value)
		case key == "object" && ev.Object == nil:
			ev.Object = value
		default:
			err = fmt.Errorf("%w: an event with a member %q", errShape, key)
		}
		return err
	})
	if err == nil {
		ev.Meta, err = jsonMeta(ev.Object)
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
	ev.Framed = jsonEncoding{}.framed(line, ev)
	// The line's memory is used again for the next.
	ev.Object = bytes.Clone(ev.Object)
	return ev, ev.check()
}

// asError is a Status, the upstream's own word for why a stream ends, as an error.
func (m ObjectMeta) asError() error {
	answer := &AnswerError{Code: m.code, Message: m.message}
	if answer.Code == 0 {
		answer.Code = http.StatusInternalServerError
	}
	return fmt.Errorf("the watch ended with an error: %w", answer)
}

// Item implements Encoding.
func (jsonEncoding) Item(item []byte) (ObjectMeta, error) { return jsonMeta(item) }

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

// jsonMeta reads an object's metadata. A member that appears twice is refused, since it is not
// clear which one counts.
func jsonMeta(object []byte) (ObjectMeta, error) {
	var m ObjectMeta
	var seen seenOnce
	err := members(object, func(key string, value []byte) (err error) {
		switch key {
		case "apiVersion":
			m.APIVersion, err = unquote(value)
		case "kind":
			m.Kind, err = unquote(value)
		case "code":
			m.code, _ = strconv.Atoi(string(value)) // absent from most objects, free to be anything in a custom resource
			return nil
		case "metadata":
			err = m.parseJSON(value)
		default:
			return nil
		}
		return seen.check(key, err)
	})
	return m, err
}

func (m *ObjectMeta) parseJSON(metadata []byte) error {
	var seen seenOnce
	return members(metadata, func(key string, value []byte) (err error) {
		switch key {
		case "name":
			m.Name, err = unquote(value)
		case "namespace":
			m.Namespace, err = unquote(value)
		case "resourceVersion":
			m.Revision, err = jsonRevision(value)
		case "labels":
			m.Labels, err = jsonLabels(value)
		case "annotations":
			m.EndsInitial, err = jsonEndsInitial(value)
		default:
			return nil
		}
		return seen.check(key, err)
	})
}

func jsonLabels(value []byte) (Labels, error) {
	if string(value) == "null" {
		return Labels{}, nil
	}
	var pairs []string
	err := members(value, func(key string, value []byte) error {
		text, err := unquote(value)
		pairs = append(pairs, key, text)
		return err
	})
	if err != nil {
		return Labels{}, err
	}
	return MakeLabels(pairs)
}

func jsonEndsInitial(annotations []byte) (bool, error) {
	if string(annotations) == "null" {
		return false, nil
	}
	ends := false
	err := members(annotations, func(key string, value []byte) error {
		if key == initialEventsEnd {
			ends = string(value) == `"true"`
		}
		return nil
	})
	return ends, err
}

// initialEventsEnd is metav1.InitialEventsAnnotationKey.
const initialEventsEnd = "k8s.io/initial-events-end"

// jsonRevision reads a resourceVersion.
func jsonRevision(value []byte) (uint64, error) {
	text, err := unquote(value)
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

// seenOnce remembers the few keys that matter.
type seenOnce []string

func (s *seenOnce) check(key string, err error) error {
	if err != nil {
		return err
	}
	if slices.Contains(*s, key) {
		return fmt.Errorf("%w: %q appears twice", errShape, key)
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
	return values, jsonValues(paths.json, item, values)
}

func jsonValues(node *pathNode[string], object []byte, values []string) error {
	return members(object, func(key string, value []byte) error {
		next := node.next[key]
		switch {
		case next == nil || string(value) == "null":
			return nil
		case len(next.fields) > 0:
			text, err := jsonScalar(value)
			for _, field := range next.fields {
				values[field] = text
			}
			return err
		case value[0] != '{':
			return nil // no such path in this object
		}
		return jsonValues(next, value, values)
	})
}

// jsonScalar is a value as a field selector sees it: the text of a string, true, false, or a
// number as it is written.
func jsonScalar(value []byte) (string, error) {
	switch value[0] {
	case '"':
		text, err := unquote(value)
		return intern(text), err
	case '{', '[':
		return "", fmt.Errorf("%w: a selectable field holds no single value", errShape)
	}
	return intern(string(value)), nil
}
