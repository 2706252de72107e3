package faults

import (
	"bytes"
	bytesof "encoding/binary"
	"encoding/json"
	"errors"
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

	"github.com/listproxy/listproxy/test/harness/hop"
)

// told ends each watch, as soon as it has something to tell, with an ERROR in its place, as kube-apiserver writes
// it: in JSON and in protobuf. Feeds of both must be told.
func (s *scene) told(code int) time.Time {
	s.Helper()
	var inJSON, inProtobuf atomic.Int32
	over := s.changed(func(r *http.Request, line []byte) ([]byte, error) {
		binary := !bytes.HasPrefix(line, []byte("{"))
		if ofFeed(r) {
			if binary {
				inProtobuf.Add(1)
			} else {
				inJSON.Add(1)
			}
		}
		event, err := hop.ErrorEvent([]byte(failure(code)), binary)
		if err != nil {
			s.tally.wrong("%v", err)
		}
		return event, io.EOF
	})
	if inJSON.Load() == 0 || inProtobuf.Load() == 0 {
		s.Errorf("feeds were told %d errors in JSON and %d in protobuf", inJSON.Load(), inProtobuf.Load())
	}
	return over
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
		line, err1 := hop.ErrorEvent([]byte(failure(code)), false)
		frame, err2 := hop.ErrorEvent([]byte(failure(code)), true)
		if err := errors.Join(err1, err2, json.Unmarshal(line, &inJSON)); err != nil {
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
