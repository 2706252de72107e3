package wire

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// someJSON returns valid and invalid JSON.
func someJSON() []string {
	return []string{
		// Objects and arrays: whole, cut, with too many or too few commas, brackets and spaces.
		``, ` `, `{}`, `[]`, `{`, `}`, `[`, `]`, `[]]`, `{}{}`, `[[]`, `[{]}`, `{[]}`, `[,]`, `[1,]`, `[,1]`, `[1 2]`,
		`{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `{"a":1 "b":2}`, `{"a":1,"b":[{"c":null},true,false]}`, `{a:1}`, `{1:1}`,
		`{"a" : 1 , "b" : [ ] , "c" : { } }`, "\t\r\n[\t\r\n]\t\r\n", "\f[]", "\ufeff[]",
		` { "a" : [1,{"b":"]}\""}] , "c":null}`, `{"a":"\\"}`, `{"a":"\u2028<>&","b":-1.5e3}`, `{"a":`, `{"a":"`, `{"a" 1}`,
		` [ "a]" , {"b":[]} ] `, `[[],[[]]]`, `[1`,
		// Strings: escapes, control characters, and quotes that are missing.
		`"`, `""`, `"a`, `"\"`, `"\""`, `"\\"`, `"\u"`, `"\u12"`, `"\u12g4"`, `"\u1aF4"`, `"\x"`, `"\/\b\f\n\r\t"`, "\"\x1f\"", "\"\x7f\"", "\"\xff\"",
		"\"a\nb\"", "\x00", "[\x00]", "\"\x00\"", `"\`,
		// Numbers and words.
		`0`, `-0`, `-`, `01`, `1.`, `.1`, `1.0`, `1e`, `1e+`, `1e-07`, `1E5`, `1.5e3x`, `+1`, `--1`, `0x1`, `1e5.5`, `-1.25E+10`, `00`,
		`true`, `tru`, `truefalse`, `nul`, `nulll`, `True`, `NaN`,
		// Nesting, up to the bound and beyond.
		strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth),
		strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1),
		strings.Repeat(`{"a":`, maxDepth) + "1" + strings.Repeat("}", maxDepth),
		strings.Repeat("[", 3) + strings.Repeat("]", 2),
	}
}

// isValidJSON reports whether jsonScanner reads text as one value and nothing else.
func isValidJSON(text []byte) bool {
	s := jsonScanner{text: text}
	_, err := s.value()
	return err == nil && s.end() == nil
}

// FuzzValidJSON: jsonScanner accepts the text that encoding/json accepts, and finds the same members or elements.
func FuzzValidJSON(f *testing.F) {
	for _, text := range someJSON() {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if got, want := isValidJSON(text), json.Valid(text); got != want {
			t.Errorf("%q is valid: got %t, want %t as encoding/json", text, got, want)
		}
		// The members, if the text is an object.
		gotMembers := map[string]json.RawMessage{}
		s := jsonScanner{text: text}
		err := s.object(func(key []byte) error {
			value, err := s.value()
			gotMembers[string(key)] = value
			return err
		})
		var wantMembers map[string]json.RawMessage
		if json.Unmarshal(text, &wantMembers) == nil && wantMembers != nil {
			expect.NoError(t, err)
			expect.Same(t, wantMembers, gotMembers)
		}
		// The elements, if the text is an array.
		gotElements := []json.RawMessage{}
		s = jsonScanner{text: text}
		err = s.array(func() error {
			value, err := s.value()
			gotElements = append(gotElements, value)
			return err
		})
		var wantElements []json.RawMessage
		if json.Unmarshal(text, &wantElements) == nil && wantElements != nil {
			expect.NoError(t, err)
			expect.Same(t, wantElements, gotElements)
		}
	})
}
