package proxy

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/test/expect"
)

// indent makes an answer indented.
func indent(a *decision) *decision {
	a.query.Indented = true
	return a
}

// TestIndentedGzipThreshold: an indented list is compressed if its indented size is above gzipAbove.
func TestIndentedGzipThreshold(t *testing.T) {
	empty, err := newBody(indent(newListAnswer(1, 0)), "")
	expect.NoError(t, err)
	defer empty.release()
	unpadded := len(newListAnswer(1, 0).snapshot.Page(index.Query{}, nil).Objects[0].Bytes)
	for extra, want := range map[int]string{0: "", 1: "gzip"} {
		a := indent(newListAnswer(1, unpadded+gzipAbove-empty.size+extra))
		w := record(&policy.Request{Gzip: true}, a, http.Header{})
		expect.Same(t, want, w.Header().Get("Content-Encoding"))
		expect.Same(t, gzipAbove+extra, len(plain(t, w)))
	}
}

// TestUnindentable: a list is unindentable if it would become many times as long, or if json.Indent refuses an object.
func TestUnindentable(t *testing.T) {
	nested := func(depth int, inside string) string {
		return strings.Repeat("[", depth) + inside + strings.Repeat("]", depth)
	}
	long := `"` + strings.Repeat("x", 16<<20) + `"` // does not become many times as long
	const maxDepth = 10_000                         // for encoding/json
	for name, tt := range map[string]struct {
		object           string
		wantUnindentable bool
	}{
		"flat":                {object: `{"a":1}`},
		"deep":                {object: nested(maxDepth, long)},
		"too deep":            {object: nested(maxDepth+1, long), wantUnindentable: true},
		"schema of a CRD":     {object: nested(50, `{"description":"what it is","type":"string"}`)},
		"21 times as long":    {object: nested(20, strings.Repeat("1,", 100_000)+"1"), wantUnindentable: true},
		"11 times as long":    {object: nested(10, strings.Repeat("1,", 100_000)+"1")},
		"21 times, but short": {object: nested(20, strings.Repeat("1,", 1000)+"1")},
	} {
		t.Run(name, func(t *testing.T) {
			object := &index.Object{Key: "a", Revision: 1, Bytes: []byte(tt.object)}
			a := &decision{asked: &policy.Request{}, snapshot: newSnapshot("ThingList", object)}
			plain, err := newBody(a, "")
			expect.NoError(t, err)
			defer plain.release()
			indented, err := newBody(indent(a), "")
			if unindentable := err != nil; unindentable != tt.wantUnindentable {
				t.Fatalf("got unindentable %t, want %t: %v", unindentable, tt.wantUnindentable, err)
			}
			if err != nil {
				return
			}
			defer indented.release()
			if indented.size <= plain.size {
				t.Errorf("got the size %d, want more than the %d without indentation", indented.size, plain.size)
			}
		})
	}
}

// FuzzWriteIndented: a list is indented as encoding/json does it.
func FuzzWriteIndented(f *testing.F) {
	for _, object := range []string{
		// Empty values, which stay on one line, and values outside of objects.
		`[{}]`, `{"a":{}}`, `{"a":[],"b":{}}`, `null`, `"x"`, `0`, `{}`, `[[],[[]],{}]`,
		// Brackets, escapes and the placeholder in strings, and spaces, which are replaced.
		`{"a":"{\"b\":[1,2]}","c\"\\":"\\","d":"\u003c,:\u2028","e":"<&>","f":"\n    0\n"}`,
		"{ \"a\" :\t[ ] ,\r\n \"b\" : { } , \"c\" : [ 0 , 2 ] }",
		strings.Repeat(`{"a":`, 200) + "[1,2]" + strings.Repeat("}", 200),
	} {
		f.Add([]byte(object))
	}
	listForms := []string{
		`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"10","remainingItemCount":0},"items":[ITEMS]}` + "\n",
		`{"apiVersion":"x/v1","items":[ITEMS],"kind":"XList","metadata":{"continue":"","resourceVersion":"0"}}` + "\n",
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		object = bytes.TrimSpace(object) // the bytes of an item have no space around them
		if !json.Valid(object) {
			return
		}
		for _, form := range listForms {
			head, tail, _ := bytes.Cut([]byte(form), []byte("ITEMS"))
			for n := range 3 {
				objects := slices.Repeat([]*index.Object{{Bytes: object}}, n)
				whole := slices.Concat(head, bytes.Join(slices.Repeat([][]byte{object}, n), []byte(",")), tail)
				var want, got bytes.Buffer
				if err := json.Indent(&want, bytes.TrimSpace(whole), "", "  "); err != nil {
					return // with the list around it, the object is nested too deeply
				}
				expect.NoError(t, writeIndented(bufio.NewWriter(&got), &body{head: head, objects: objects, tail: tail}))
				expect.Same(t, want.String(), got.String())
			}
		}
	})
}
