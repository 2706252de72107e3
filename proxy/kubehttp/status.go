package kubehttp

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// WriteStatus answers r with a metav1.Status of a failure. The JSON and the headers are as kube-apiserver writes them, so
// every Kubernetes client shows the message to its user. The message must have no credential, and should say what to do.
//
// WriteStatus is for listproxy's own refusals. The API server's answers are forwarded, never rebuilt.
func WriteStatus(w http.ResponseWriter, r *http.Request, code int, reason metav1.StatusReason, message string) {
	writeBody(w, r, code, EncodeStatus(code, reason, message))
}

// retryAfterSeconds is the pause after which an overloaded kube-apiserver asks clients to try again (k8s.io/apiserver,
// pkg/server/filters, retryAfter). Clients repeat any request whose answer has Retry-After, even a write. So only answers to
// requests that read, and to requests that were not carried out even in part, may have the header.
const retryAfterSeconds = 1

// WriteTooManyRequests answers r with 429 and Retry-After (see retryAfterSeconds).
func WriteTooManyRequests(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Retry-After", strconv.Itoa(retryAfterSeconds))
	status := newFailure(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
		"Too many requests, please try again later.")
	status.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfterSeconds}
	writeBody(w, r, http.StatusTooManyRequests, encode(status))
}

// WriteUnavailable answers r with 503, and with Retry-After if the client may repeat r (see retryAfterSeconds).
func WriteUnavailable(w http.ResponseWriter, r *http.Request, message string, mayRepeat bool) {
	if mayRepeat {
		w.Header().Set("Retry-After", strconv.Itoa(retryAfterSeconds))
	}
	WriteStatus(w, r, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, message)
}

// WriteTimeout answers a request whose body took too long, as kube-apiserver does
// (WithTimeoutForNonLongRunningRequests in k8s.io/apiserver/pkg/server/filters).
func WriteTimeout(w http.ResponseWriter, r *http.Request) {
	WriteStatus(w, r, http.StatusGatewayTimeout, metav1.StatusReasonTimeout,
		"Timeout: request did not complete within the allotted timeout")
}

// writeBody answers r with an encoded Status.
func writeBody(w http.ResponseWriter, r *http.Request, code int, status []byte) {
	SetStatusHeaders(w.Header(), status)
	SetAuditID(w.Header(), r)
	w.WriteHeader(code)
	if r.Method == http.MethodHead {
		return
	}
	// An error means that the client has left.
	_, _ = w.Write(status)
}

// SetStatusHeaders sets the headers of an answer whose body is an encoded Status.
func SetStatusHeaders(h http.Header, status []byte) {
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(status)))
	h.Set("Cache-Control", "no-cache, private")
}

// EncodeStatus returns the Status of a failure in JSON with a newline at its end, as kube-apiserver's encoder writes it.
func EncodeStatus(code int, reason metav1.StatusReason, message string) []byte {
	return encode(newFailure(code, reason, message))
}

// newFailure returns the Status of a failure.
func newFailure(code int, reason metav1.StatusReason, message string) metav1.Status {
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Message:  message,
		Reason:   reason,
		Code:     int32(code), //nolint:gosec // three digits
	}
}

// encode returns a Status in JSON with a newline at its end.
func encode(status metav1.Status) []byte {
	body, _ := json.Marshal(status) // strings and numbers can always be encoded
	return append(body, '\n')
}

// AuditID returns the Audit-Id for the answer to r: r's own, or a new one at each call. kube-apiserver gives every answer
// an Audit-Id, even a 401 and a 429 (k8s.io/apiserver, WithAuditInit).
func AuditID(r *http.Request) string {
	if id := r.Header.Get(auditv1.HeaderAuditID); id != "" {
		return id
	}
	return uuid.NewString()
}

// SetAuditID sets the Audit-Id of the answer to r to the result of [AuditID].
func SetAuditID(h http.Header, r *http.Request) { h.Set(auditv1.HeaderAuditID, AuditID(r)) }
