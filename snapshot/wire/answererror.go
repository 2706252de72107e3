package wire

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AnswerError is an error that the upstream has answered: an HTTP status other than 200, or the Status of an ERROR event.
type AnswerError struct {
	Code    int
	Message string
	// RetryAfter is the pause for which the upstream asks before the next request, at most maxRetryAfter; 0 if it asks for none.
	RetryAfter time.Duration
}

func (e *AnswerError) Error() string {
	return fmt.Sprintf("the upstream answered %d %s: %s", e.Code, http.StatusText(e.Code), e.Message)
}

// ReadAnswerError returns the AnswerError of an answer. It reads at most 64 KiB of the body, more than a Status has, and
// does not close it. The message is empty if the body is not a Status.
func ReadAnswerError(resp *http.Response) *AnswerError {
	e := &AnswerError{Code: resp.StatusCode, RetryAfter: retryAfter(resp.Header)}
	if body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10)); err == nil {
		e.Message = readStatus(body).Message
	}
	return e
}

// maxRetryAfter is the longest pause that a Retry-After header can cause.
const maxRetryAfter = time.Minute

// retryAfter returns the pause for which a Retry-After header asks in seconds, as kube-apiserver does. It returns 0 for a
// date, or without the header.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.ParseUint(h.Get("Retry-After"), 10, 31) // A Duration can hold 31 bits of seconds.
	if err != nil {
		return 0
	}
	return min(maxRetryAfter, time.Duration(seconds)*time.Second)
}

// readStatus parses a Status in JSON or protobuf. It returns the zero Status if text is not a Status.
func readStatus(text []byte) (status metav1.Status) {
	wrapper, err := parseWrapper(text) // fails if text is not protobuf
	if err == nil {
		err = status.Unmarshal(wrapper.object)
	} else {
		err = json.Unmarshal(text, &status)
	}
	if err != nil {
		return metav1.Status{}
	}
	return status
}

// eventError returns the error of an ERROR event. object is the event's Status, which says why the upstream ends the watch.
func eventError(object []byte) error {
	status := readStatus(object)
	answer := &AnswerError{Code: int(status.Code), Message: status.Message}
	if answer.Code == 0 {
		answer.Code = http.StatusInternalServerError
	}
	return fmt.Errorf("the watch ended with an error: %w", answer)
}
