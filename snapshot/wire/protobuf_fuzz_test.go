package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/framer"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/test/expect"
)

// FuzzProtobufObject: of an object in its wrapper that is accepted apimachinery reads the same.
func FuzzProtobufObject(f *testing.F) {
	f.Add(written(f, samplePod("a")))
	f.Add(written(f, &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Code: 410, Message: "too old", Status: metav1.StatusFailure,
	}))
	f.Add(append([]byte(protobufMagic), 0x12, 8, 0x0a, 6, 0x32, 1, '1', 0x32, 1, '2'))
	f.Add(append([]byte(protobufMagic), 0x12, 4, 0x0a, 2, 0x5a, 0))
	f.Fuzz(func(t *testing.T, object []byte) {
		wrapper, err := parseWrapper(object)
		if err != nil {
			return
		}
		var unknown runtime.Unknown
		if err := unknown.Unmarshal(object[len(protobufMagic):]); err != nil {
			t.Fatalf("apimachinery does not open what is accepted: %v", err)
		}
		if wrapper.apiVersion != unknown.APIVersion || wrapper.kind != unknown.Kind || !bytes.Equal(wrapper.object, unknown.Raw) {
			t.Errorf("%+v, apimachinery reads %+v", wrapper, unknown)
		}
		got, err := protobufEncoding{}.meta(object)
		if err != nil {
			return
		}
		if wrapper.kind == "Status" && wrapper.apiVersion == "v1" {
			var want metav1.Status
			if want.Unmarshal(wrapper.object) == nil && (got.code != int(want.Code) || got.message != want.Message) {
				t.Errorf("%d %q, apimachinery reads %d %q", got.code, got.message, want.Code, want.Message)
			}
			return
		}
		var want metav1.PartialObjectMetadata
		if want.Unmarshal(wrapper.object) != nil {
			return // some other field
		}
		sameMeta(t, got, &want)
	})
}

// FuzzProtobufList: a list as apimachinery writes it is accepted, and nothing that is cut. One that is accepted
// says the same to apimachinery, and is written again in the same bytes.
func FuzzProtobufList(f *testing.F) {
	learn := func(body []byte) (*Envelope, List, error) {
		return LearnEnvelope(protobufEncoding{}, body, media.ProtobufType, "")
	}
	for _, body := range protobufLists(f) {
		_, _, err := learn(body)
		expect.NoError(f, err)
		for _, cut := range []int{1, len(body) / 2, len(body) - 1} {
			if _, _, err := learn(body[:cut]); !errors.Is(err, ErrForm) {
				f.Errorf("%d of %d bytes: %v, want %v", cut, len(body), err, ErrForm)
			}
		}
		f.Add(body)
	}
	f.Add(append([]byte(protobufMagic), 0x12, 2, 0x12, 0))
	f.Add([]byte(protobufMagic))
	f.Fuzz(func(t *testing.T, body []byte) {
		envelope, got, err := learn(body)
		if err != nil {
			return
		}
		if again := envelope.Render(got.Meta, got.Items); !bytes.Equal(again, body) {
			t.Errorf("%q is written again as\n%q", body, again)
		}
		wrapper, err := parseWrapper(body)
		expect.NoError(t, err)
		var want metav1.PartialObjectMetadataList
		if want.Unmarshal(wrapper.object) == nil {
			sameList(t, protobufEncoding{}, got, &want)
		}
	})
}

// checkProtobufEvent: what is accepted as an event is one, to the last byte. It is said to be framed where
// apimachinery writes the same bytes, and nowhere else.
func checkProtobufEvent(t *testing.T, record []byte) {
	t.Helper()
	ev, err := protobufEncoding{}.Event(record)
	if err != nil {
		return
	}
	var want metav1.WatchEvent
	if err := want.Unmarshal(record); err != nil || want.Type != ev.Type || !bytes.Equal(want.Object.Raw, ev.Object) || ev.Meta.Revision == 0 {
		t.Errorf("%q at %d, apimachinery reads %q, %v", ev.Type, ev.Meta.Revision, want.Type, err)
	}
	var wrapper runtime.Unknown
	expect.NoError(t, wrapper.Unmarshal(ev.Object[len(protobufMagic):]))
	object, err := wrapper.Marshal()
	expect.NoError(t, err)
	if again := eventOf(t, ev.Type, append([]byte(protobufMagic), object...)); ev.Reproducible != bytes.Equal(again, record) {
		t.Errorf("%q is framed as ever: %t", record, ev.Reproducible)
	}
}

// FuzzProtobufStream: the records of a watch are those that client-go would read from it.
func FuzzProtobufStream(f *testing.F) {
	object := written(f, samplePod("a"))
	record := eventOf(f, "ADDED", object)
	frame := func(size uint32, content []byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, size), content...)
	}
	whole := frame(uint32(len(record)), record)
	f.Add(append(whole, whole...))
	f.Add(append(whole, whole[:30]...))
	f.Add([]byte{0, 0})
	f.Add(frame(0, frame(1, []byte("x"))))
	f.Add(frame(maxEvent, record))
	f.Add(frame(maxEvent+1, record))
	for _, kind := range []string{"ADDED", "BOOKMARK", "ERROR", ""} {
		f.Add(eventOf(f, kind, object))
	}
	f.Add(append(bytes.Clone(record), 0x0a, 0)) // a field more
	f.Add(append(bytes.Clone(record), 0x12, 0))
	f.Fuzz(func(t *testing.T, stream []byte) {
		checkProtobufEvent(t, stream) // most mutations of a whole stream are cut
		theirs := framer.NewLengthDelimitedFrameReader(io.NopCloser(bytes.NewReader(stream)))
		ours := bufio.NewReader(bytes.NewReader(stream))
		buffer, rest := make([]byte, len(stream)+1), stream
		var record []byte
		for {
			var err error
			if record, err = (protobufEncoding{}).Record(ours, record[:0]); err != nil {
				isLong := len(rest) >= lengthPrefix && binary.BigEndian.Uint32(rest) > maxEvent
				if errors.As(err, new(InconsistencyError)) != isLong || errors.Is(err, ErrEnded) == isLong {
					t.Errorf("%v, of a record that is too long: %t", err, isLong)
				}
				return
			}
			if len(record) == 0 {
				return // client-go's framer has no such thing, and it is no event either
			}
			n, err := theirs.Read(buffer)
			if err != nil || !bytes.Equal(buffer[:n], record) {
				t.Fatalf("%q, client-go reads %q, %v", record, buffer[:n], err)
			}
			checkProtobufEvent(t, record)
			rest = rest[lengthPrefix+len(record):]
		}
	})
}
