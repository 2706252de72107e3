package body

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/listproxy/listproxy/test/expect"
)

// configMaps returns a list in protobuf, as kube-apiserver writes it, with items of these names.
func configMaps(t *testing.T, meta metav1.ListMeta, names ...string) []byte {
	t.Helper()
	list := corev1.ConfigMapList{ListMeta: meta}
	for _, name := range names {
		list.Items = append(list.Items, corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	raw, err := list.Marshal()
	expect.NoError(t, err)
	body, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}, Raw: raw}).Marshal()
	expect.NoError(t, err)
	return slices.Concat(protobufMagic, body)
}

// TestTokens: SameButToken reports true if both lists have a token, with the same revision and the same start except for a
// slash, and are equal otherwise. OnlyTokenMissing reports true if only the second has a token, and they are equal otherwise.
func TestTokens(t *testing.T) {
	encoded := func(revision int64, start string) string {
		return Token{Version: "meta.k8s.io/v1", Revision: revision, Start: start}.Encode()
	}
	slashed, unslashed := encoded(7, "/a\x00"), encoded(7, "a\x00")
	// compact, indented and protobuf return a list with one item and a token; "" means no token.
	compact := func(token, item string) []byte {
		if token != "" {
			token = `,"continue":"` + token + `"`
		}
		return []byte(`{"kind":"L","metadata":{"resourceVersion":"7"` + token + `},"items":[{"x":"` + item + `"}]}`)
	}
	indented := func(token, item string) []byte {
		var out bytes.Buffer
		expect.NoError(t, json.Indent(&out, compact(token, item), "", "  "))
		return out.Bytes()
	}
	protobuf := func(token, item string) []byte {
		return configMaps(t, metav1.ListMeta{ResourceVersion: "7", Continue: token}, item)
	}
	for form, list := range map[string]func(token, item string) []byte{
		"JSON": compact, "indented": indented, "protobuf": protobuf,
	} {
		for name, tt := range map[string]struct {
			a, b        []byte
			wantSame    bool // the result of SameButToken
			wantMissing bool // the result of OnlyTokenMissing
		}{
			"only the slash":                   {a: list(slashed, "i"), b: list(unslashed, "i"), wantSame: true},
			"another start":                    {a: list(slashed, "i"), b: list(encoded(7, "/b\x00"), "i")},
			"another revision":                 {a: list(slashed, "i"), b: list(encoded(8, "/a\x00"), "i")},
			"two malformed tokens":             {a: list("abc", "i"), b: list("abd", "i")},
			"another item":                     {a: list(slashed, "i"), b: list(unslashed, "j")},
			"the first has none":               {a: list("", "i"), b: list(slashed, "i"), wantMissing: true},
			"the second has none":              {a: list(slashed, "i"), b: list("", "i")},
			"the first has none, another item": {a: list("", "i"), b: list(slashed, "j")},
			"both have none":                   {a: list("", "i"), b: list("", "i")},
			"the first has none, other spaces": {a: list("", "i"), b: slices.Concat([]byte(" "), list(slashed, "i"))},
			"equal lists":                      {a: list(slashed, "i"), b: list(slashed, "i"), wantSame: true},
		} {
			t.Run(form+": "+name, func(t *testing.T) {
				if got := SameButToken(tt.a, tt.b); got != tt.wantSame {
					t.Errorf("SameButToken is %t, want %t", got, tt.wantSame)
				}
				token, got := OnlyTokenMissing(tt.a, tt.b)
				if got != tt.wantMissing {
					t.Errorf("OnlyTokenMissing is %t, want %t", got, tt.wantMissing)
				}
				if got && token != slashed {
					t.Errorf("OnlyTokenMissing returns the token %q, want %q", token, slashed)
				}
			})
		}
	}
}

// TestMixes: Mixes reports true for a list whose objects each have the bytes of the object at the same place in one of two
// other lists, and whose metadata are theirs. Here the two lists have the objects "a", "a" and "b", "b".
func TestMixes(t *testing.T) {
	inJSON := func(revision, first, second string) []byte {
		return []byte(`{"kind":"L","metadata":{"resourceVersion":"` + revision + `"},"items":[{"x":"` + first + `"},{"x":"` + second + `"}]}`)
	}
	inProtobuf := func(revision, first, second string) []byte {
		return configMaps(t, metav1.ListMeta{ResourceVersion: revision}, first, second)
	}
	for form, list := range map[string]func(revision, first, second string) []byte{"JSON": inJSON, "protobuf": inProtobuf} {
		twoAs, twoBs := list("7", "a", "a"), list("7", "b", "b")
		for name, tt := range map[string]struct {
			mixed []byte
			want  bool
		}{
			"one of each":      {mixed: list("7", "a", "b"), want: true},
			"the first":        {mixed: twoAs, want: true},
			"another object":   {mixed: list("7", "a", "c")},
			"another revision": {mixed: list("8", "a", "b")},
			"no list":          {mixed: []byte("{}")},
		} {
			if got := Mixes(tt.mixed, twoAs, twoBs); got != tt.want {
				t.Errorf("%s, %s: Mixes is %t, want %t", form, name, got, tt.want)
			}
		}
	}
}
