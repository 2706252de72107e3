package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// The upstream's JSON is taken apart, never decoded and encoded again: these functions find
// where values begin and end. They are for input that validJSON has accepted; on anything
// else they return errShape or a wrong scope, never out of bounds.

var errShape = errors.New("not in the expected form")

// members calls yield with each member of a JSON object, in the order of the text: its key
// unquoted, its value as it stands. An error of yield ends the walk and is returned.
func members(object []byte, yield func(key string, value []byte) error) error {
	return entries(object, '{', yield)
}

// elements calls yield with each element of a JSON array as it stands.
func elements(array []byte, yield func(value []byte) error) error {
	return entries(array, '[', func(_ string, value []byte) error { return yield(value) })
}

// entries walks over an object or an array, as its opening bracket says.
func entries(b []byte, open byte, yield func(key string, value []byte) error) error {
	end := open + 2 // the closing bracket
	i := space(b, 0)
	if i >= len(b) || b[i] != open {
		return errShape
	}
	i = space(b, i+1)
	if i < len(b) && b[i] == end {
		return nil
	}
	for {
		key, start := "", i
		if open == '{' {
			i = skip(b, i)
			if i <= start || i > len(b) || b[start] != '"' {
				return errShape
			}
			var err error
			if key, err = unquote(b[start:i]); err != nil {
				return err
			}
			i = space(b, i)
			if i >= len(b) || b[i] != ':' {
				return errShape
			}
			start = space(b, i+1)
		}
		i = skip(b, start)
		if i <= start || i > len(b) {
			return errShape
		}
		if err := yield(key, b[start:i]); err != nil {
			return err
		}
		i = space(b, i)
		if i >= len(b) {
			return errShape
		}
		if b[i] == end {
			return nil
		}
		if b[i] != ',' {
			return errShape
		}
		i = space(b, i+1)
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
	// Most are short.
	near := min(len(b), i+shortString)
	for i++; i < near; i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	for quote := -1; i < len(b); {
		if quote < i { // it was escaped: else what was found is not looked for again
			n := bytes.IndexByte(b[i:], '"')
			if n < 0 {
				return len(b)
			}
			quote = i + n
		}
		escape := bytes.IndexByte(b[i:quote], '\\')
		if escape < 0 {
			return quote + 1
		}
		i += escape + 2
	}
	return len(b)
}

// shortString is the length up to which a string is scanned byte by byte.
const shortString = 32

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
