package hop_test

import (
	"encoding/binary"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/hop"
)

// TestErrorsOfWatches: both forms say the same, to readers of apimachinery.
func TestErrorsOfWatches(t *testing.T) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	for _, code := range []int{http.StatusGone, http.StatusTooManyRequests, http.StatusInternalServerError} {
		var inJSON struct {
			Type   string
			Object metav1.Status
		}
		expect.NoError(t, json.Unmarshal(hop.ErrorEvent(code, false), &inJSON))
		frame := hop.ErrorEvent(code, true)
		if length := binary.BigEndian.Uint32(frame); int(length) != len(frame)-4 {
			t.Errorf("%d: a length of %d before %d bytes", code, length, len(frame)-4)
		}
		var event metav1.WatchEvent
		expect.NoError(t, event.Unmarshal(frame[4:]))
		object, _, err := protobuf.NewSerializer(scheme, scheme).Decode(event.Object.Raw, nil, nil)
		expect.NoError(t, err)
		status, ok := object.(*metav1.Status)
		if !ok || event.Type != "ERROR" || inJSON.Type != "ERROR" || int(status.Code) != code {
			t.Fatalf("%d: a %s with %#v", code, event.Type, object)
		}
		if diff := cmp.Diff(inJSON.Object, *status); diff != "" {
			t.Errorf("%d (-json +protobuf):\n%s", code, diff)
		}
	}
}
