package wire

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/test/expect"
)

const (
	// An object of a built-in resource has its kind in an event, but not in a list.
	podInList  = `{"metadata":{"name":"a","namespace":"n","resourceVersion":"5"},"spec":{}}`
	podInEvent = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"n","resourceVersion":"5"},"spec":{}}`
	// An object of a custom resource is the same in both.
	widget = `{"apiVersion":"x.io/v1","kind":"Widget","metadata":{"name":"a","resourceVersion":"5"}}`
)

// podList returns a list of pods as kube-apiserver writes it.
func podList(metadata, items string) string {
	return `{"kind":"PodList","apiVersion":"v1","metadata":{` + metadata + `},"items":[` + items + "]}\n"
}

// widgetList returns a list of custom resources as kube-apiserver writes it.
func widgetList(items, metadata string) string {
	return `{"apiVersion":"x.io/v1","items":[` + items + `],"kind":"WidgetList","metadata":{` + metadata + "}}\n"
}

// jsonLists are bodies for LearnEnvelope. wantErr is nil for the lists that API servers write.
var jsonLists = map[string]struct {
	body    string
	wantErr error
}{
	"built-in, the whole list": {body: podList(`"resourceVersion":"5"`, podInList)},
	"built-in, empty":          {body: podList(`"resourceVersion":"5"`, "")},
	"built-in, the first page": {body: podList(`"resourceVersion":"5","continue":"abc","remainingItemCount":4`, podInList)},
	"built-in, the first page of a shard": {
		body: podList(`"resourceVersion":"5","continue":"abc","remainingItemCount":4,"shardInfo":{"selector":"x"}`, podInList),
	},
	"built-in, escaped as HTML": {body: podList(`"resourceVersion":"5","continue":"\u003c\u003e\u0026"`, podInList)},
	"metadata only, empty": {
		body: `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"5"},"items":null}` + "\n",
	},
	"custom, the whole list": {body: widgetList(widget, `"continue":"","resourceVersion":"5"`)},
	"custom, the first page": {body: widgetList(widget+","+widget, `"continue":"abc","remainingItemCount":4,"resourceVersion":"5"`)},
	"unknown member in shardInfo": {
		body:    podList(`"resourceVersion":"5","shardInfo":{"selector":"x","more":"x"}`, ""),
		wantErr: ErrForm,
	},
	"additional space": {
		body:    `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"}, "items":[]}` + "\n",
		wantErr: ErrForm,
	},
	"no line break": {
		body:    `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[]}`,
		wantErr: ErrForm,
	},
	"other order of members": {
		body:    `{"apiVersion":"v1","kind":"PodList","metadata":{"resourceVersion":"5"},"items":[]}` + "\n",
		wantErr: ErrForm,
	},
	"unknown member": {
		body:    `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[],"more":1}` + "\n",
		wantErr: ErrForm,
	},
	"unknown member in metadata": {body: podList(`"selfLink":"/","resourceVersion":"5"`, ""), wantErr: ErrForm},
	"space between items":        {body: podList(`"resourceVersion":"5"`, `{}, {}`), wantErr: ErrForm},
	"HTML":                       {body: `<html>`, wantErr: ErrForm},
	"repeated items":             {body: `{"items":[{"metadata":{}},{}],"items":[]}`, wantErr: ErrForm},
}

// TestLearnJSONEnvelope: LearnEnvelope accepts lists as API servers write them, and returns ErrForm for other bodies.
func TestLearnJSONEnvelope(t *testing.T) {
	for name, tt := range jsonLists {
		if _, err := LearnEnvelope(jsonEncoding{}, []byte(tt.body), media.JSONType, ""); !errors.Is(err, tt.wantErr) {
			t.Errorf("%s: got error %v, want %v", name, err, tt.wantErr)
		}
	}
}

// eventWith returns an event with an object.
func eventWith(t *testing.T, e Encoding, object string) Event {
	t.Helper()
	record := []byte(`{"type":"ADDED","object":` + object + "}")
	if e == (protobufEncoding{}) {
		record = protobufEvent(t, "ADDED", []byte(object))
	}
	ev, err := ParseEvent(e, record)
	expect.NoError(t, err)
	return ev
}

// TestLearnItem: with the ItemForm that LearnItem returns, ItemOf makes the object in a list from the object in an event. If
// the two objects differ in more than the form, LearnItem returns ErrForm.
func TestLearnItem(t *testing.T) {
	pod := samplePod("a")
	itemInProtobuf, err := pod.Marshal()
	expect.NoError(t, err)
	podInProtobuf := string(encodeProtobuf(t, pod))
	const unknownPodField = 15
	for name, tt := range map[string]struct {
		encoding        Encoding
		inList, inEvent string
		wantErr         error
	}{
		"built-in": {encoding: jsonEncoding{}, inList: podInList, inEvent: podInEvent},
		"custom":   {encoding: jsonEncoding{}, inList: widget, inEvent: widget},
		"another name": {
			encoding: jsonEncoding{},
			inList:   podInList,
			inEvent:  `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"b","resourceVersion":"5"}}`,
			wantErr:  ErrForm,
		},
		"other order of members": {
			encoding: jsonEncoding{},
			inList:   podInList,
			inEvent:  `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"n","resourceVersion":"5"},"spec":{}}`,
			wantErr:  ErrForm,
		},
		"protobuf": {encoding: protobufEncoding{}, inList: string(itemInProtobuf), inEvent: podInProtobuf},
		"another field in protobuf": {
			encoding: protobufEncoding{},
			inList:   string(itemInProtobuf) + field(unknownPodField, ""),
			inEvent:  podInProtobuf,
			wantErr:  ErrForm,
		},
	} {
		t.Run(name, func(t *testing.T) {
			form, err := LearnItem(tt.encoding, []byte(tt.inList), eventWith(t, tt.encoding, tt.inEvent))
			if !errors.Is(err, tt.wantErr) {
				t.Errorf("got error %v, want %v", err, tt.wantErr)
			}
			if err != nil {
				return
			}
			got, err := tt.encoding.ItemOf(form, []byte(tt.inEvent))
			expect.NoError(t, err)
			expect.Same(t, tt.inList, string(got))
		})
	}
}

// TestItemOfAnotherForm: ItemOf returns an InconsistencyError for an object that does not have the ItemForm.
func TestItemOfAnotherForm(t *testing.T) {
	form, err := LearnItem(jsonEncoding{}, []byte(podInList), eventWith(t, jsonEncoding{}, podInEvent))
	expect.NoError(t, err)
	if got, err := (jsonEncoding{}).ItemOf(form, []byte(widget)); !errors.As(err, new(InconsistencyError)) {
		t.Errorf("got %s and error %v, want an InconsistencyError", got, err)
	}
}

// TestCanSelect: CanSelect accepts a selector if the envelope knows all its fields: those of Paths, metadata.name and, if
// HasNamespaceField is set, metadata.namespace.
func TestCanSelect(t *testing.T) {
	envelope := &Envelope{Paths: NewFieldPaths([]Field{{Name: "spec.nodeName", JSON: []string{"spec", "nodeName"}}})}
	for selector, want := range map[string]bool{
		"":                              true,
		"metadata.name=a":               true,
		"spec.nodeName=a":               true,
		"spec.nodeName!=a":              true,
		"metadata.namespace=a":          false, // HasNamespaceField is false
		"status.phase=a":                false,
		"spec.nodeName=a,status.phase=": false,
	} {
		if got := envelope.CanSelect(fields.ParseSelectorOrDie(selector)); got != want {
			t.Errorf("CanSelect of %q: got %t, want %t", selector, got, want)
		}
	}
}
