package hop

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// Refuse answers in kube-apiserver's place with a Status. It returns true, as [Hop.OnRequest] wants
// it of what has answered.
func Refuse(w http.ResponseWriter, code int) bool {
	w.Header().Set("Content-Type", "application/json")
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(code)
	_, _ = w.Write(inJSON(code))
	return true
}

// ErrorEvent is an ERROR of a watch with a Status, as kube-apiserver writes it: in JSON, or else in
// protobuf.
func ErrorEvent(code int, inProtobuf bool) []byte {
	if inProtobuf {
		return protobufError(code)
	}
	return fmt.Appendf(nil, `{"type":"ERROR","object":%s}`+"\n", inJSON(code))
}

// protobufError is its length (k8s.io/apimachinery, util/framer), and a WatchEvent with the Status
// in the envelope that every object has.
func protobufError(code int) []byte {
	status := failure(code)
	object, err := runtime.Encode(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), &status)
	must(err)
	return framed(metav1.WatchEvent{Type: "ERROR", Object: runtime.RawExtension{Raw: object}})
}

// framed is an event of a watch in protobuf.
func framed(e metav1.WatchEvent) []byte {
	event, err := e.Marshal()
	must(err)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(event))), event...) // #nosec G115 -- of one object
}

func inJSON(code int) []byte {
	status, err := json.Marshal(failure(code))
	must(err)
	return status
}

func failure(code int) metav1.Status {
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Message: "made up by the test", Code: int32(code), // #nosec G115 -- a status code
		Reason: map[int]metav1.StatusReason{
			http.StatusGone:                metav1.StatusReasonExpired,
			http.StatusUnprocessableEntity: metav1.StatusReasonInvalid,
			http.StatusTooManyRequests:     metav1.StatusReasonTooManyRequests,
			http.StatusInternalServerError: metav1.StatusReasonInternalError,
			http.StatusServiceUnavailable:  metav1.StatusReasonServiceUnavailable,
		}[code],
	}
}

// must is for what cannot fail: encoding what is made here.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
