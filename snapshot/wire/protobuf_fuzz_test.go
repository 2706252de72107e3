package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/framer"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/test/expect"
)

// twoRevisions is an object whose metadata has two revisions.
var twoRevisions = protobufMagic + field(wrapperObjectField,
	field(metadataField, protobufMessage(field(metaRevisionField, "1"), field(metaRevisionField, "2"))))

// FuzzProtobufObject: if parseWrapper and ParseItem accept an object, they read the wrapper and the metadata that apimachinery
// reads.
func FuzzProtobufObject(f *testing.F) {
	f.Add(encodeProtobuf(f, samplePod("a")))
	f.Add(encodeProtobuf(f, &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Code: 410, Message: "too old", Status: metav1.StatusFailure,
	}))
	f.Add([]byte(twoRevisions))
	f.Add([]byte(protobufMagic + field(wrapperObjectField, field(metadataField, field(metaLabelsField, ""))))) // an empty label
	f.Fuzz(func(t *testing.T, object []byte) {
		wrapper, err := parseWrapper(object)
		if err != nil {
			return
		}
		var unknown runtime.Unknown
		if err := unknown.Unmarshal(object[len(protobufMagic):]); err != nil {
			t.Fatalf("apimachinery refuses the wrapper: %v", err)
		}
		if wrapper.apiVersion != unknown.APIVersion || wrapper.kind != unknown.Kind || !bytes.Equal(wrapper.object, unknown.Raw) {
			t.Errorf("got wrapper %+v, want %+v as apimachinery", wrapper, unknown)
		}
		got, err := protobufEncoding{}.ParseItem(wrapper.object)
		if err != nil {
			return
		}
		var want metav1.PartialObjectMetadata
		if want.Unmarshal(wrapper.object) != nil {
			return // apimachinery also reads the fields that ParseItem skips, and may refuse them
		}
		checkItem(t, got, &want)
	})
}

// FuzzProtobufList: if LearnEnvelope accepts a list, ParseList reads the items and the metadata that apimachinery reads, and
// Render writes the same bytes. LearnEnvelope accepts lists of API servers, and refuses parts of them.
func FuzzProtobufList(f *testing.F) {
	learn := func(body []byte) (*Envelope, error) {
		return LearnEnvelope(protobufEncoding{}, body, media.ProtobufType, "")
	}
	for _, body := range protobufLists(f) {
		_, err := learn(body)
		expect.NoError(f, err)
		for _, n := range []int{1, len(body) / 2, len(body) - 1} {
			if _, err := learn(body[:n]); !errors.Is(err, ErrForm) {
				f.Errorf("%d of %d bytes: %v, want %v", n, len(body), err, ErrForm)
			}
		}
		f.Add(body)
	}
	f.Add([]byte(protobufMagic + field(wrapperObjectField, field(listItemsField, "")))) // one empty item, and no metadata
	f.Add([]byte(protobufMagic))
	f.Fuzz(func(t *testing.T, body []byte) {
		envelope, err := learn(body)
		if err != nil {
			return
		}
		got, err := protobufEncoding{}.ParseList(body)
		expect.NoError(t, err)
		if again := envelope.Render(got.Meta, got.Items); !bytes.Equal(again, body) {
			t.Errorf("Render writes %q for the list\n%q", again, body)
		}
		wrapper, err := parseWrapper(body)
		expect.NoError(t, err)
		var want metav1.PartialObjectMetadataList
		if want.Unmarshal(wrapper.object) == nil {
			checkList(t, protobufEncoding{}, got, &want)
		}
	})
}

// checkProtobufEvent requires that ParseEvent refuses a record, or reads the event that apimachinery reads. The event must be
// Reproducible if and only if apimachinery writes the same event with the same bytes.
func checkProtobufEvent(t *testing.T, record []byte) {
	t.Helper()
	ev, err := ParseEvent(protobufEncoding{}, record)
	if err != nil {
		return
	}
	var want metav1.WatchEvent
	expect.NoError(t, want.Unmarshal(record))
	if ev.Type != want.Type || !bytes.Equal(ev.Object, want.Object.Raw) {
		t.Errorf("got event %s %q, want %s %q as apimachinery", ev.Type, ev.Object, want.Type, want.Object.Raw)
	}
	if ev.Meta.Revision == 0 {
		t.Errorf("an event without a revision is accepted: %q", record)
	}
	var wrapper runtime.Unknown
	expect.NoError(t, wrapper.Unmarshal(ev.Object[len(protobufMagic):]))
	object, err := wrapper.Marshal()
	expect.NoError(t, err)
	again := protobufEvent(t, ev.Type, append([]byte(protobufMagic), object...))
	if isReproducible := bytes.Equal(again, record); ev.Reproducible != isReproducible {
		t.Errorf("%q: Reproducible is %t, want %t", record, ev.Reproducible, isReproducible)
	}
}

// FuzzProtobufStream: ReadRecord reads the records that client-go reads. It returns an InconsistencyError for a record that is
// too long, and ErrEnded at the end. If ParseEvent accepts a record, it reads the event that apimachinery reads.
func FuzzProtobufStream(f *testing.F) {
	object := encodeProtobuf(f, samplePod("a"))
	record := protobufEvent(f, "ADDED", object)
	// withLength returns content behind a length, which may be wrong.
	withLength := func(length int, content []byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(length)), content...) // #nosec G115 -- lengths of this test
	}
	whole := withLength(len(record), record)
	f.Add(slices.Concat(whole, whole))
	f.Add(slices.Concat(whole, whole[:len(whole)/2]))
	f.Add([]byte{0, 0})                              // half a length
	f.Add(withLength(0, withLength(1, []byte("x")))) // an empty record, and a record of one byte
	f.Add(withLength(maxEvent, record))              // The stream ends inside the record.
	f.Add(withLength(maxEvent+1, record))            // The record is too long.
	for _, eventType := range []string{"ADDED", "BOOKMARK", "ERROR", ""} {
		f.Add(protobufEvent(f, eventType, object))
	}
	f.Add([]byte(string(record) + field(eventTypeField, "")))   // with a second type
	f.Add([]byte(string(record) + field(eventObjectField, ""))) // with a second object
	f.Fuzz(func(t *testing.T, stream []byte) {
		// The whole stream is also tried as one record. Few of the fuzzer's streams begin with a right length.
		checkProtobufEvent(t, stream)
		theirs := framer.NewLengthDelimitedFrameReader(io.NopCloser(bytes.NewReader(stream)))
		ours := bufio.NewReader(bytes.NewReader(stream))
		buffer := make([]byte, len(stream)+1)
		rest := stream // the part of the stream that was not read yet
		for {
			record, err := (protobufEncoding{}).ReadRecord(ours, nil)
			if err != nil {
				isTooLong := len(rest) >= lengthPrefix && binary.BigEndian.Uint32(rest) > maxEvent
				if isTooLong && !errors.As(err, new(InconsistencyError)) {
					t.Errorf("a record that is too long: got error %v, want an InconsistencyError", err)
				}
				if !isTooLong && !errors.Is(err, ErrEnded) {
					t.Errorf("at the end of the stream: got error %v, want %v", err, ErrEnded)
				}
				return
			}
			if len(record) == 0 {
				return // An empty record has no event, and client-go's framer does not support it.
			}
			n, err := theirs.Read(buffer)
			if err != nil || !bytes.Equal(buffer[:n], record) {
				t.Fatalf("got record %q, want %q as client-go (%v)", record, buffer[:n], err)
			}
			checkProtobufEvent(t, record)
			rest = rest[lengthPrefix+len(record):]
		}
	})
}
