package body

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/listproxy/listproxy/test/expect"
)

var meta = metav1.ListMeta{ResourceVersion: "7", Continue: "abc"}

// encodeProtobuf returns a list as kube-apiserver writes it in protobuf.
func encodeProtobuf(t *testing.T, apiVersion, kind string, list interface{ Marshal() ([]byte, error) }) []byte {
	t.Helper()
	raw, err := list.Marshal()
	expect.NoError(t, err)
	body, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}, Raw: raw}).Marshal()
	expect.NoError(t, err)
	return slices.Concat(protobufMagic, body)
}

// configMaps returns a list in protobuf with a token and one item.
func configMaps(t *testing.T, token, item string) []byte {
	t.Helper()
	return encodeProtobuf(t, "v1", "ConfigMapList", &corev1.ConfigMapList{
		ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: token}, Items: []corev1.ConfigMap{{ObjectMeta: metav1.ObjectMeta{Name: item}}},
	})
}

// TestListMeta: ListMeta reads the metadata of a list in JSON and protobuf, also of v1beta1.
func TestListMeta(t *testing.T) {
	for name, body := range map[string]string{
		"JSON":     `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"abc"},"items":[{"metadata":{"resourceVersion":"1"}}]}`,
		"protobuf": string(configMaps(t, "abc", "a")),
		"v1beta1 in protobuf": string(encodeProtobuf(t, "meta.k8s.io/v1beta1", "PartialObjectMetadataList", &metav1beta1.PartialObjectMetadataList{
			ListMeta: meta, Items: []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1"}}},
		})),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ListMeta([]byte(body))
			expect.NoError(t, err)
			expect.Same(t, meta, got)
		})
	}
}

// TestTokens: SameButToken and OnlyTokenMissing recognize lists that differ in the token only.
func TestTokens(t *testing.T) {
	const same, missing = "SameButToken", "OnlyTokenMissing"
	encoded := func(revision int64, start string) string {
		return Token{Version: "meta.k8s.io/v1", Revision: revision, Start: start}.Encode()
	}
	slashed, unslashed := encoded(7, "/a\x00"), encoded(7, "a\x00")
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
	protobuf := func(token, item string) []byte { return configMaps(t, token, item) }
	for form, list := range map[string]func(token, item string) []byte{"JSON": compact, "indented": indented, "protobuf": protobuf} {
		for name, test := range map[string]struct {
			a, b []byte
			want string // which function reports true; "": neither
		}{
			"only the slash":                   {a: list(slashed, "i"), b: list(unslashed, "i"), want: same},
			"another start":                    {a: list(slashed, "i"), b: list(encoded(7, "/b\x00"), "i")},
			"another revision":                 {a: list(slashed, "i"), b: list(encoded(8, "/a\x00"), "i")},
			"two malformed tokens":             {a: list("abc", "i"), b: list("abd", "i")},
			"another item":                     {a: list(slashed, "i"), b: list(unslashed, "j")},
			"the first has none":               {a: list("", "i"), b: list(slashed, "i"), want: missing},
			"the second has none":              {a: list(slashed, "i"), b: list("", "i")},
			"the first has none, another item": {a: list("", "i"), b: list(slashed, "j")},
			"both have none":                   {a: list("", "i"), b: list("", "i")},
			"the first has none, another form": {a: list("", "i"), b: slices.Concat([]byte(" "), list(slashed, "i"))},
			"equal lists":                      {a: list(slashed, "i"), b: list(slashed, "i"), want: same},
		} {
			t.Run(form+": "+name, func(t *testing.T) {
				if got := SameButToken(test.a, test.b); got != (test.want == same) {
					t.Errorf("SameButToken is %t", got)
				}
				if token, got := OnlyTokenMissing(test.a, test.b); got != (test.want == missing) || got && token != slashed {
					t.Errorf("OnlyTokenMissing is %t with the token %q", got, token)
				}
			})
		}
	}
}
