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

const podForm = `"kind":"Pod","apiVersion":"v1",`

// record is an event, and how its object is written.
type record struct {
	encoding Encoding
	form     ItemForm
	record   []byte
}

// records are events as kube-apiserver 1.36.3 writes them.
func records() map[string]record {
	pod := ItemForm{Known: true, APIVersion: "v1", Kind: "Pod", lead: podForm}
	metadata := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), []byte("a"))
	metadata = appendWireString(metadata, 6, "99")
	metadata = appendWireString(metadata, 2, strings.Repeat("x", 100))
	raw := appendWireString(appendWireBytes(nil, 1, metadata), 2, "spec")
	return map[string]record{
		"built-in": {jsonEncoding{}, pod, []byte(`{"type":"ADDED","object":{` + podForm +
			`"metadata":{"name":"a","namespace":"b","resourceVersion":"99","labels":{"resourceVersion":"1"}},"spec":{}}}` + "\n")},
		"custom":   {jsonEncoding{}, ItemForm{Known: true, APIVersion: "x/v1", Kind: "X"}, []byte(`{"type":"MODIFIED","object":{"apiVersion":"x/v1","kind":"X","metadata":{"name":"a","resourceVersion":"9"},"resourceVersion":"7"}}` + "\n")},
		"protobuf": {protobufEncoding{}, pod, appendEvent(nil, protobufEncoding{}, Deleted, pod, raw)},
	}
}

// event takes a record of a stream apart.
func event(t *testing.T, e Encoding, record []byte) Event {
	t.Helper()
	read, err := e.Record(bufio.NewReader(bytes.NewReader(record)), nil)
	expect.NoError(t, err)
	ev, err := e.Event(read)
	expect.NoError(t, err)
	return ev
}

// TestEventsAreWrittenAsTheyCame: cut, framed again, and the same bytes; at another revision only that changes.
func TestEventsAreWrittenAsTheyCame(t *testing.T) {
	for name, tt := range records() {
		t.Run(name, func(t *testing.T) {
			ev := event(t, tt.encoding, tt.record)
			if !ev.Reproducible {
				t.Error("the frame of the event is not known again")
			}
			item, err := tt.encoding.Cut(tt.form, ev.Object)
			expect.NoError(t, err)
			f := &Envelope{Encoding: tt.encoding, Item: tt.form}
			if got := f.AppendEvent(nil, ev.Type, item); !bytes.Equal(got, tt.record) {
				t.Errorf("written %q\nnot     %q", got, tt.record)
			}
			for _, revision := range []uint64{ev.Meta.Revision, 1, 1234567, 1<<63 - 1} {
				other, err := AtRevision(tt.encoding, item, revision)
				expect.NoError(t, err)
				if meta, err := tt.encoding.Item(other); err != nil || meta.Revision != revision {
					t.Errorf("%v: at %d it says %d", err, revision, meta.Revision)
				}
				if back, err := AtRevision(tt.encoding, other, ev.Meta.Revision); err != nil || !bytes.Equal(back, item) {
					t.Errorf("%v: %q came back as %q", err, item, back)
				}
			}
		})
	}
	for _, e := range []Encoding{jsonEncoding{}, protobufEncoding{}} {
		for _, none := range []string{"", "{}", `{"metadata":{}}`, "\x0a\x00", "\x0a"} {
			if got, err := AtRevision(e, []byte(none), 5); err == nil {
				t.Errorf("%T: %q became %q", e, none, got)
			}
		}
	}
}

// TestRefusedEvents: an ERROR event says why the stream ends. What is no event is an inconsistency.
func TestRefusedEvents(t *testing.T) {
	pod := samplePod("a")
	item, err := pod.Marshal()
	expect.NoError(t, err)
	object := written(t, pod)
	status := written(t, &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Code: 410, Message: "too old"})
	expect.Same(t, "too old", statusMessage(status))
	for e, record := range map[Encoding][]byte{
		protobufEncoding{}: eventOf(t, "ERROR", status),
		jsonEncoding{}:     []byte(`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old","code":410}}`),
	} {
		gone := &AnswerError{}
		if _, err := e.Event(record); !errors.As(err, &gone) || gone.Code != 410 || gone.Message != "too old" {
			t.Errorf("%T: an ERROR event: %v", e, err)
		}
	}
	for e, records := range map[Encoding]map[string]string{
		jsonEncoding{}: {
			"no revision":    `{"type":"ADDED","object":{"metadata":{"name":"a"}}}`,
			"unknown type":   `{"type":"RENAMED","object":{"metadata":{"resourceVersion":"1"}}}`,
			"cut":            `{"type":"ADDED","object":{"metadata":{"resourceVersion":"1"}}`,
			"unknown member": `{"type":"ADDED","more":1,"object":{"metadata":{}}}`,
			"a member twice": `{"type":"ADDED","type":"ADDED","object":{"metadata":{}}}`,
			"not JSON":       "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"\x01\"}}}",
			"a list":         `[]`,
		},
		protobufEncoding{}: {
			"no type":       string(eventOf(t, "", object)),
			"unknown type":  string(eventOf(t, "RENAMED", object)),
			"no object":     string(eventOf(t, "ADDED", nil)),
			"no envelope":   string(eventOf(t, "ADDED", item)),
			"no revision":   string(eventOf(t, "ADDED", written(t, &corev1.Pod{TypeMeta: pod.TypeMeta}))),
			"cut":           string(eventOf(t, "ADDED", object)[:40]),
			"a field more":  string(eventOf(t, "ADDED", object)) + "\x1a\x00",
			"two revisions": string(eventOf(t, "ADDED", []byte(protobufMagic+"\x12\x08\x0a\x06\x32\x011\x32\x012"))),
		},
	} {
		for name, record := range records {
			if ev, err := e.Event([]byte(record)); !errors.As(err, new(InconsistencyError)) {
				t.Errorf("%T, %s: %+v, %v", e, name, ev, err)
			}
		}
	}
}

// TestBookmark: learned from one that came, and written at other revisions.
func TestBookmark(t *testing.T) {
	form := ItemForm{APIVersion: "v1", Kind: "Pod"}
	metadata := appendWireString(appendWireString(nil, 6, "27"), 12, "\x0a\x19k8s.io/initial-events-end\x12\x04true")
	raw := appendWireBytes(nil, 1, metadata)
	for name, tt := range map[string]struct {
		encoding Encoding
		record   []byte
	}{
		"JSON":     {jsonEncoding{}, []byte(`{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"27","annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"containers":null},"status":{}}}` + "\n")},
		"protobuf": {protobufEncoding{}, appendEvent(nil, protobufEncoding{}, Bookmarked, form, raw)},
	} {
		t.Run(name, func(t *testing.T) {
			ev := event(t, tt.encoding, tt.record)
			b, err := LearnBookmark(tt.encoding, ev)
			expect.NoError(t, err)
			if got := b.AppendTo(nil, 27); !bytes.Equal(got, tt.record) {
				t.Errorf("written %q\nnot     %q", got, tt.record)
			}
			later := event(t, tt.encoding, b.AppendTo(nil, 100_000))
			if later.Meta.Revision != 100_000 || !later.Meta.EndsInitial || !later.Reproducible {
				t.Errorf("at another revision: %+v", later)
			}
			ev.Reproducible = false
			if _, err := LearnBookmark(tt.encoding, ev); err == nil {
				t.Error("a bookmark in an unknown frame was learned")
			}
			ev = event(t, tt.encoding, tt.record)
			ev.Type = Added
			if _, err := LearnBookmark(tt.encoding, ev); err == nil {
				t.Error("an object was learned as a bookmark")
			}
		})
	}
}

// FuzzAtRevision: what comes of any bytes has the revision that was asked for, and at its own
// revision it is what it was.
func FuzzAtRevision(f *testing.F) {
	for _, seed := range []string{`{"metadata":{"resourceVersion":"1"}}`, "\x0a\x05\x32\x0312", "\x0a\x08\x0a\x01a\x32\x0312"} {
		f.Add([]byte(seed), uint64(17))
	}
	f.Fuzz(func(t *testing.T, item []byte, revision uint64) {
		revision &= 1<<63 - 1
		for _, e := range []Encoding{jsonEncoding{}, protobufEncoding{}} {
			if e == (jsonEncoding{}) && !validJSON(item) {
				continue
			}
			read, err := e.Item(item)
			if err != nil || read.Revision == 0 {
				continue
			}
			other, err := AtRevision(e, item, revision)
			if err != nil {
				continue
			}
			if is, err := e.Item(other); err != nil || is.Revision != revision {
				t.Fatalf("%T: %q at %d is %q: %v", e, item, revision, other, err)
			}
			back, err := AtRevision(e, other, read.Revision)
			expect.NoError(t, err)
			if again, err := AtRevision(e, back, read.Revision); err != nil || fmt.Sprintf("%x", again) != fmt.Sprintf("%x", back) {
				t.Fatalf("%T: %q became %q: %v", e, back, again, err)
			}
		}
	})
}
