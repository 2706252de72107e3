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

// TestTokens: two lists that differ only in their continue tokens are told from lists that differ in more.
//
//   - SameButToken is true if both have a token, and both tokens have the same revision and the same start key. A slash at the
//     beginning of a start key does not count.
//   - OnlyTokenMissing is true if only the second list has a token.
func TestTokens(t *testing.T) {
	newToken := func(revision int64, start string) string {
		return Token{Version: "meta.k8s.io/v1", Revision: revision, Start: start}.Encode()
	}
	const noToken = ""
	token, withoutSlash := newToken(7, "/a\x00"), newToken(7, "a\x00")
	otherStart, otherRevision := newToken(7, "/b\x00"), newToken(8, "/a\x00")
	// compact, indented and protobuf return a list with a token and one item.
	compact := func(token, item string) []byte {
		continueField := ""
		if token != noToken {
			continueField = `,"continue":"` + token + `"`
		}
		return []byte(`{"kind":"L","metadata":{"resourceVersion":"7"` + continueField + `},"items":[{"x":"` + item + `"}]}`)
	}
	indented := func(token, item string) []byte {
		var out bytes.Buffer
		expect.NoError(t, json.Indent(&out, compact(token, item), "", "  "))
		return out.Bytes()
	}
	protobuf := func(token, item string) []byte {
		return configMaps(t, metav1.ListMeta{ResourceVersion: "7", Continue: token}, item)
	}
	for form, newList := range map[string]func(token, item string) []byte{
		"JSON": compact, "indented": indented, "protobuf": protobuf,
	} {
		list := newList(token, "item")
		listWithoutToken := newList(noToken, "item")
		for name, tt := range map[string]struct {
			first, second        []byte
			wantSameButToken     bool
			wantOnlyTokenMissing bool // the second has the token
		}{
			"equal lists":                          {first: list, second: list, wantSameButToken: true},
			"tokens that differ in the slash":      {first: list, second: newList(withoutSlash, "item"), wantSameButToken: true},
			"tokens with another start":            {first: list, second: newList(otherStart, "item")},
			"tokens with another revision":         {first: list, second: newList(otherRevision, "item")},
			"two malformed tokens":                 {first: newList("abc", "item"), second: newList("abd", "item")},
			"another slash and another item":       {first: list, second: newList(withoutSlash, "other")},
			"no token in the first":                {first: listWithoutToken, second: list, wantOnlyTokenMissing: true},
			"no token in the second":               {first: list, second: listWithoutToken},
			"no token in both":                     {first: listWithoutToken, second: listWithoutToken},
			"no token in the first, another item":  {first: listWithoutToken, second: newList(token, "other")},
			"no token in the first, another space": {first: listWithoutToken, second: slices.Concat([]byte(" "), list)},
		} {
			t.Run(form+": "+name, func(t *testing.T) {
				if got := SameButToken(tt.first, tt.second); got != tt.wantSameButToken {
					t.Errorf("SameButToken is %t, want %t", got, tt.wantSameButToken)
				}
				gotToken, got := OnlyTokenMissing(tt.first, tt.second)
				if got != tt.wantOnlyTokenMissing {
					t.Errorf("OnlyTokenMissing is %t, want %t", got, tt.wantOnlyTokenMissing)
				}
				if got && gotToken != token {
					t.Errorf("OnlyTokenMissing returns the token %q, want %q", gotToken, token)
				}
			})
		}
	}
}

// TestMixes: a list may be put together from two others. Then each of its objects is the object at the same place in one of the
// two, and its metadata is that of the two. Here the two are a list of revision 7 with two objects "a", and one with two
// objects "b".
func TestMixes(t *testing.T) {
	inJSON := func(revision, first, second string) []byte {
		return []byte(`{"kind":"L","metadata":{"resourceVersion":"` + revision + `"},"items":[{"x":"` + first + `"},{"x":"` + second + `"}]}`)
	}
	inProtobuf := func(revision, first, second string) []byte {
		return configMaps(t, metav1.ListMeta{ResourceVersion: revision}, first, second)
	}
	for form, newList := range map[string]func(revision, first, second string) []byte{"JSON": inJSON, "protobuf": inProtobuf} {
		twoAs, twoBs := newList("7", "a", "a"), newList("7", "b", "b")
		for name, tt := range map[string]struct {
			mixed []byte
			want  bool
		}{
			"an object of each":  {mixed: newList("7", "a", "b"), want: true},
			"both of the first":  {mixed: twoAs, want: true},
			"an object of none":  {mixed: newList("7", "a", "c")},
			"a revision of none": {mixed: newList("8", "a", "b")},
			"no list":            {mixed: []byte("{}")},
		} {
			if got := Mixes(tt.mixed, twoAs, twoBs); got != tt.want {
				t.Errorf("%s, %s: Mixes is %t, want %t", form, name, got, tt.want)
			}
		}
	}
}
