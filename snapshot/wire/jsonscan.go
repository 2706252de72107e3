package wire

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"
)

// jsonScanner splits one JSON text (RFC 8259) into its parts and validates it, in a single pass. That takes a quarter of the time
// that encoding/json needs for the validation alone. Each method reads what is at the position, and moves the position past it.
// A method whose name begins with skip does not return what it reads. All methods but skipString and skipScalar first skip white
// space. The text is valid if all methods succeed, and end is called last. Until then, the values that were read must not be used.
type jsonScanner struct {
	text []byte
	// at is the position: the index in text of the next byte to read.
	at int
	// depth is the number of objects and arrays around the position.
	depth int
}

// errShape means that an API server would not have sent these bytes here.
var errShape = errors.New("not in the expected form")

// maxDepth is the deepest accepted nesting of JSON, as in encoding/json.
const maxDepth = 10000

// end returns an error if anything but white space follows.
func (s *jsonScanner) end() error {
	s.skipSpace()
	if s.at < len(s.text) {
		return errShape
	}
	return nil
}

// peek skips white space, and returns the next byte without reading it. At the end of the text it returns 0, which is not valid
// JSON.
func (s *jsonScanner) peek() (next byte) {
	s.skipSpace()
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

// skipSpace skips white space.
func (s *jsonScanner) skipSpace() {
	for s.at < len(s.text) && isSpace(s.text[s.at]) {
		s.at++
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// object reads an object. It reads the key of each member, and calls readValue, which must read the value, and nothing more.
func (s *jsonScanner) object(readValue func(key []byte) error) error {
	return s.entries('{', '}', func() error {
		key, err := s.key()
		if err != nil {
			return err
		}
		return readValue(key)
	})
}

// array reads an array. It calls readElement once for each element. readElement must read that element, and nothing more.
func (s *jsonScanner) array(readElement func() error) error { return s.entries('[', ']', readElement) }

// entries reads an object or an array, with its brackets. It calls readEntry once for each member or element, to read it.
func (s *jsonScanner) entries(opening, closing byte, readEntry func() error) error {
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
		if err := readEntry(); err != nil {
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
	key, err := s.quoted()
	if err != nil {
		return nil, err
	}
	return key, s.skipColon()
}

// stringOrNull reads a string, or null as the empty string.
func (s *jsonScanner) stringOrNull() (string, error) {
	text, err := s.bytesOrNull()
	return string(text), err
}

// bytesOrNull reads a string as quoted does, or null as nil.
func (s *jsonScanner) bytesOrNull() ([]byte, error) {
	if s.skipNull() {
		return nil, nil
	}
	return s.quoted()
}

// quoted reads a string. The result is a part of the text if the string is plain (see skipString), and a decoded copy if
// not.
func (s *jsonScanner) quoted() ([]byte, error) {
	s.skipSpace()
	begin := s.at
	isPlain, err := s.skipString()
	if err != nil {
		return nil, err
	}
	if isPlain {
		return s.text[begin+1 : s.at-1], nil
	}
	var text string
	if err := json.Unmarshal(s.text[begin:s.at], &text); err != nil {
		return nil, errShape
	}
	return []byte(text), nil
}

// skipNull reads a null if there is one, and reports whether there was.
func (s *jsonScanner) skipNull() bool {
	if s.peek() != 'n' || !bytes.HasPrefix(s.text[s.at:], []byte("null")) {
		return false
	}
	s.at += len("null")
	return true
}

// value reads any value, and returns it as a part of the text.
func (s *jsonScanner) value() ([]byte, error) {
	s.skipSpace()
	begin := s.at
	err := s.skip()
	return s.text[begin:s.at], err
}

// skip reads any value.
func (s *jsonScanner) skip() error {
	switch s.peek() {
	case '{':
		return s.entries('{', '}', s.skipMember)
	case '[':
		return s.entries('[', ']', s.skip)
	case '"':
		_, err := s.skipString()
		return err
	}
	return s.skipScalar()
}

// skipMember reads a member of an object: the key, the colon and the value.
func (s *jsonScanner) skipMember() error {
	s.skipSpace()
	if _, err := s.skipString(); err != nil {
		return err
	}
	if err := s.skipColon(); err != nil {
		return err
	}
	return s.skip()
}

// skipColon reads a colon.
func (s *jsonScanner) skipColon() error {
	if s.peek() != ':' {
		return errShape
	}
	s.at++
	return nil
}

// skipString reads a string. isPlain reports whether the string is ASCII without escapes. All others must be decoded, also
// those without escapes: bytes that are not UTF-8 become U+FFFD.
func (s *jsonScanner) skipString() (isPlain bool, err error) {
	if s.at == len(s.text) || s.text[s.at] != '"' {
		return false, errShape
	}
	isPlain = true
	for i := s.at + 1; i < len(s.text); i++ {
		switch c := s.text[i]; {
		case c == '"':
			s.at = i + 1
			return isPlain, nil
		case c == '\\':
			n := escapeLength(s.text[i:])
			if n == 0 {
				return false, errShape
			}
			i += n - 1
			isPlain = false
		case c < ' ':
			return false, errShape
		case c >= utf8.RuneSelf:
			isPlain = false
		}
	}
	return false, errShape
}

// escapeLength returns the length of the escape sequence at the beginning of text, or 0 if it is not valid.
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

// skipScalar reads true, false, null or a number, up to a byte that can follow it. json.Valid refuses anything else.
func (s *jsonScanner) skipScalar() error {
	begin := s.at
	for s.at < len(s.text) && strings.IndexByte(",]} \t\r\n", s.text[s.at]) < 0 {
		s.at++
	}
	if !json.Valid(s.text[begin:s.at]) {
		return errShape
	}
	return nil
}
