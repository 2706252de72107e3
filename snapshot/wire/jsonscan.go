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

// jsonScanner reads one JSON text from its beginning to its end, once: it validates (RFC 8259) while it takes the
// text apart, in a quarter of the time that encoding/json needs to validate alone. Each method reads what is at the
// position, and moves the position behind it. Nothing is copied. The text is valid if all methods and end succeed;
// until then, what was read must not be used.
type jsonScanner struct {
	text []byte
	at   int
	// depth is the number of objects and arrays around the position that object and array are reading.
	depth int
}

// errShape means that bytes are not what an API server would send in their place.
var errShape = errors.New("not in the expected form")

// maxDepth is the deepest nesting of JSON that is accepted: encoding/json's own bound.
const maxDepth = 10000

// members calls yield with each member of a JSON object, in the order of the text: its key unquoted, and its value as
// it stands. An error of yield ends the walk and is returned.
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

// end reads white space up to the end of the text.
func (s *jsonScanner) end() error {
	s.next()
	if s.at < len(s.text) {
		return errShape
	}
	return nil
}

// object reads an object. For each member it reads the key, and has member read the value.
func (s *jsonScanner) object(member func(key []byte) error) error {
	return s.entries('{', func() error {
		key, err := s.key()
		if err != nil {
			return err
		}
		return member(key)
	})
}

// array reads an array, and has element read each of its elements.
func (s *jsonScanner) array(element func() error) error { return s.entries('[', element) }

// entries reads an object or an array, as its opening bracket says.
func (s *jsonScanner) entries(bracket byte, entry func() error) error {
	if s.next() != bracket || s.depth == maxDepth {
		return errShape
	}
	s.at++
	if s.next() == bracket+2 { // the closing bracket
		s.at++
		return nil
	}
	s.depth++
	for {
		if err := entry(); err != nil {
			return err
		}
		switch s.next() {
		case ',':
			s.at++
		case bracket + 2:
			s.at++
			s.depth--
			return nil
		default:
			return errShape
		}
	}
}

// key reads the name of a member, and the colon.
func (s *jsonScanner) key() ([]byte, error) {
	if s.next() != '"' {
		return nil, errShape
	}
	key, err := s.textBytes()
	if err != nil || s.next() != ':' {
		return nil, errShape
	}
	s.at++
	return key, nil
}

// string reads a string, or null as the empty string.
func (s *jsonScanner) string() (string, error) {
	text, err := s.textBytes()
	return string(text), err
}

// textBytes is string, but its result shares the memory of the text unless there are escapes in it.
func (s *jsonScanner) textBytes() ([]byte, error) {
	if s.null() {
		return nil, nil
	}
	if s.next() != '"' {
		return nil, fmt.Errorf("%w: a string was wanted", errShape)
	}
	begin := s.at
	plain, valid := s.quoted()
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

// null reads null, if that is there, and reports whether it was.
func (s *jsonScanner) null() bool {
	if s.next() != 'n' || !bytes.HasPrefix(s.text[s.at:], []byte("null")) {
		return false
	}
	s.at += len("null")
	return true
}

// value reads a value with all that is in it, and returns its text.
func (s *jsonScanner) value() ([]byte, error) {
	s.next()
	begin := s.at
	err := s.skip()
	return s.text[begin:s.at], err
}

// skip reads a value with all that is in it.
func (s *jsonScanner) skip() error {
	var valid bool
	switch s.next() {
	case '{':
		return s.object(func([]byte) error { return s.skip() })
	case '[':
		return s.array(s.skip)
	case '"':
		_, valid = s.quoted()
	default:
		valid = s.skipScalar()
	}
	if !valid {
		return errShape
	}
	return nil
}

// next reads white space and returns the byte that follows, or 0 at the end. A 0 in the text is not valid.
func (s *jsonScanner) next() byte {
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// quoted reads a string, from one quotation mark to the other. plain reports whether it is ASCII without escapes.
func (s *jsonScanner) quoted() (plain, valid bool) {
	plain = true
	for i := s.at + 1; i < len(s.text); i++ {
		switch c := s.text[i]; {
		case c == '"':
			s.at = i + 1
			return plain, true
		case c == '\\':
			n := escape(s.text[i:])
			if n == 0 {
				return false, false
			}
			i += n - 1
			plain = false
		case c < ' ':
			return false, false
		case c >= utf8.RuneSelf:
			plain = false
		}
	}
	return false, false
}

// escape returns the length of the escape sequence that text begins with; 0 if it is none.
func escape(text []byte) int {
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
