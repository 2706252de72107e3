package wire

import (
	"cmp"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/listproxy/listproxy/test/expect"
)

const (
	podInList    = `{"metadata":{"name":"a","namespace":"n","resourceVersion":"5"},"spec":{}}`
	podInEvent   = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"n","resourceVersion":"5"},"spec":{}}`
	widgetAsEver = `{"apiVersion":"x.io/v1","kind":"Widget","metadata":{"name":"a","resourceVersion":"5"}}`
)

// podList is a list of pods as kube-apiserver writes it, with this metadata and these items.
func podList(metadata, items string) string {
	return `{"kind":"PodList","apiVersion":"v1","metadata":{` + metadata + `},"items":[` + items + "]}\n"
}

// widgetList is the same of custom resources.
func widgetList(items, metadata string) string {
	return `{"apiVersion":"x.io/v1","items":[` + items + `],"kind":"WidgetList","metadata":{` + metadata + "}}\n"
}

// jsonLists are of a known form, or not.
var jsonLists = []struct {
	name, body string
	bad        bool
}{
	{name: "built-in, one page", body: podList(`"resourceVersion":"5"`, podInList)},
	{name: "built-in, empty", body: podList(`"resourceVersion":"5"`, "")},
	{name: "built-in, a page", body: podList(`"resourceVersion":"5","continue":"abc","remainingItemCount":4`, podInList)},
	{name: "built-in, a shard", body: podList(`"resourceVersion":"5","continue":"abc","remainingItemCount":4,"shardInfo":{"selector":"x"}`, podInList)},
	{name: "a shard with more", body: podList(`"resourceVersion":"5","shardInfo":{"selector":"x","more":"x"}`, ""), bad: true},
	{
		name: "metadata only, empty",
		body: `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"5"},"items":null}` + "\n",
	},
	{name: "custom, one page", body: widgetList(widgetAsEver, `"continue":"","resourceVersion":"5"`)},
	{name: "custom, a page", body: widgetList(widgetAsEver+","+widgetAsEver, `"continue":"abc","remainingItemCount":4,"resourceVersion":"5"`)},
	{name: "a space more", body: `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"}, "items":[]}` + "\n", bad: true},
	{name: "no newline", body: `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[]}`, bad: true},
	{name: "another order", body: `{"apiVersion":"v1","kind":"PodList","metadata":{"resourceVersion":"5"},"items":[]}` + "\n", bad: true},
	{name: "an unknown member", body: `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[],"more":1}` + "\n", bad: true},
	{name: "unknown metadata", body: podList(`"selfLink":"/","resourceVersion":"5"`, ""), bad: true},
	{name: "space between items", body: podList(`"resourceVersion":"5"`, `{}, {}`), bad: true},
	{name: "garbage", body: `<html>`, bad: true},
	{name: "items twice", body: `{"items":[{"metadata":{}},{}],"items":[]}`, bad: true},
}

// seen is an object as an event brings it.
func seen(t *testing.T, e Encoding, object string) Event {
	t.Helper()
	record := []byte(`{"type":"ADDED","object":` + object + "}")
	if e == (protobufEncoding{}) {
		record = eventOf(t, "ADDED", []byte(object))
	}
	ev, err := e.Event(record)
	expect.NoError(t, err)
	return ev
}

// TestLearnItem: how events write an object is learned from one that a list has, too; if its values differ, nothing
// is learned.
func TestLearnItem(t *testing.T) {
	pod := samplePod("a")
	item, err := pod.Marshal()
	expect.NoError(t, err)
	inProtobuf := string(written(t, pod))
	for _, tt := range []struct {
		name            string
		encoding        Encoding
		inList, inEvent string
		bad             bool
	}{
		{name: "protobuf", encoding: protobufEncoding{}, inList: string(item), inEvent: inProtobuf},
		{name: "another value in protobuf", encoding: protobufEncoding{}, inList: string(item) + "\x7a\x00", inEvent: inProtobuf, bad: true},
		{name: "built-in", inList: podInList, inEvent: podInEvent},
		{name: "custom", inList: widgetAsEver, inEvent: widgetAsEver},
		{name: "another value", inList: podInList, inEvent: `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"b","resourceVersion":"5"}}`, bad: true},
		{
			name: "another order", inList: podInList,
			inEvent: `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"n","resourceVersion":"5"},"spec":{}}`,
			bad:     true,
		},
	} {
		e := cmp.Or[Encoding](tt.encoding, jsonEncoding{})
		form, err := LearnItem(e, []byte(tt.inList), seen(t, e, tt.inEvent))
		if tt.bad != errors.Is(err, ErrForm) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if err != nil {
			continue
		}
		if got, err := e.Cut(form, []byte(tt.inEvent)); err != nil || string(got) != tt.inList {
			t.Errorf("%s: %s, %v, want %s", tt.name, got, err, tt.inList)
		}
	}
	form, err := LearnItem(jsonEncoding{}, []byte(podInList), seen(t, jsonEncoding{}, podInEvent))
	expect.NoError(t, err)
	var contradiction InconsistencyError
	if _, err := (jsonEncoding{}).Cut(form, []byte(widgetAsEver)); !errors.As(err, &contradiction) {
		t.Errorf("an object of another form: %v, want poison", err)
	}
}

// TestCanSelect: only what the upstream has accepted, and the objects hold, may choose.
func TestCanSelect(t *testing.T) {
	envelope := &Envelope{Paths: NewFieldPaths([]Field{{Name: "spec.nodeName", JSON: []string{"spec", "nodeName"}}})}
	for selector, want := range map[string]bool{
		"":                              true,
		"metadata.name=a":               true,
		"spec.nodeName=a":               true,
		"spec.nodeName!=a":              true,
		"metadata.namespace=a":          false, // not accepted
		"status.phase=a":                false,
		"spec.nodeName=a,status.phase=": false,
	} {
		if got := envelope.CanSelect(fields.ParseSelectorOrDie(selector)); got != want {
			t.Errorf("%s: %t", selector, got)
		}
	}
}
