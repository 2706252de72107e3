package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// indentPieces returns JSON indented in pieces, which end where isEnd says, outside of strings.
func indentPieces(text []byte, bufferSize int, isEnd func(i int) bool) (string, error) {
	var got bytes.Buffer
	out := bufio.NewWriterSize(&got, bufferSize)
	var indenter Indenter
	var errs []error
	begin := 0
	for i := 0; i < len(text); {
		i += tokenLength(text[i:])
		if isEnd(i) {
			errs = append(errs, indenter.Write(out, text[begin:i]))
			begin = i
		}
	}
	errs = append(errs, indenter.Write(out, text[begin:]), out.Flush())
	return got.String(), errors.Join(errs...)
}

// checkIndent requires that JSON is indented as encoding/json does, whatever its pieces are.
func checkIndent(t *testing.T, text []byte) {
	t.Helper()
	var want bytes.Buffer
	expect.NoError(t, json.Indent(&want, bytes.TrimSpace(text), "", "  "))
	for name, isEnd := range map[string]func(int) bool{
		"whole":             func(int) bool { return false },
		"byte by byte":      func(int) bool { return true },
		"every third index": func(i int) bool { return i%3 == 0 },
	} {
		for _, bufferSize := range []int{16, 64 << 10} {
			got, err := indentPieces(text, bufferSize, isEnd)
			if err != nil || got != want.String() {
				t.Errorf("%s, a buffer of %d bytes: %.200q, %v; want %.200q", name, bufferSize, got, err, want.String())
			}
		}
	}
}

// indentable has valid JSON.
var indentable = []string{
	`[{}]`, `{"a":{}}`, `{"a":[],"b":{}}`, `null`, `"x"`, ` 1 `, "{}\n", `[[],[[]],{}]`,
	`{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{"a":1},{"a":[1,-2.50e+3,true,null]}]}` + "\n",
	`{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":null}` + "\n",
	`{"a":"{\"b\":[1,2]}","c\"\\":"\\","d":"\u003c,:\u2028","e":"<&>"}`,
	" { \"a\" :\t[ ] ,\r\n \"b\" : { } , \"c\" : [ 1 , 2 ] } ",
	`{"long":"` + strings.Repeat("x, ", 40_000) + `","n":[1,2,3]}`,
	strings.Repeat(`{"a":`, 200) + "[1,2]" + strings.Repeat("}", 200),
}

// TestDeepest: Write fails where encoding/json does, if JSON is nested deeper than MaxIndentDepth.
func TestDeepest(t *testing.T) {
	for _, depth := range []int{1, 3, MaxIndentDepth, MaxIndentDepth + 1} {
		text := []byte(strings.Repeat("[", depth) + strings.Repeat("]", depth))
		_, got := indentPieces(text, 64, func(int) bool { return false })
		want := json.Indent(new(bytes.Buffer), text, "", "  ")
		if (got == nil) != (want == nil) || (got == nil) != (depth <= MaxIndentDepth) {
			t.Errorf("depth %d: %v; encoding/json: %v", depth, got, want)
		}
	}
}

// FuzzIndent: Write indents valid JSON as encoding/json does, and stays within bounds for other text.
func FuzzIndent(f *testing.F) {
	for _, text := range indentable {
		f.Add([]byte(text))
	}
	for _, text := range someJSON() {
		if len(text) < 1000 { // those of the deepest nesting would become very long
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
