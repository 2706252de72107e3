package ask_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/ask"
)

// TestReadList: a list says the same in each representation.
func TestReadList(t *testing.T) {
	pods := &corev1.PodList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"},
		ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: "a token"},
		Items: []corev1.Pod{
			{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b", UID: "c", ResourceVersion: "5"}},
			{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "d", UID: "e", ResourceVersion: "6"}},
		},
	}
	want := ask.List{Revision: 7, Next: "a token", Objects: []ask.Identity{{"a", "b", "c", "5"}, {"a", "d", "e", "6"}}}
	var binary bytes.Buffer
	expect.NoError(t, protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(pods, &binary))
	got, err := ask.ReadList(ask.Protobuf, binary.Bytes())
	expect.NoError(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("protobuf (-want +got):\n%s", diff)
	}

	first := `{"metadata": {"namespace": "a", "name": "b", "uid": "c", "resourceVersion": "5"}}`
	second := `{ "metadata": {"namespace": "a", "name": "d", "uid": "e", "resourceVersion": "6"} }`
	want.Items = []json.RawMessage{json.RawMessage(first), json.RawMessage(second)}
	text := `{"metadata": {"resourceVersion": "7", "continue": "a token"}, "items": [` + first + "," + second + "]}"
	for _, accept := range []string{ask.JSON, ask.Metadata} {
		got, err := ask.ReadList(accept, []byte(text))
		expect.NoError(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", accept, diff)
		}
	}
}

// TestReadListFails: what is no list, or is cut, is not taken for an empty one.
func TestReadListFails(t *testing.T) {
	for _, tt := range []struct{ accept, body string }{
		{ask.JSON, ""},
		{ask.JSON, `{"metadata": {"resourceVersion": "7"}, "items": [{`},
		{ask.JSON, `{"kind": "Status", "metadata": {}}`},
		{ask.JSON, `{"metadata": {"resourceVersion": "x"}, "items": []}`},
		{ask.Protobuf, ""},
		{ask.Protobuf, "k8s\x00garbage"},
	} {
		if l, err := ask.ReadList(tt.accept, []byte(tt.body)); err == nil {
			t.Errorf("%q as %s is %+v", tt.body, tt.accept, l)
		}
	}
}
