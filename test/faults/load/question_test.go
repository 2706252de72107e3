package load

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/ask"
)

// TestRecent: which lists hold all that was written before, and what they are compared with.
func TestRecent(t *testing.T) {
	for query, want := range map[string]bool{
		"": true, "limit=7": true, ask.AnyVersion: false, ask.NotOlderThan(7): false, ask.Exactly(7): false, ask.NextPage(7, "a token"): false,
	} {
		if got := (Question{Query: query}).Recent(); got != want {
			t.Errorf("%q: %t, want %t", query, got, want)
		}
	}
	if got, want := (Question{Query: "limit=7", Limit: 7}).At(5).Query, ask.FirstPage(7, ask.Exactly(5)); got != want {
		t.Errorf("a first page is compared with %q, want %q", got, want)
	}
}

// TestNewest: which lists have an age.
func TestNewest(t *testing.T) {
	for query, want := range map[string]bool{
		"":                               true,
		"limit=7":                        true,
		ask.AnyVersion:                   true,
		ask.NotOlderThan(7):              true,
		ask.Exactly(7):                   false,
		ask.FirstPage(7, ask.Exactly(7)): false,
		ask.NextPage(7, "a token"):       false,
	} {
		if got := (Question{Query: query}).Newest(); got != want {
			t.Errorf("%q: %t, want %t", query, got, want)
		}
	}
}

// TestGeneration: by its label, a list has what is in a generation's namespace, in a query as
// listproxy answers them.
func TestGeneration(t *testing.T) {
	q := Question{Collection: Collection{Pods, AsJSON}, Generation: "g-1", Query: ask.Exactly(7)}
	if want := "/api/v1/pods?labelSelector=generation%3Dg-1&resourceVersion=7&resourceVersionMatch=Exact"; q.Target() != want {
		t.Errorf("it asks for %s", q.Target())
	}
	in := func(namespace, name string) ask.Identity { return ask.Identity{Namespace: namespace, Name: name} }
	chosen, more := q.choose([]ask.Identity{in("faults", "a"), in("g-1", "a"), in("g-1", "b"), in("g-10", "a")})
	if diff := cmp.Diff([]ask.Identity{in("g-1", "a"), in("g-1", "b")}, chosen); diff != "" || more {
		t.Errorf("more: %t, -want +got:\n%s", more, diff)
	}
}

// TestBinaryMetadata reads what kube-apiserver would write.
func TestBinaryMetadata(t *testing.T) {
	known := runtime.NewScheme()
	expect.NoError(t, metav1.AddMetaToScheme(known))
	written := &metav1.PartialObjectMetadataList{
		ListMeta: metav1.ListMeta{ResourceVersion: "9"},
		Items:    []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b", UID: "c", ResourceVersion: "8"}}},
	}
	body, err := runtime.Encode(serializer.NewCodecFactory(known).EncoderForVersion(protobuf.NewSerializer(known, known), metav1.SchemeGroupVersion), written)
	expect.NoError(t, err)
	got, err := AsBinaryMetadata.Read(body)
	want := ask.List{Revision: 9, Objects: []ask.Identity{{Namespace: "a", Name: "b", UID: "c", ResourceVersion: "8"}}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
	if _, err := AsBinaryMetadata.Read([]byte("k8s\x00nothing")); err == nil {
		t.Error("it reads what is none")
	}
}
