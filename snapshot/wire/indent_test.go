package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// indentPieces indents a text in pieces. A piece may end only where a token ends. For the index in the text at which a token
// ends, isPieceEnd returns whether a piece ends there, too.
func indentPieces(text []byte, bufferSize int, isPieceEnd func(i int) bool) (string, error) {
	var got bytes.Buffer
	out := bufio.NewWriterSize(&got, bufferSize)
	var indenter Indenter
	var errs []error
	begin := 0
	for i := 0; i < len(text); {
		i += tokenLength(text[i:])
		if isPieceEnd(i) {
			errs = append(errs, indenter.Indent(out, text[begin:i]))
			begin = i
		}
	}
	errs = append(errs, indenter.Indent(out, text[begin:]), out.Flush())
	return got.String(), errors.Join(errs...)
}

// checkIndent requires that Indent indents JSON as encoding/json does, in whatever pieces the JSON comes.
func checkIndent(t *testing.T, text []byte) {
	t.Helper()
	var want bytes.Buffer
	expect.NoError(t, json.Indent(&want, bytes.TrimSpace(text), "", "  "))
	for name, isPieceEnd := range map[string]func(int) bool{
		"in one piece":                      func(int) bool { return false },
		"each token alone":                  func(int) bool { return true },
		"pieces that end at multiples of 3": func(i int) bool { return i%3 == 0 },
	} {
		for _, bufferSize := range []int{16, 64 << 10} {
			got, err := indentPieces(text, bufferSize, isPieceEnd)
			if err != nil || got != want.String() {
				t.Errorf("%s, a buffer of %d bytes: got %.200q, %v; want %.200q", name, bufferSize, got, err, want.String())
			}
		}
	}
}

// indentable has JSON texts that FuzzIndent begins with.
var indentable = []string{
	// Empty values, which stay on one line, and values outside of objects.
	`[{}]`, `{"a":{}}`, `{"a":[],"b":{}}`, `null`, `"x"`, ` 1 `, "{}\n", `[[],[[]],{}]`,
	// Lists, with and without items.
	`{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{"a":1},{"a":[1,-2.50e+3,true,null]}]}` + "\n",
	`{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":null}` + "\n",
	// Brackets and escapes in strings, and spaces, which are replaced.
	`{"a":"{\"b\":[1,2]}","c\"\\":"\\","d":"\u003c,:\u2028","e":"<&>"}`,
	" { \"a\" :\t[ ] ,\r\n \"b\" : { } , \"c\" : [ 1 , 2 ] } ",
	// Longer and deeper than buffers.
	`{"long":"` + strings.Repeat("x, ", 40_000) + `","n":[1,2,3]}`,
	strings.Repeat(`{"a":`, 200) + "[1,2]" + strings.Repeat("}", 200),
}

// TestDeepest: Indent fails for JSON that is nested deeper than MaxIndentDepth. encoding/json refuses the same texts.
func TestDeepest(t *testing.T) {
	for _, depth := range []int{1, 3, MaxIndentDepth, MaxIndentDepth + 1} {
		text := []byte(strings.Repeat("[", depth) + strings.Repeat("]", depth))
		var indenter Indenter
		err := indenter.Indent(bufio.NewWriter(io.Discard), text)
		want := depth <= MaxIndentDepth
		if isIndented := err == nil; isIndented != want {
			t.Errorf("depth %d: Indent accepts it: got %t, want %t", depth, isIndented, want)
		}
		if isValid := json.Valid(text); isValid != want {
			t.Errorf("depth %d: encoding/json accepts it: got %t, want %t", depth, isValid, want)
		}
	}
}

// FuzzIndent: Indent indents valid JSON as encoding/json does, and does not panic at other text.
func FuzzIndent(f *testing.F) {
	for _, text := range indentable {
		f.Add([]byte(text))
	}
	for _, text := range someJSON() {
		if len(text) < 1000 { // longer texts are nested so deeply that their indentation would be huge
			f.Add([]byte(text))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if json.Valid(text) {
			checkIndent(t, text)
			return
		}
		_, _ = indentPieces(text, 64, func(i int) bool { return i%2 == 0 })
	})
}
