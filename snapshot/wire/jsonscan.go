package wire

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// jsonScanner reads one JSON text from its beginning to its end, once. It validates the text (RFC 8259) while it splits
// it, in a quarter of the time that encoding/json needs to validate alone. Each method reads what is at the position, and
// moves the position behind it. The text is valid if all methods and end succeed. Until then, what was read must not be
// used.
type jsonScanner struct {
	text []byte
	at   int
	// depth is the number of objects and arrays around the position, without those that skip is reading.
	depth int
	// closing has the brackets that close the objects and arrays that skip is reading, the innermost last.
	closing []byte
}

// errShape means that bytes are not what an API server would send in their place.
var errShape = errors.New("not in the expected form")

// maxDepth is the deepest accepted nesting of JSON: encoding/json has the same bound.
const maxDepth = 10000

// members calls yield with each member of a JSON object, in the order of the text: the unquoted key, and the value as it
// is in the text. An error of yield ends the walk and is returned. Text after the object is ignored.
func members(object []byte, yield func(key string, value []byte) error) error {
	s := jsonScanner{text: object}
	return s.object(func(key []byte) error {
		value, err := s.value()
		if err != nil {
			return err
		}
		return yield(string(key), value)
	})
}

// end returns an error if anything but white space follows.
func (s *jsonScanner) end() error {
	s.peek()
	if s.at < len(s.text) {
		return errShape
	}
	return nil
}

// object reads an object. It reads the key of each member, and calls member, which must read the value.
func (s *jsonScanner) object(member func(key []byte) error) error {
	return s.entries('{', '}', func() error {
		key, err := s.key()
		if err != nil {
			return err
		}
		return member(key)
	})
}

// array reads an array. It calls element for each element, which element must read.
func (s *jsonScanner) array(element func() error) error { return s.entries('[', ']', element) }

// entries reads an object or an array, as its brackets say. It calls entry for each member or element, which entry must
// read.
func (s *jsonScanner) entries(opening, closing byte, entry func() error) error {
	if s.peek() != opening || s.depth == maxDepth {
		return errShape
	}
	s.at++
	if s.peek() == closing {
		s.at++
		return nil
	}
	s.depth++
	for {
		if err := entry(); err != nil {
			return err
		}
		switch s.peek() {
		case ',':
			s.at++
		case closing:
			s.at++
			s.depth--
			return nil
		default:
			return errShape
		}
	}
}

// key reads the key of a member, and the colon.
func (s *jsonScanner) key() ([]byte, error) {
	if s.peek() != '"' {
		return nil, errShape
	}
	key, err := s.bytesOrNull()
	if err != nil || s.peek() != ':' {
		return nil, errShape
	}
	s.at++
	return key, nil
}

// stringOrNull reads a string; null counts as the empty string.
func (s *jsonScanner) stringOrNull() (string, error) {
	text, err := s.bytesOrNull()
	return string(text), err
}

// bytesOrNull is stringOrNull, but mostly returns a part of the text instead of a copy.
func (s *jsonScanner) bytesOrNull() ([]byte, error) {
	if s.null() {
		return nil, nil
	}
	if s.peek() != '"' {
		return nil, fmt.Errorf("%w: a string was wanted", errShape)
	}
	begin := s.at
	plain, valid := s.skipString()
	if !valid {
		return nil, errShape
	}
	if plain {
		return s.text[begin+1 : s.at-1], nil
	}
	var text string
	if err := json.Unmarshal(s.text[begin:s.at], &text); err != nil {
		return nil, errShape
	}
	return []byte(text), nil
}

// null reports whether the value is null, and reads it in this case.
func (s *jsonScanner) null() bool {
	if s.peek() != 'n' || !bytes.HasPrefix(s.text[s.at:], []byte("null")) {
		return false
	}
	s.at += len("null")
	return true
}

// value reads any value, and returns its text.
func (s *jsonScanner) value() ([]byte, error) {
	s.peek()
	begin := s.at
	err := s.skip()
	return s.text[begin:s.at], err
}

// skip reads any value. It does not recurse, since loads spend much of their time here.
func (s *jsonScanner) skip() error {
	s.closing = s.closing[:0]
	for {
		switch opening := s.peek(); opening {
		case '{', '[':
			if s.depth+len(s.closing) == maxDepth {
				return errShape
			}
			closing := opening + 2 // in ASCII, } and ] come two after { and [
			s.at++
			if s.peek() == closing { // it is empty
				s.at++
				break
			}
			if opening == '{' && !s.skipKey() {
				return errShape
			}
			s.closing = append(s.closing, closing)
			continue // with the first value in it
		case '"':
			if _, valid := s.skipString(); !valid {
				return errShape
			}
		default:
			if !s.skipScalar() {
				return errShape
			}
		}
		isComplete, err := s.skipToNextValue()
		if isComplete || err != nil {
			return err
		}
	}
}

// skipToNextValue reads what skip finds after a value: closing brackets, and then a comma and the next key. isComplete
// reports whether the value that skip reads ended there. Otherwise another value follows.
func (s *jsonScanner) skipToNextValue() (isComplete bool, err error) {
	for len(s.closing) > 0 {
		closing := s.closing[len(s.closing)-1]
		switch s.peek() {
		case ',':
			s.at++
			if closing == '}' && !s.skipKey() {
				return false, errShape
			}
			return false, nil
		case closing:
			s.at++
			s.closing = s.closing[:len(s.closing)-1]
		default:
			return false, errShape
		}
	}
	return true, nil
}

// skipKey reads the key of a member, and the colon. It returns false if they are not valid.
func (s *jsonScanner) skipKey() bool {
	if s.peek() != '"' {
		return false
	}
	if _, valid := s.skipString(); !valid || s.peek() != ':' {
		return false
	}
	s.at++
	return true
}

// peek reads white space, and returns the byte after it without reading it. At the end of the text it returns 0, which
// is not valid JSON either.
func (s *jsonScanner) peek() byte {
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// skipString reads a string. plain reports whether the string consists of the bytes between its quotation marks. It may
// not if it has escapes, or if it is not UTF-8, where clients read U+FFFD.
func (s *jsonScanner) skipString() (plain, valid bool) {
	plain = true
	for i := s.at + 1; i < len(s.text); i++ {
		switch c := s.text[i]; {
		case c == '"':
			s.at = i + 1
			return plain, true
		case c == '\\':
			n := escapeLength(s.text[i:])
			if n == 0 {
				return false, false
			}
			i += n - 1
			plain = false
		case c < ' ':
			return false, false
		case c >= utf8.RuneSelf:
			plain = false // it is not decoded here
		}
	}
	return false, false
}

// escapeLength returns the length of the escape sequence at the beginning of text; 0 if there is no valid one.
func escapeLength(text []byte) int {
	switch {
	case len(text) < 2:
	case strings.IndexByte(`"\/bfnrt`, text[1]) >= 0:
		return 2
	case text[1] == 'u' && len(text) >= 6:
		if _, err := hex.Decode(make([]byte, 2), text[2:6]); err == nil {
			return 6
		}
	}
	return 0
}

// skipScalar reads true, false, null or a number, and reports whether it is valid.
func (s *jsonScanner) skipScalar() bool {
	begin := s.at
	for s.at < len(s.text) && strings.IndexByte(",]} \t\r\n", s.text[s.at]) < 0 {
		s.at++
	}
	return json.Valid(s.text[begin:s.at])
}
