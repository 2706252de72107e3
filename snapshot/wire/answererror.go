package wire

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AnswerError is the error for an answer of the upstream with an HTTP status other than 200, or for an ERROR event.
type AnswerError struct {
	// Code is the HTTP status, or the code of the event's Status.
	Code int
	// Message is the message of the Status in the answer or the event; "" if there is none.
	Message string
	// RetryAfter is the pause before the next request for which the upstream asks, at most maxRetryAfter; 0 if it asks for
	// none.
	RetryAfter time.Duration
}

func (e *AnswerError) Error() string {
	return fmt.Sprintf("the upstream answered %d %s: %s", e.Code, http.StatusText(e.Code), e.Message)
}

// ReadAnswerError returns the AnswerError for an answer. It reads at most 64 KiB of the body, more than a Status has, and
// does not close it.
func ReadAnswerError(resp *http.Response) *AnswerError {
	e := &AnswerError{Code: resp.StatusCode, RetryAfter: requestedPause(resp.Header)}
	if body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10)); err == nil {
		e.Message = readStatus(body).Message
	}
	return e
}

// maxRetryAfter is the longest pause that a Retry-After header can cause.
const maxRetryAfter = time.Minute

// requestedPause returns the pause that a Retry-After header requests in seconds, as kube-apiserver writes it. It returns 0 for
// a date, and if there is no such header.
func requestedPause(h http.Header) time.Duration {
	seconds, err := strconv.ParseUint(h.Get("Retry-After"), 10, 31) // 31 bits of seconds fit a Duration.
	if err != nil {
		return 0
	}
	return min(maxRetryAfter, time.Duration(seconds)*time.Second)
}

// readStatus parses a Status in JSON or protobuf. It returns the zero Status if encoded is not a Status.
func readStatus(encoded []byte) (status metav1.Status) {
	wrapper, err := parseWrapper(encoded)
	if err == nil { // It is protobuf.
		err = status.Unmarshal(wrapper.object)
	} else {
		err = json.Unmarshal(encoded, &status)
	}
	if err != nil {
		return metav1.Status{}
	}
	return status
}

// eventError returns the error for an ERROR event. The event's object is a Status that says why the upstream ends the watch.
func eventError(object []byte) error {
	status := readStatus(object)
	code := cmp.Or(int(status.Code), http.StatusInternalServerError)
	return fmt.Errorf("the watch ended with an error: %w", &AnswerError{Code: code, Message: status.Message})
}
