package hop

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

// ErrorEvent is an ERROR of a watch with a Status, which is given in JSON, as kube-apiserver writes it: in JSON, or
// else in protobuf.
func ErrorEvent(status []byte, inProtobuf bool) ([]byte, error) {
	if !inProtobuf {
		return fmt.Appendf(nil, `{"type":"ERROR","object":%s}`+"\n", status), nil
	}
	return protobufError(status)
}

// protobufError is its length (k8s.io/apimachinery, util/framer), and a WatchEvent with the Status in the envelope
// that every object has.
func protobufError(from []byte) ([]byte, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	var status metav1.Status
	if err := json.Unmarshal(from, &status); err != nil {
		return nil, fmt.Errorf("the status %s: %w", from, err)
	}
	var object bytes.Buffer
	if err := protobuf.NewSerializer(scheme, scheme).Encode(&status, &object); err != nil {
		return nil, fmt.Errorf("the status %s: %w", from, err)
	}
	event, err := (&metav1.WatchEvent{Type: "ERROR", Object: runtime.RawExtension{Raw: object.Bytes()}}).Marshal()
	if err != nil {
		return nil, fmt.Errorf("the event of %s: %w", from, err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(event))), event...), nil // #nosec G115 -- a short one
}
