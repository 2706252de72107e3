package proxy

import (
	stdgzip "compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
)

// indented is an answer that is to be indented.
func indented(a answer) answer {
	a.query.Indented = true
	return a
}

// bodyOf reads an answer, and returns it as it is after decoding.
func bodyOf(t *testing.T, resp *http.Response) string {
	t.Helper()
	defer func() { _ = resp.Body.Close() }()
	var in io.Reader = resp.Body
	if resp.Header.Get("Content-Encoding") == "gzip" {
		z, err := stdgzip.NewReader(resp.Body)
		expect.NoError(t, err)
		in = z
	}
	got, err := io.ReadAll(in)
	expect.NoError(t, err)
	return string(got)
}

// TestIndentedGzipThreshold: it is the indented list that is larger than 128 KiB or not.
func TestIndentedGzipThreshold(t *testing.T) {
	empty := newBody(indented(listOf(1, 0)))
	defer empty.release()
	unpadded := len(listOf(1, 0).snapshot.Page(index.Query{}, nil).Objects[0].Bytes)
	for extra, want := range map[int]string{0: "", 1: "gzip"} {
		a := indented(listOf(1, unpadded+gzipAbove-empty.size+extra))
		resp := write(t, policy.Request{Gzip: true}, a, http.Header{})
		if got := resp.Header.Get("Content-Encoding"); got != want {
			t.Errorf("%d bytes above: %q", extra, got)
		}
		expect.Same(t, gzipAbove+extra, len(bodyOf(t, resp)))
	}
}

// TestUnfitToBeIndented: what json.Indent refuses is not written, nor what would be many times as
// long.
func TestUnfitToBeIndented(t *testing.T) {
	nested := func(depth int, inside string) string {
		return strings.Repeat("[", depth) + inside + strings.Repeat("]", depth)
	}
	pad := `"` + strings.Repeat("x", 16<<20) + `"` // so that the depth alone decides
	const list = 2                                 // levels around each object
	for name, tt := range map[string]struct {
		object string
		unfit  bool
	}{
		"flat":       {`{"a":1}`, false},
		"deep":       {nested(wire.MaxIndentDepth-list, pad), false},
		"too deep":   {nested(wire.MaxIndentDepth-list+1, pad), true},
		"a schema":   {nested(50, `{"description":"what it is","type":"string"}`), false},
		"grows":      {nested(20, strings.Repeat("1,", 100_000)+"1"), true},
		"grows less": {nested(10, strings.Repeat("1,", 100_000)+"1"), false},
		"is short":   {nested(20, strings.Repeat("1,", 1000)+"1"), false},
	} {
		t.Run(name, func(t *testing.T) {
			a := answer{snapshot: snapshot.Fixed(7, "ThingList", "v1", []*index.Object{{Key: "a", Revision: 1, Bytes: []byte(tt.object)}})}
			plain, b := newBody(a), newBody(indented(a))
			defer plain.release()
			defer b.release()
			if b.unfit != tt.unfit {
				t.Errorf("unfit: %t, %d bytes of %d", b.unfit, b.size, plain.size)
			}
			if (b.size == plain.size) != tt.unfit {
				t.Errorf("counted as %d bytes of %d", b.size, plain.size)
			}
		})
	}
	if reason.Representation.Explain() == "" {
		t.Error("the reason to forward it is not explained")
	}
}
