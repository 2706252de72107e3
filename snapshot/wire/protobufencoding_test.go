package wire

import (
	"bytes"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/listproxy/listproxy/test/expect"
)

// encodeProtobuf returns an object as the API server's serializer writes it.
func encodeProtobuf(t testing.TB, object runtime.Object) []byte {
	t.Helper()
	scheme := runtime.NewScheme()
	expect.NoError(t, corev1.AddToScheme(scheme))
	var out bytes.Buffer
	expect.NoError(t, protobuf.NewSerializer(scheme, scheme).Encode(object, &out))
	return out.Bytes()
}

// samplePod returns a pod with labels, annotations, and values of selectable fields.
func samplePod(name string) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, ResourceVersion: "7",
			Labels:      map[string]string{"b": "2", "a": "1"},
			Annotations: map[string]string{"x": "y"},
		},
		Spec:   corev1.PodSpec{NodeName: "node-1", HostNetwork: true},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// protobufEvent returns the record of an event, written with apimachinery's types.
func protobufEvent(t testing.TB, eventType string, object []byte) []byte {
	t.Helper()
	record, err := (&metav1.WatchEvent{Type: eventType, Object: runtime.RawExtension{Raw: object}}).Marshal()
	expect.NoError(t, err)
	return record
}

// protobufLists returns lists as the API server's serializer writes them.
func protobufLists(t testing.TB) (all [][]byte) {
	remaining := int64(4)
	podList := metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}
	for _, list := range []runtime.Object{
		&corev1.PodList{TypeMeta: podList, ListMeta: metav1.ListMeta{ResourceVersion: "9"}},
		&corev1.PodList{TypeMeta: podList, ListMeta: metav1.ListMeta{ResourceVersion: "9"}, Items: []corev1.Pod{*samplePod("a"), *samplePod("b")}},
		&corev1.PodList{
			TypeMeta: podList, ListMeta: metav1.ListMeta{ResourceVersion: "9", Continue: "token", RemainingItemCount: &remaining},
			Items: []corev1.Pod{*samplePod("a")},
		},
		&metav1.PartialObjectMetadataList{
			TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"},
			ListMeta: metav1.ListMeta{ResourceVersion: "9"},
			Items:    []metav1.PartialObjectMetadata{{ObjectMeta: samplePod("a").ObjectMeta}},
		},
	} {
		all = append(all, encodeProtobuf(t, list))
	}
	return all
}
