package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// indentPieces writes and measures JSON in pieces that end where cut says, outside of strings.
func indentPieces(t *testing.T, text []byte, bufferSize int, cut func(i int) bool) (string, int) {
	t.Helper()
	var got bytes.Buffer
	out := bufio.NewWriterSize(&got, bufferSize)
	var writes, sizes Indenter
	size, begin := 0, 0
	piece := func(p []byte) {
		expect.NoError(t, writes.Write(out, p))
		size += sizes.Size(p)
	}
	for i := 0; i < len(text); {
		end := i + 1
		if text[i] == '"' {
			end = skipString(text, i)
		}
		i = end
		if cut(i) {
			piece(text[begin:i])
			begin = i
		}
	}
	piece(text[begin:])
	expect.NoError(t, out.Flush())
	if writes.Deepest != sizes.Deepest {
		t.Errorf("depth %d when written, %d when measured", writes.Deepest, sizes.Deepest)
	}
	return got.String(), size
}

// checkIndent: encoding/json indents the same, however the text is cut; and the size is right.
func checkIndent(t *testing.T, text []byte) {
	t.Helper()
	var want bytes.Buffer
	expect.NoError(t, json.Indent(&want, bytes.TrimSpace(text), "", "  "))
	for name, cut := range map[string]func(int) bool{
		"whole":       func(int) bool { return false },
		"byte":        func(int) bool { return true },
		"every third": func(i int) bool { return i%3 == 0 },
	} {
		for _, bufferSize := range []int{16, 64 << 10} {
			got, size := indentPieces(t, text, bufferSize, cut)
			if got != want.String() {
				t.Errorf("%s, %d: %.200q, encoding/json makes %.200q of %.200q", name, bufferSize, got, want.String(), text)
			}
			if size != want.Len() {
				t.Errorf("%s: %d bytes, encoding/json makes %d of %.200q", name, size, want.Len(), text)
			}
		}
	}
}

// indentable is valid JSON, of which someJSON has some too.
var indentable = []string{
	`[{}]`, `{"a":{}}`, `{"a":[],"b":{}}`, `null`, `"x"`, ` 1 `, "{}\n", `[[],[[]],{}]`,
	`{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{"a":1},{"a":[1,-2.50e+3,true,null]}]}` + "\n",
	`{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":null}` + "\n",
	`{"a":"{\"b\":[1,2]}","c\"\\":"\\","d":"\u003c,:\u2028","e":"<&>"}`,
	" { \"a\" :\t[ ] ,\r\n \"b\" : { } , \"c\" : [ 1 , 2 ] } ",
	`{"long":"` + strings.Repeat("x, ", 40_000) + `","n":[1,2,3]}`,
	strings.Repeat(`{"a":`, 200) + "[1,2]" + strings.Repeat("}", 200),
}

// TestDeepest: from MaxIndentDepth on, encoding/json does not indent.
func TestDeepest(t *testing.T) {
	for _, depth := range []int{1, 3, MaxIndentDepth, MaxIndentDepth + 1} {
		text := []byte(strings.Repeat("[", depth) + strings.Repeat("]", depth))
		var in Indenter
		in.Size(text)
		if in.Deepest != depth {
			t.Errorf("depth %d, want %d", in.Deepest, depth)
		}
		var want bytes.Buffer
		if err := json.Indent(&want, text, "", "  "); (err == nil) != (in.Deepest <= MaxIndentDepth) {
			t.Errorf("depth %d: encoding/json says %v", depth, err)
		}
	}
}

// TestIndentNeedsNoMemory: a page of any size is indented in the writer's buffer.
func TestIndentNeedsNoMemory(t *testing.T) {
	text := bytes.Repeat([]byte(`{"metadata":{"name":"x","labels":{"a":"b"}}},`), 10_000)
	out := bufio.NewWriter(io.Discard)
	if n := testing.AllocsPerRun(10, func() {
		in := Indenter{depth: 2}
		_ = in.Write(out, text)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzIndent: all valid JSON is indented as encoding/json does; what is not valid does no harm.
func FuzzIndent(f *testing.F) {
	for _, text := range indentable {
		f.Add([]byte(text))
	}
	for _, text := range someJSON() {
		if len(text) < 1000 { // deep ones are written with much space
			f.Add([]byte(text))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if json.Valid(text) {
			checkIndent(t, text)
			return
		}
		_, _ = indentPieces(t, text, 64, func(i int) bool { return i%2 == 0 })
	})
}
