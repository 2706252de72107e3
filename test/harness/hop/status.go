package hop

import (
	"encoding/json"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/listproxy/listproxy/test/harness/events"
)

// Refuse answers a request with a Status as kube-apiserver does. It returns true, for use in a function of [Hop.OnRequest].
func Refuse(w http.ResponseWriter, code int) bool {
	w.Header().Set("Content-Type", "application/json")
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(code)
	_, _ = w.Write(inJSON(code))
	return true
}

// ErrorEvent returns an ERROR of a watch with a Status, as kube-apiserver writes it: in protobuf, or else in JSON.
func ErrorEvent(code int, inProtobuf bool) []byte {
	if !inProtobuf {
		return fmt.Appendf(nil, `{"type":"ERROR","object":%s}`+"\n", inJSON(code))
	}
	status := failure(code)
	object, err := runtime.Encode(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), &status)
	must(err)
	return events.ProtobufFrame(watch.Error, object)
}

// inJSON returns a Status in JSON.
func inJSON(code int) []byte {
	status, err := json.Marshal(failure(code))
	must(err)
	return status
}

// failure returns a Status with the reason that belongs to the code.
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

// must panics on an error: an object of this package can always be encoded.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
