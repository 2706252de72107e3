package body

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/listproxy/listproxy/test/expect"
)

func TestSameToken(t *testing.T) {
	encoded := func(revision int64, start string) string {
		return Token{Version: "meta.k8s.io/v1", Revision: revision, Start: start}.Encode()
	}
	for name, test := range map[string]struct {
		a, b string
		want bool
	}{
		"equal":            {encoded(7, "/a/b\x00"), encoded(7, "/a/b\x00"), true},
		"only the slash":   {encoded(7, "/a/b\x00"), encoded(7, "a/b\x00"), true},
		"another revision": {encoded(7, "/a/b\x00"), encoded(8, "/a/b\x00"), false},
		"another start":    {encoded(7, "/a/b\x00"), encoded(7, "/a/c\x00"), false},
		"no tokens":        {"x", "y", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := SameToken(test.a, test.b); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// protobufList is a list as the API server writes it.
func protobufList(t *testing.T, token, item string) []byte {
	t.Helper()
	list := corev1.ConfigMapList{
		ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: token},
		Items:    []corev1.ConfigMap{{ObjectMeta: metav1.ObjectMeta{Name: item}}},
	}
	raw, err := list.Marshal()
	expect.NoError(t, err)
	body, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}, Raw: raw}).Marshal()
	expect.NoError(t, err)
	return append(bytes.Clone(protobufMagic), body...)
}

// TestOldMetadataList: there, the metadata come after the items.
func TestOldMetadataList(t *testing.T) {
	list := metav1beta1.PartialObjectMetadataList{
		ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: "abc"},
		Items:    []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1"}}},
	}
	raw, err := list.Marshal()
	expect.NoError(t, err)
	kind := runtime.TypeMeta{APIVersion: "meta.k8s.io/v1beta1", Kind: "PartialObjectMetadataList"}
	body, err := (&runtime.Unknown{TypeMeta: kind, Raw: raw}).Marshal()
	expect.NoError(t, err)
	got, err := ListMeta(append(bytes.Clone(protobufMagic), body...))
	expect.NoError(t, err)
	if diff := cmp.Diff(list.ListMeta, got); diff != "" {
		t.Error(diff)
	}
}

func TestOnlyTokenMissing(t *testing.T) {
	const next = "abc"
	list := func(token, item string) []byte {
		if token != "" {
			token = `,"continue":"` + token + `"`
		}
		return []byte(`{"kind":"L","metadata":{"resourceVersion":"7"` + token + `},"items":[{"x":"` + item + `"}]}`)
	}
	indented := func(token, item string) []byte {
		var out bytes.Buffer
		expect.NoError(t, json.Indent(&out, list(token, item), "", "  "))
		return out.Bytes()
	}
	for name, test := range map[string]struct {
		a, b []byte
		want bool
	}{
		"indented":                {indented("", "i"), indented(next, "i"), true},
		"indented, another item":  {indented("", "i"), indented(next, "j"), false},
		"indented, one of them":   {list("", "i"), indented(next, "i"), false},
		"json":                    {list("", "i"), list(next, "i"), true},
		"json, both":              {list(next, "i"), list(next, "i"), false},
		"json, none":              {list("", "i"), list("", "i"), false},
		"json, the other way":     {list(next, "i"), list("", "i"), false},
		"json, another item":      {list("", "i"), list(next, "j"), false},
		"protobuf":                {protobufList(t, "", "i"), protobufList(t, next, "i"), true},
		"protobuf, another item":  {protobufList(t, "", "i"), protobufList(t, next, "j"), false},
		"protobuf, the other way": {protobufList(t, next, "i"), protobufList(t, "", "i"), false},
	} {
		t.Run(name, func(t *testing.T) {
			token, got := OnlyTokenMissing(test.a, test.b)
			if got != test.want || got && token != next {
				t.Errorf("got %q, %v, want %v", token, got, test.want)
			}
		})
	}
}

func TestListMeta(t *testing.T) {
	for name, body := range map[string]string{
		"built-in":        `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"abc"},"items":[{"metadata":{"resourceVersion":"1"}}]}`,
		"custom resource": `{"apiVersion":"x/v1","items":[{"metadata":{"resourceVersion":"1"}}],"kind":"XList","metadata":{"continue":"abc","resourceVersion":"7"}}` + "\n",
		"indented":        "{\n  \"kind\": \"ConfigMapList\",\n  \"metadata\": {\n    \"resourceVersion\": \"7\",\n    \"continue\": \"abc\"\n  },\n  \"items\": []\n}",
		"table":           `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7","continue":"abc"},"columnDefinitions":[],"rows":[]}`,
		"protobuf":        string(protobufList(t, "abc", "a")),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ListMeta([]byte(body))
			expect.NoError(t, err)
			if diff := cmp.Diff(metav1.ListMeta{ResourceVersion: "7", Continue: "abc"}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSameButToken(t *testing.T) {
	with := Token{Version: "meta.k8s.io/v1", Revision: 7, Start: "/a\x00"}.Encode()
	without := Token{Version: "meta.k8s.io/v1", Revision: 7, Start: "a\x00"}.Encode()
	other := Token{Version: "meta.k8s.io/v1", Revision: 7, Start: "/b\x00"}.Encode()
	list := func(token, item string) []byte {
		return []byte(`{"kind":"L","metadata":{"resourceVersion":"7","continue":"` + token + `"},"items":[{"x":"` + item + `"}]}`)
	}
	for name, test := range map[string]struct {
		a, b []byte
		want bool
	}{
		"json, only the slash":     {list(with, "i"), list(without, "i"), true},
		"json, another start":      {list(with, "i"), list(other, "i"), false},
		"json, another item":       {list(with, "i"), list(without, "j"), false},
		"protobuf, only the slash": {protobufList(t, with, "i"), protobufList(t, without, "i"), true},
		"protobuf, another start":  {protobufList(t, with, "i"), protobufList(t, other, "i"), false},
		"protobuf, another item":   {protobufList(t, with, "i"), protobufList(t, without, "j"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := SameButToken(test.a, test.b); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// TestHeaderDifference: what the package's documentation allows to differ, and nothing else.
