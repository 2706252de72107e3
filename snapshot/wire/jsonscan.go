package wire

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// jsonScanner splits one JSON text (RFC 8259) into its parts and validates it, in a single pass. This takes a quarter of the
// time that encoding/json needs for the validation alone.
//
// Each method but peek reads what is at the position, and moves the position past it. A method whose name begins with skip
// reads, too, but does not return what it has read. All methods but skipString and skipScalar first skip white space.
//
// The text is valid if all methods succeed, with end as the last. Only then may the values that were read be used.
type jsonScanner struct {
	text []byte
	// at is the position: the index in text of the next byte to read.
	at int
	// depth is the number of objects and arrays around the position.
	depth int
}

// maxDepth is the deepest accepted nesting of JSON, as in encoding/json.
const maxDepth = 10000

// end returns an error if anything but white space follows.
func (s *jsonScanner) end() error {
	s.skipSpace()
	if s.at < len(s.text) {
		return errMalformed
	}
	return nil
}

// peek skips white space, and returns the byte at the position without reading it. At the end of the text it returns 0, which
// no JSON begins with.
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

// object reads an object. It reads the key of each member, and then calls readValue, which must read the value, and nothing
// more.
func (s *jsonScanner) object(readValue func(key []byte) error) error {
	return s.entries('{', '}', func() error {
		key, err := s.key()
		if err != nil {
			return err
		}
		return readValue(key)
	})
}

// array reads an array. It calls readElement once for each element, which readElement must read, and nothing more.
func (s *jsonScanner) array(readElement func() error) error { return s.entries('[', ']', readElement) }

// entries reads an object or an array, with its brackets. It calls readEntry once for each member or element. readEntry must
// read it, and nothing more.
func (s *jsonScanner) entries(opening, closing byte, readEntry func() error) error {
	if s.peek() != opening || s.depth == maxDepth {
		return errMalformed
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
			return errMalformed
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

// quoted reads a string. It returns a part of the text if the string is plain (see skipString), and a decoded copy if it is
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
		return nil, errMalformed
	}
	return []byte(text), nil
}

// skipNull reads a null. It returns false, and reads nothing, if another value is at the position.
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
		return errMalformed
	}
	s.at++
	return nil
}

// skipString reads a string. isPlain reports whether the string is ASCII without escapes, so that its bytes are its value. Any
// other string must be decoded: bytes that are not UTF-8 become U+FFFD, even without escapes.
func (s *jsonScanner) skipString() (isPlain bool, err error) {
	if s.at == len(s.text) || s.text[s.at] != '"' {
		return false, errMalformed
	}
	isPlain = true
	for i := s.at + 1; i < len(s.text); i++ {
		switch c := s.text[i]; {
		case c == '"':
			s.at = i + 1
			return isPlain, nil
		case c == '\\':
			length := escapeLength(s.text[i:])
			if length == 0 {
				return false, errMalformed
			}
			i += length - 1 // the loop adds 1
			isPlain = false
		case c < ' ':
			return false, errMalformed
		case c >= utf8.RuneSelf:
			isPlain = false
		}
	}
	return false, errMalformed
}

// escapeLength returns the length of the escape sequence at the beginning of text, or 0 if it is not valid.
func escapeLength(text []byte) int {
	const short, long = len(`\n`), len(`\u0000`)
	switch {
	case len(text) >= short && strings.IndexByte(`"\/bfnrt`, text[1]) >= 0:
		return short
	case len(text) >= long && text[1] == 'u':
		if _, err := hex.Decode(make([]byte, 2), text[2:long]); err == nil {
			return long
		}
	}
	return 0
}

// skipScalar reads true, false, null or a number. It reads up to a byte that can follow a scalar, and lets json.Valid decide.
func (s *jsonScanner) skipScalar() error {
	begin := s.at
	for s.at < len(s.text) && strings.IndexByte(",]} \t\r\n", s.text[s.at]) < 0 {
		s.at++
	}
	if !json.Valid(s.text[begin:s.at]) {
		return errMalformed
	}
	return nil
}
