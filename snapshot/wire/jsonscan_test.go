package wire

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// someJSON is valid and not.
func someJSON() []string {
	return []string{
		``, ` `, `{}`, `[]`, `{`, `}`, `[`, `]`, `[]]`, `{}{}`, `[[]`, `[{]}`, `{[]}`, `[,]`, `[1,]`, `[,1]`, `[1 2]`,
		`{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `{"a":1 "b":2}`, `{"a":1,"b":[{"c":null},true,false]}`, `{a:1}`, `{1:1}`,
		`{"a" : 1 , "b" : [ ] , "c" : { } }`, "\t\r\n[\t\r\n]\t\r\n", "\f[]", "\ufeff[]",
		`"`, `""`, `"a`, `"\"`, `"\""`, `"\\"`, `"\u"`, `"\u12"`, `"\u12g4"`, `"\u1aF4"`, `"\x"`, `"\/\b\f\n\r\t"`, "\"\x1f\"", "\"\x7f\"", "\"\xff\"",
		"\"a\nb\"", "\x00", "[\x00]", "\"\x00\"", `"\`,
		`0`, `-0`, `-`, `01`, `1.`, `.1`, `1.0`, `1e`, `1e+`, `1e-07`, `1E5`, `1.5e3x`, `+1`, `--1`, `0x1`, `1e5.5`, `-1.25E+10`, `00`,
		`true`, `tru`, `truefalse`, `nul`, `nulll`, `True`, `NaN`,
		strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth),
		strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1),
		strings.Repeat(`{"a":`, maxDepth) + "1" + strings.Repeat("}", maxDepth),
		strings.Repeat("[", 3) + strings.Repeat("]", 2),
		` { "a" : [1,{"b":"]}\""}] , "c":null}`, `{"a":"\\"}`, `{"a":"\u2028<>&","b":-1.5e3}`, `{"a":`, `{"a":"`, `{"a" 1}`,
		` [ "a]" , {"b":[]} ] `, `[[],[[]]]`, `[1`,
	}
}

// validJSON reports whether text is one JSON value and nothing else.
func validJSON(text []byte) bool {
	s := jsonScanner{text: text}
	_, err := s.value()
	return err == nil && s.end() == nil
}

// FuzzValidJSON: what is valid, and has which members or elements, is what encoding/json says. To walk over anything
// else does no harm.
func FuzzValidJSON(f *testing.F) {
	for _, text := range someJSON() {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if got, want := validJSON(text), json.Valid(text); got != want {
			t.Errorf("%q: %t, encoding/json says %t", text, got, want)
		}
		got := map[string]json.RawMessage{}
		err := members(text, func(key string, value []byte) error { got[key] = value; return nil })
		var object map[string]json.RawMessage
		if json.Unmarshal(text, &object) == nil && object != nil {
			expect.NoError(t, err)
			expect.Same(t, object, got)
		}
		all := []json.RawMessage{}
		s := jsonScanner{text: text}
		err = s.array(func() error {
			value, err := s.value()
			all = append(all, value)
			return err
		})
		var array []json.RawMessage
		if json.Unmarshal(text, &array) == nil && array != nil {
			expect.NoError(t, err)
			expect.Same(t, array, all)
		}
	})
}
