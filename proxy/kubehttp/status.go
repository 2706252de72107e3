package kubehttp

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// WriteStatus answers r with a metav1.Status of a failure, in JSON, with the
// members and headers of one that kube-apiserver writes, so that every
// Kubernetes client shows the message to its user. Headers already set on w are
// kept. The message must not hold a credential; a full stop at its end and a
// hint at what to do are welcome.
//
// It is for listproxy's own refusals. The API server's answers are forwarded, never
// rebuilt.
func WriteStatus(w http.ResponseWriter, r *http.Request, code int, reason metav1.StatusReason, message string) {
	writeStatusBody(w, r, code, EncodeStatus(code, reason, message))
}

// retryAfterSeconds is the pause that kube-apiserver asks of clients when it is
// overloaded (k8s.io/apiserver, pkg/server/filters, retryAfter).
const retryAfterSeconds = 1

// WriteTooManyRequests answers r with 429 and asks the client to come back in a
// second, in a header as kube-apiserver does and in a metav1.Status besides.
// Clients repeat any request for that, writes too: nothing of it may have been
// forwarded, unless it only reads what kube-apiserver has.
func WriteTooManyRequests(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Retry-After", strconv.Itoa(retryAfterSeconds))
	status := failure(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
		"Too many requests, please try again later.")
	status.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfterSeconds}
	writeStatusBody(w, r, http.StatusTooManyRequests, encode(status))
}

// writeStatusBody writes an answer with the encoded Status as its body.
func writeStatusBody(w http.ResponseWriter, r *http.Request, code int, body []byte) {
	SetStatusHeaders(w.Header(), body)
	SetAuditID(w.Header(), r)
	w.WriteHeader(code)
	if r.Method == http.MethodHead {
		return
	}
	// An error means that the client has gone; there is nobody left to tell.
	_, _ = w.Write(body)
}

// SetAuditID gives the answer to r its [AuditID].
func SetAuditID(h http.Header, r *http.Request) { h.Set(auditv1.HeaderAuditID, AuditID(r)) }

// AuditID returns the Audit-Id of the answer to r: the one that r has, or a new one at each call, as
// kube-apiserver gives it to all answers, a 401 and a 429 included (k8s.io/apiserver,
// WithAuditInit). kube-apiserver's audit log does not have listproxy's own answers.
func AuditID(r *http.Request) string {
	if id := r.Header.Get(auditv1.HeaderAuditID); id != "" {
		return id
	}
	return uuid.NewString()
}

// EncodeStatus returns the JSON of a failure, with the newline at its end that
// kube-apiserver's encoder writes.
func EncodeStatus(code int, reason metav1.StatusReason, message string) []byte {
	return encode(failure(code, reason, message))
}

// failure returns the Status of a failure.
func failure(code int, reason metav1.StatusReason, message string) metav1.Status {
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Message:  message,
		Reason:   reason,
		Code:     int32(code), //nolint:gosec // three digits
	}
}

// encode returns the JSON of a Status and a newline.
func encode(status metav1.Status) []byte {
	body, _ := json.Marshal(status) // strings and numbers can always be encoded
	return append(body, '\n')
}

// SetStatusHeaders sets the headers that belong to the body of a Status.
func SetStatusHeaders(h http.Header, body []byte) {
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-cache, private")
}

// WriteUnavailable answers r with 503. With mayRepeat it asks the client to come back in a second, which
// clients then do with any request, writes too: nothing of it may have been carried out, unless it
// only reads.
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
