package snapshot

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// The upstream's JSON is taken apart, never decoded and encoded again: these functions find
// where values begin and end. They are for input that json.Valid has accepted; on anything
// else they return errShape or a wrong extent, never out of bounds.

var errShape = errors.New("not the JSON that was expected")

// fields calls yield with each member of a JSON object, in the order of the text: its key
// unquoted, its value as it stands. An error of yield ends the walk and is returned.
func fields(object []byte, yield func(key string, value []byte) error) error {
	i := space(object, 0)
	if i >= len(object) || object[i] != '{' {
		return errShape
	}
	i = space(object, i+1)
	if i < len(object) && object[i] == '}' {
		return nil
	}
	for {
		start := i
		i = skip(object, i)
		if i <= start || i > len(object) || object[start] != '"' {
			return errShape
		}
		key, err := unquote(object[start:i])
		if err != nil {
			return err
		}
		i = space(object, i)
		if i >= len(object) || object[i] != ':' {
			return errShape
		}
		start = space(object, i+1)
		i = skip(object, start)
		if i <= start || i > len(object) {
			return errShape
		}
		if err := yield(key, object[start:i]); err != nil {
			return err
		}
		i = space(object, i)
		if i >= len(object) {
			return errShape
		}
		if object[i] == '}' {
			return nil
		}
		if object[i] != ',' {
			return errShape
		}
		i = space(object, i+1)
	}
}

// elements calls yield with each element of a JSON array as it stands.
func elements(array []byte, yield func(value []byte) error) error {
	i := space(array, 0)
	if i >= len(array) || array[i] != '[' {
		return errShape
	}
	i = space(array, i+1)
	if i < len(array) && array[i] == ']' {
		return nil
	}
	for {
		start := i
		i = skip(array, i)
		if i <= start || i > len(array) {
			return errShape
		}
		if err := yield(array[start:i]); err != nil {
			return err
		}
		i = space(array, i)
		if i >= len(array) {
			return errShape
		}
		if array[i] == ']' {
			return nil
		}
		if array[i] != ',' {
			return errShape
		}
		i = space(array, i+1)
	}
}

// skip returns the index after the value that begins at i.
func skip(b []byte, i int) int {
	if i >= len(b) {
		return i
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		depth := 0
		for i < len(b) {
			switch b[i] {
			case '"':
				i = skipString(b, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
				if depth == 0 {
					return i + 1
				}
			}
			i++
		}
		return i
	}
	for i < len(b) {
		switch b[i] {
		case ',', '}', ']', ' ', '\t', '\n', '\r':
			return i
		}
		i++
	}
	return i
}

func skipString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}

func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// unquote returns the text of a JSON string.
func unquote(b []byte) (string, error) {
	if len(b) >= 2 && b[0] == '"' {
		plain := true
		for _, c := range b[1 : len(b)-1] {
			if c == '\\' || c >= 0x80 {
				plain = false
				break
			}
		}
		if plain {
			return string(b[1 : len(b)-1]), nil
		}
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return "", fmt.Errorf("%w: a string was wanted", errShape)
	}
	return s, nil
}

// objectMeta is what a feed reads of an object.
type objectMeta struct {
	apiVersion, kind string
	namespace, name  string
	revision         uint64
	// endsInitial is set on the bookmark that ends the initial events of a streaming list.
	endsInitial bool
	// code is the status code, of a Status.
	code int
}

// parseMeta reads an object's metadata. A member that appears twice is refused: nobody could
// say which one counts.
func parseMeta(object []byte) (objectMeta, error) {
	var m objectMeta
	var seen seenOnce
	err := fields(object, func(key string, value []byte) (err error) {
		switch key {
		case "apiVersion":
			m.apiVersion, err = unquote(value)
		case "kind":
			m.kind, err = unquote(value)
		case "code":
			m.code, _ = strconv.Atoi(string(value)) // absent from most objects, free to be anything in a custom resource
			return nil
		case "metadata":
			err = m.parseMetadata(value)
		default:
			return nil
		}
		return seen.check(key, err)
	})
	return m, err
}

func (m *objectMeta) parseMetadata(metadata []byte) error {
	var seen seenOnce
	return fields(metadata, func(key string, value []byte) (err error) {
		switch key {
		case "name":
			m.name, err = unquote(value)
		case "namespace":
			m.namespace, err = unquote(value)
		case "resourceVersion":
			m.revision, err = parseRevision(value)
		case "annotations":
			m.endsInitial, err = endsInitial(value)
		default:
			return nil
		}
		return seen.check(key, err)
	})
}

func endsInitial(annotations []byte) (bool, error) {
	if string(annotations) == "null" {
		return false, nil
	}
	ends := false
	err := fields(annotations, func(key string, value []byte) error {
		if key == "k8s.io/initial-events-end" { // metav1.InitialEventsAnnotationKey
			ends = string(value) == `"true"`
		}
		return nil
	})
	return ends, err
}

// parseRevision reads a resourceVersion. An empty one is 0.
func parseRevision(value []byte) (uint64, error) {
	text, err := unquote(value)
	if err != nil || text == "" {
		return 0, err
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
