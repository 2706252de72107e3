package wire

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/test/expect"
)

// podLead is the JSON with which pods begin in events, after the opening brace.
const podLead = `"kind":"Pod","apiVersion":"v1",`

// sampleRecord is the record of an event, as a stream has it.
type sampleRecord struct {
	encoding Encoding
	form     ItemForm // the form of the object
	bytes    []byte
}

// sampleRecords returns records as kube-apiserver 1.36.3 writes them.
func sampleRecords() map[string]sampleRecord {
	pod := ItemForm{Known: true, APIVersion: "v1", Kind: "Pod", lead: podLead}
	const generateNameField, specField = 2, 2 // of ObjectMeta and Pod
	metadata := appendWireField(nil, metaNameField, "a")
	metadata = appendWireField(metadata, metaRevisionField, "99")
	metadata = appendWireField(metadata, generateNameField, strings.Repeat("x", 100)) // metadata's length takes two bytes
	object := appendWireField(appendWireField(nil, metadataField, metadata), specField, "spec")
	return map[string]sampleRecord{
		"built-in": {
			encoding: jsonEncoding{},
			form:     pod,
			bytes: []byte(`{"type":"ADDED","object":{` + podLead +
				`"metadata":{"name":"a","namespace":"b","resourceVersion":"99","labels":{"resourceVersion":"1"}},"spec":{}}}` + "\n"),
		},
		"custom": {
			encoding: jsonEncoding{},
			form:     ItemForm{Known: true, APIVersion: "x/v1", Kind: "X"},
			bytes: []byte(`{"type":"MODIFIED","object":{"apiVersion":"x/v1","kind":"X",` +
				`"metadata":{"name":"a","resourceVersion":"9"},"resourceVersion":"7"}}` + "\n"),
		},
		"protobuf": {
			encoding: protobufEncoding{},
			form:     pod,
			bytes:    (&Envelope{Encoding: protobufEncoding{}, Item: pod}).AppendEvent(nil, Deleted, object),
		},
	}
}

// readEvent reads a stream of one event.
func readEvent(t *testing.T, e Encoding, stream []byte) Event {
	t.Helper()
	record, err := e.ReadRecord(bufio.NewReader(bytes.NewReader(stream)), nil)
	expect.NoError(t, err)
	ev, err := ParseEvent(e, record)
	expect.NoError(t, err)
	return ev
}

// TestAppendEvent: AppendEvent writes an event with the upstream's bytes. ReviseItem changes the revision of an item, and with
// the item's own revision gives its bytes again.
func TestAppendEvent(t *testing.T) {
	for name, tt := range sampleRecords() {
		t.Run(name, func(t *testing.T) {
			ev := readEvent(t, tt.encoding, tt.bytes)
			if !ev.Reproducible {
				t.Error("the event is not Reproducible")
			}
			item, err := tt.encoding.ItemOf(tt.form, ev.Object)
			expect.NoError(t, err)
			envelope := &Envelope{Encoding: tt.encoding, Item: tt.form}
			if got := envelope.AppendEvent(nil, ev.Type, item); !bytes.Equal(got, tt.bytes) {
				t.Errorf("AppendEvent writes %q\nwant %q", got, tt.bytes)
			}
			for _, revision := range []uint64{ev.Meta.Revision, 1, 1234567, 1<<63 - 1} {
				revised := ReviseItem(tt.encoding, item, revision)
				meta, err := tt.encoding.ParseItem(revised)
				expect.NoError(t, err)
				expect.Same(t, revision, meta.Revision)
				back := ReviseItem(tt.encoding, revised, ev.Meta.Revision)
				expect.Same(t, string(item), string(back))
			}
		})
	}
}

// TestErrorEvent: for an ERROR event, ParseEvent returns an AnswerError with the code and the message of the Status.
func TestErrorEvent(t *testing.T) {
	const code, message = 410, "too old"
	status := encodeProtobuf(t, &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Code: code, Message: message})
	expect.Same(t, message, readStatus(status).Message)
	for e, record := range map[Encoding][]byte{
		protobufEncoding{}: protobufEvent(t, "ERROR", status),
		jsonEncoding{}: []byte(
			`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old","code":410}}`),
	} {
		answer := &AnswerError{}
		if _, err := ParseEvent(e, record); !errors.As(err, &answer) || answer.Code != code || answer.Message != message {
			t.Errorf("%T: got error %v, want an AnswerError %d %q", e, err, code, message)
		}
	}
}

// TestRefusedEvents: for a record that is not an event of an API server, ParseEvent returns an InconsistencyError.
func TestRefusedEvents(t *testing.T) {
	const (
		labelKeyField     = 1
		labelValueField   = 2
		unknownEventField = 3
	)
	pod := samplePod("a")
	withoutWrapper, err := pod.Marshal()
	expect.NoError(t, err)
	object := encodeProtobuf(t, pod)
	added := protobufEvent(t, "ADDED", object)
	withoutRevision := encodeProtobuf(t, &corev1.Pod{TypeMeta: pod.TypeMeta})
	secondTypeMeta := appendWireField(slices.Clone(object), wrapperTypeField, "")
	extension := appendWireField(nil, extensionRawField, object)
	twoRawObjects := appendWireField(appendWireField(nil, eventTypeField, "ADDED"), eventObjectField, slices.Concat(extension, extension))
	label := appendWireField(appendWireField(nil, labelKeyField, "a"), labelKeyField, "b")
	label = appendWireField(label, labelValueField, "v")
	metadata := appendWireField(appendWireField(nil, metaRevisionField, "7"), metaLabelsField, label)
	labelWithTwoKeys := appendWireField([]byte(protobufMagic), wrapperObjectField, appendWireField(nil, metadataField, metadata))
	for e, records := range map[Encoding]map[string][]byte{
		jsonEncoding{}: {
			"no revision":    []byte(`{"type":"ADDED","object":{"metadata":{"name":"a"}}}`),
			"unknown type":   []byte(`{"type":"RENAMED","object":{"metadata":{"resourceVersion":"1"}}}`),
			"incomplete":     []byte(`{"type":"ADDED","object":{"metadata":{"resourceVersion":"1"}}`),
			"unknown member": []byte(`{"type":"ADDED","more":1,"object":{"metadata":{}}}`),
			"repeated type":  []byte(`{"type":"ADDED","type":"ADDED","object":{"metadata":{}}}`),
			"invalid JSON":   []byte("{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"\x01\"}}}"),
			"an array":       []byte(`[]`),
		},
		protobufEncoding{}: {
			"no type":                          protobufEvent(t, "", object),
			"unknown type":                     protobufEvent(t, "RENAMED", object),
			"no object":                        protobufEvent(t, "ADDED", nil),
			"no wrapper":                       protobufEvent(t, "ADDED", withoutWrapper),
			"no revision":                      protobufEvent(t, "ADDED", withoutRevision),
			"incomplete":                       added[:40],
			"unknown field":                    appendWireField(slices.Clone(added), unknownEventField, ""),
			"two revisions in the metadata":    protobufEvent(t, "ADDED", []byte(twoRevisions)),
			"a second TypeMeta in the wrapper": protobufEvent(t, "ADDED", secondTypeMeta),
			"two raw objects in the extension": twoRawObjects,
			"two keys of one label":            protobufEvent(t, "ADDED", labelWithTwoKeys),
		},
	} {
		for name, record := range records {
			if ev, err := ParseEvent(e, record); !errors.As(err, new(InconsistencyError)) {
				t.Errorf("%T, %s: got %+v and error %v, want an InconsistencyError", e, name, ev, err)
			}
		}
	}
}

// TestBookmark: Bookmark.AppendTo writes a bookmark like the learned one, at any revision. LearnBookmark returns ErrForm for an
// event of another type, and for an event that is not Reproducible.
func TestBookmark(t *testing.T) {
	form := ItemForm{APIVersion: "v1", Kind: "Pod"}
	const metaAnnotationsField = 12
	const annotationKeyField, annotationValueField = 1, 2
	annotation := appendWireField(nil, annotationKeyField, metav1.InitialEventsAnnotationKey)
	annotation = appendWireField(annotation, annotationValueField, "true")
	metadata := appendWireField(appendWireField(nil, metaRevisionField, "27"), metaAnnotationsField, annotation)
	object := appendWireField(nil, metadataField, metadata)
	for e, record := range map[Encoding][]byte{
		jsonEncoding{}: []byte(`{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":` +
			`{"resourceVersion":"27","annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"containers":null},"status":{}}}` + "\n"),
		protobufEncoding{}: (&Envelope{Encoding: protobufEncoding{}, Item: form}).AppendEvent(nil, Bookmarked, object),
	} {
		t.Run(fmt.Sprintf("%T", e), func(t *testing.T) {
			learned := readEvent(t, e, record)
			b, err := LearnBookmark(e, learned)
			expect.NoError(t, err)
			if got := b.AppendTo(nil, 27); !bytes.Equal(got, record) {
				t.Errorf("the bookmark at its own revision is %q\nwant %q", got, record)
			}
			const laterRevision uint64 = 100_000 // has more digits than the learned revision
			later := readEvent(t, e, b.AppendTo(nil, laterRevision))
			expect.Same(t, laterRevision, later.Meta.Revision)
			expect.Same(t, true, later.EndsInitial)
			expect.Same(t, true, later.Reproducible)

			notReproducible := learned
			notReproducible.Reproducible = false
			added := learned
			added.Type = Added
			for name, ev := range map[string]Event{"not Reproducible": notReproducible, "an ADDED event": added} {
				if _, err := LearnBookmark(e, ev); !errors.Is(err, ErrForm) {
					t.Errorf("%s: got error %v, want %v", name, err, ErrForm)
				}
			}
		})
	}
}

// TestEndsInitial: only a bookmark with kube-apiserver's annotation ends the initial events. Users can give it to their objects.
func TestEndsInitial(t *testing.T) {
	const annotations = `"annotations":{"k8s.io/initial-events-end":"true"},`
	for name, tt := range map[string]struct {
		eventType, annotations string
		want                   bool
	}{
		"the last bookmark of the initial events": {eventType: Bookmarked, annotations: annotations, want: true},
		"a later bookmark":                        {eventType: Bookmarked},
		"an object with the annotation":           {eventType: Added, annotations: annotations},
	} {
		t.Run(name, func(t *testing.T) {
			line := fmt.Sprintf(`{"type":%q,"object":{"metadata":{%s"resourceVersion":"7"}}}`+"\n", tt.eventType, tt.annotations)
			expect.Same(t, tt.want, readEvent(t, jsonEncoding{}, []byte(line)).EndsInitial)
		})
	}
}

// FuzzReviseItem: ReviseItem returns an item with the given revision. It does not change an item that it has written, if the
// item has the given revision already.
func FuzzReviseItem(f *testing.F) {
	f.Add([]byte(`{"metadata":{"resourceVersion":"1"}}`), uint64(17))
	name, revisionField := appendWireField(nil, metaNameField, "a"), appendWireField(nil, metaRevisionField, "12")
	f.Add(appendWireField(nil, metadataField, revisionField), uint64(17))
	f.Add(appendWireField(nil, metadataField, slices.Concat(name, revisionField)), uint64(17))
	f.Fuzz(func(t *testing.T, item []byte, revision uint64) {
		revision &= 1<<63 - 1 // revisions are below 2⁶³
		for _, e := range []Encoding{jsonEncoding{}, protobufEncoding{}} {
			if e == (jsonEncoding{}) && !isValidJSON(item) {
				continue // ReviseItem gets only parts of lists and events, which were validated
			}
			original, err := e.ParseItem(item)
			if err != nil || original.Revision == 0 {
				continue
			}
			revised := ReviseItem(e, item, revision)
			if meta, err := e.ParseItem(revised); err != nil || meta.Revision != revision {
				t.Fatalf("%T: %q at revision %d is %q: %d, %v", e, item, revision, revised, meta.Revision, err)
			}
			back := ReviseItem(e, revised, original.Revision)
			if again := ReviseItem(e, back, original.Revision); !bytes.Equal(again, back) {
				t.Fatalf("%T: %q at its own revision is %q", e, back, again)
			}
		}
	})
}
