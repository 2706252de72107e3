package wire

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/test/expect"
)

// podEventMembers is the JSON with which pods begin in events, after the opening brace.
const podEventMembers = `"kind":"Pod","apiVersion":"v1",`

// sampleRecord is the record of an event: its bytes in a stream.
type sampleRecord struct {
	encoding Encoding
	form     ItemForm // how the object differs in a list
	bytes    []byte
}

// sampleRecords returns records as kube-apiserver 1.36.3 writes them.
func sampleRecords() map[string]sampleRecord {
	pod := ItemForm{Known: true, APIVersion: "v1", Kind: "Pod", eventMembers: podEventMembers}
	const metaGenerateNameField, podSpecField = 2, 2
	metadata := protobufMessage(
		field(metaNameField, "a"),
		field(metaRevisionField, "99"),
		field(metaGenerateNameField, strings.Repeat("x", 100)), // So long that the length of the metadata takes two bytes.
	)
	protobufItem := protobufMessage(field(metadataField, metadata), field(podSpecField, "spec"))
	return map[string]sampleRecord{
		"built-in": {
			encoding: jsonEncoding{},
			form:     pod,
			bytes: []byte(`{"type":"ADDED","object":{` + podEventMembers +
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
			bytes:    (&Envelope{Encoding: protobufEncoding{}, ItemForm: pod}).AppendEvent(nil, Deleted, []byte(protobufItem)),
		},
	}
}

// field returns the bytes of a protobuf field: its tag, its length and its content.
func field(number protowire.Number, content string) string {
	return string(appendWireField(nil, number, content))
}

// protobufMessage returns the bytes of the message with these fields.
func protobufMessage(fields ...string) string { return strings.Join(fields, "") }

// readEvent reads the only event of a stream.
func readEvent(t *testing.T, e Encoding, stream []byte) Event {
	t.Helper()
	record, err := e.ReadRecord(bufio.NewReader(bytes.NewReader(stream)), nil)
	expect.NoError(t, err)
	ev, err := ParseEvent(e, record)
	expect.NoError(t, err)
	return ev
}

// TestAppendEvent: AppendEvent writes an event with the upstream's bytes. ReviseItem changes the revision of an item, and with
// the old revision changes it back to the same bytes.
func TestAppendEvent(t *testing.T) {
	for name, tt := range sampleRecords() {
		t.Run(name, func(t *testing.T) {
			ev := readEvent(t, tt.encoding, tt.bytes)
			if !ev.Reproducible {
				t.Error("the event is not Reproducible")
			}
			item, err := tt.encoding.ItemOf(tt.form, ev.Object)
			expect.NoError(t, err)
			envelope := &Envelope{Encoding: tt.encoding, ItemForm: tt.form}
			if got := envelope.AppendEvent(nil, ev.Type, item); !bytes.Equal(got, tt.bytes) {
				t.Errorf("AppendEvent writes %q\nwant %q", got, tt.bytes)
			}
			const oneDigit, mostDigits uint64 = 1, 1<<63 - 1
			for _, revision := range []uint64{ev.Meta.Revision, oneDigit, 1234567, mostDigits} {
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
	const statusInJSON = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old","code":410}`
	want := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Code: 410, Message: "too old"}
	for e, record := range map[Encoding][]byte{
		protobufEncoding{}: protobufEvent(t, "ERROR", encodeProtobuf(t, &want)),
		jsonEncoding{}:     []byte(`{"type":"ERROR","object":` + statusInJSON + `}`),
	} {
		got := &AnswerError{}
		_, err := ParseEvent(e, record)
		if !errors.As(err, &got) || got.Code != int(want.Code) || got.Message != want.Message {
			t.Errorf("%T: got error %v, want an AnswerError %d %q", e, err, want.Code, want.Message)
		}
	}
}

// TestRefusedEvents: for a record that is not an event of an API server, ParseEvent returns an InconsistencyError.
func TestRefusedEvents(t *testing.T) {
	// The records in protobuf are made below, since their bytes cannot be read in the table.
	const labelKeyField, labelValueField = 1, 2
	const unknownEventField = 3
	pod := samplePod("a")
	item, err := pod.Marshal()
	expect.NoError(t, err)
	object := encodeProtobuf(t, pod)
	added := protobufEvent(t, "ADDED", object)
	podWithoutRevision := encodeProtobuf(t, &corev1.Pod{TypeMeta: pod.TypeMeta})

	rawObject := field(extensionRawField, string(object))
	twoRawObjects := protobufMessage(field(eventTypeField, "ADDED"), field(eventObjectField, rawObject+rawObject))

	labelWithTwoKeys := protobufMessage(field(labelKeyField, "a"), field(labelKeyField, "b"), field(labelValueField, "v"))
	metadata := protobufMessage(field(metaRevisionField, "7"), field(metaLabelsField, labelWithTwoKeys))
	podWithTwoKeys := protobufMagic + field(wrapperObjectField, field(metadataField, metadata))
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
			"no wrapper":                       protobufEvent(t, "ADDED", item),
			"no revision":                      protobufEvent(t, "ADDED", podWithoutRevision),
			"incomplete":                       added[:len(added)/2],
			"unknown field":                    []byte(string(added) + field(unknownEventField, "")),
			"two revisions in the metadata":    protobufEvent(t, "ADDED", []byte(twoRevisions)),
			"a second TypeMeta in the wrapper": protobufEvent(t, "ADDED", []byte(string(object)+field(wrapperTypeField, ""))),
			"two raw objects in the extension": []byte(twoRawObjects),
			"two keys of one label":            protobufEvent(t, "ADDED", []byte(podWithTwoKeys)),
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
	// Both bookmarks are at revision 27, and have the annotation with which the initial events end.
	annotation := protobufMessage(field(annotationKeyField, metav1.InitialEventsAnnotationKey), field(annotationValueField, "true"))
	metadata := protobufMessage(field(metaRevisionField, "27"), field(metaAnnotationsField, annotation))
	protobufItem := []byte(field(metadataField, metadata))
	for e, record := range map[Encoding][]byte{
		jsonEncoding{}: []byte(`{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":` +
			`{"resourceVersion":"27","annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"containers":null},"status":{}}}` + "\n"),
		protobufEncoding{}: (&Envelope{Encoding: protobufEncoding{}, ItemForm: form}).AppendEvent(nil, Bookmarked, protobufItem),
	} {
		t.Run(fmt.Sprintf("%T", e), func(t *testing.T) {
			learned := readEvent(t, e, record)
			b, err := LearnBookmark(e, learned)
			expect.NoError(t, err)
			if got := b.AppendTo(nil, learned.Meta.Revision); !bytes.Equal(got, record) {
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

// TestEndsInitial: only a bookmark with kube-apiserver's annotation ends the initial events. An object with the annotation does
// not: users may set it.
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

// FuzzReviseItem: ReviseItem returns an item with the given revision. An item that ReviseItem has written stays the same if it
// is revised to the revision that it has already.
func FuzzReviseItem(f *testing.F) {
	const newRevision uint64 = 17
	for _, item := range []string{
		`{"metadata":{"resourceVersion":"1"}}`,
		field(metadataField, field(metaRevisionField, "12")),
		field(metadataField, protobufMessage(field(metaNameField, "a"), field(metaRevisionField, "12"))),
	} {
		f.Add([]byte(item), newRevision)
	}
	f.Fuzz(func(t *testing.T, item []byte, revision uint64) {
		revision &= 1<<63 - 1 // revisions are below 2⁶³
		for _, e := range []Encoding{jsonEncoding{}, protobufEncoding{}} {
			if e == (jsonEncoding{}) && !isValidJSON(item) {
				continue // ReviseItem gets only parts of lists and events, which were validated.
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
