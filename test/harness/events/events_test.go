package events_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/events"
)

// TestReader: an event says the same in each form, and one that was cut is none.
func TestReader(t *testing.T) {
	object := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: "a", ResourceVersion: "7", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}}
	raw, err := object.Marshal()
	expect.NoError(t, err)
	packed, err := (&runtime.Unknown{Raw: raw}).Marshal()
	expect.NoError(t, err)
	frame, err := (&metav1.WatchEvent{Type: "BOOKMARK", Object: runtime.RawExtension{Raw: append([]byte("k8s\x00"), packed...)}}).Marshal()
	expect.NoError(t, err)
	for contentType, sent := range map[string][]byte{
		ask.JSON:                       []byte(`{"type":"BOOKMARK","object":{"metadata":{"name":"a","resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}}` + "\n"),
		ask.Protobuf + ";stream=watch": append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...), // #nosec G115 -- a short one
	} {
		in := events.NewReader(bytes.NewReader(slices.Concat(sent, sent, sent[:len(sent)-1])), contentType)
		if got, err := in.Frame(); !bytes.Equal(got, sent) || err != nil {
			t.Errorf("%s: %q, %v", contentType, got, err)
		}
		if e, err := in.Next(); err != nil || e.Type != "BOOKMARK" || !e.EndsInitial || e.Meta.Name != "a" || e.Revision != 7 || !bytes.Contains(sent, e.Object) {
			t.Errorf("%s: %+v, %v", contentType, e, err)
		}
		if e, err := in.Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: what was cut is %+v, %v", contentType, e, err)
		}
		if e, err := in.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: behind the end is %+v, %v", contentType, e, err)
		}
		if err := events.SkipInitial(iotest.OneByteReader(bytes.NewReader(sent))); err != nil {
			t.Errorf("%s: %v", contentType, err)
		}
	}
	if e, err := events.NewReader(strings.NewReader(`{"type":"ERROR","object":{"code":410}}`+"\n"), ask.JSON).Next(); err != nil || string(e.Object) != `{"code":410}` {
		t.Errorf("%+v, %v", e, err)
	}
	if err := events.SkipInitial(strings.NewReader("k8s.io/initial-events")); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a list without an end: %v", err)
	}
}
