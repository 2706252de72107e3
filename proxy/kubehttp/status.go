package kubehttp

import (
	"encoding/json"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WriteStatus answers r with a metav1.Status of a failure. The JSON and the headers are as kube-apiserver writes them, so
// every Kubernetes client shows the message to its user. The message must have no credential, and should say what to do.
//
// WriteStatus is for listproxy's own refusals. The API server's answers are forwarded, never rebuilt.
func WriteStatus(w http.ResponseWriter, r *http.Request, code int, reason metav1.StatusReason, message string) {
	writeBody(w, r, code, EncodeStatus(code, reason, message))
}

// retryAfterSeconds is the pause after which an overloaded kube-apiserver asks clients to try again (k8s.io/apiserver,
// pkg/server/filters, retryAfter).
const retryAfterSeconds = 1

// WriteTooManyRequests answers r with 429 and Retry-After. It must only be called if no part of r was carried out.
func WriteTooManyRequests(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Retry-After", strconv.Itoa(retryAfterSeconds))
	status := newFailure(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "Too many requests, please try again later.")
	status.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfterSeconds}
	writeBody(w, r, http.StatusTooManyRequests, encode(status))
}

// WriteUnavailable answers r with 503, and with Retry-After if mayRepeat is true. Clients repeat any request whose answer has
// Retry-After, even a write. So mayRepeat may be true only if r reads, or if no part of it was carried out.
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
