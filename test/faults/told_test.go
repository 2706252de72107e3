package faults

import (
	"bytes"
	bytesof "encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/google/go-cmp/cmp"
)

// told ends each watch, as soon as it has something to tell, with an ERROR in its place, as kube-apiserver writes
// it: in JSON and in protobuf. Feeds of both must be told.
func (s *scene) told(code int) time.Time {
	s.Helper()
	var inJSON, inProtobuf atomic.Int32
	over := s.changed(func(r *http.Request, line []byte) ([]byte, error) {
		if bytes.HasPrefix(line, []byte("{")) {
			if ofFeed(r) {
				inJSON.Add(1)
			}
			return jsonError(code), io.EOF
		}
		if ofFeed(r) {
			inProtobuf.Add(1)
		}
		frame, err := protobufError(code)
		if err != nil {
			s.tally.wrong("%v", err)
		}
		return frame, io.EOF
	})
	if inJSON.Load() == 0 || inProtobuf.Load() == 0 {
		s.Errorf("feeds were told %d errors in JSON and %d in protobuf", inJSON.Load(), inProtobuf.Load())
	}
	return over
}

// jsonError is an ERROR of a watch in JSON.
func jsonError(code int) []byte {
	return []byte(`{"type":"ERROR","object":` + failure(code) + "}\n")
}

// protobufError is one of a watch in protobuf: its length (k8s.io/apimachinery, util/framer), and a WatchEvent with
// the Status in the envelope that every object has.
func protobufError(code int) ([]byte, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	var status metav1.Status
	if err := json.Unmarshal([]byte(failure(code)), &status); err != nil {
		return nil, fmt.Errorf("the status of %d: %w", code, err)
	}
	var object bytes.Buffer
	if err := protobuf.NewSerializer(scheme, scheme).Encode(&status, &object); err != nil {
		return nil, fmt.Errorf("the status of %d: %w", code, err)
	}
	event, err := (&metav1.WatchEvent{Type: "ERROR", Object: runtime.RawExtension{Raw: object.Bytes()}}).Marshal()
	if err != nil {
		return nil, fmt.Errorf("the event of %d: %w", code, err)
	}
	return append(bytesof.BigEndian.AppendUint32(nil, uint32(len(event))), event...), nil // #nosec G115 -- a short one
}

// TestErrorsOfWatches: both forms say the same, to readers of apimachinery.
func TestErrorsOfWatches(t *testing.T) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	for _, code := range []int{http.StatusGone, http.StatusTooManyRequests, http.StatusInternalServerError} {
		var inJSON struct {
			Type   string
			Object metav1.Status
		}
		if err := json.Unmarshal(jsonError(code), &inJSON); err != nil {
			t.Fatal(err)
		}
		frame, err := protobufError(code)
		if err != nil {
			t.Fatal(err)
		}
		if length := bytesof.BigEndian.Uint32(frame); int(length) != len(frame)-4 {
			t.Errorf("%d: a length of %d before %d bytes", code, length, len(frame)-4)
		}
		var event metav1.WatchEvent
		if err := event.Unmarshal(frame[4:]); err != nil {
			t.Fatal(err)
		}
		object, _, err := protobuf.NewSerializer(scheme, scheme).Decode(event.Object.Raw, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		status, ok := object.(*metav1.Status)
		if !ok || event.Type != "ERROR" || inJSON.Type != "ERROR" || int(status.Code) != code {
			t.Fatalf("%d: a %s with %#v", code, event.Type, object)
		}
		if diff := cmp.Diff(inJSON.Object, *status); diff != "" {
			t.Errorf("%d (-json +protobuf):\n%s", code, diff)
		}
	}
}
