package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AnswerError is an answer of the upstream with another status than 200, or an ERROR event.
type AnswerError struct {
	Code    int
	Message string
	// RetryAfter is the time that the upstream asks its clients to wait before the next request, at most maxRetryAfter; 0 if it
	// does not ask.
	RetryAfter time.Duration
}

func (e *AnswerError) Error() string {
	return fmt.Sprintf("the upstream answered %d %s: %s", e.Code, http.StatusText(e.Code), e.Message)
}

// ReadAnswerError returns the AnswerError of an answer. It reads at most 64 KiB of the body, since a Status has less,
// and does not close it.
func ReadAnswerError(resp *http.Response) *AnswerError {
	e := &AnswerError{Code: resp.StatusCode, RetryAfter: retryAfter(resp.Header)}
	if body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10)); err == nil {
		e.Message = readStatus(body).Message
	}
	return e
}

// maxRetryAfter is the longest pause that a Retry-After can cause.
const maxRetryAfter = time.Minute

// retryAfter returns the pause of a Retry-After header. Like kube-apiserver's, it must be in seconds; others count as 0.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.ParseUint(h.Get("Retry-After"), 10, 31) // 31 bits of seconds fit a Duration
	if err != nil {
		return 0
	}
	return min(maxRetryAfter, time.Duration(seconds)*time.Second)
}

// readStatus returns a Status in JSON or protobuf; the zero Status if text is none.
func readStatus(text []byte) (status metav1.Status) {
	if w, err := parseWrapper(text); err == nil {
		_ = status.Unmarshal(w.object)
	} else if json.Unmarshal(text, &status) != nil {
		return metav1.Status{}
	}
	return status
}

// eventError returns the error for the Status in an ERROR event, with which the upstream says why a watch ends.
func eventError(object []byte) error {
	status := readStatus(object)
	answer := &AnswerError{Code: int(status.Code), Message: status.Message}
	if answer.Code == 0 {
		answer.Code = http.StatusInternalServerError
	}
	return fmt.Errorf("the watch ended with an error: %w", answer)
}

// IsNetworkFailure reports whether err says that no answer came, or that an answer broke off. (With io.EOF the connection
// was closed before an answer.)
func IsNetworkFailure(err error) bool {
	_, isNetError := errors.AsType[net.Error](err)
	return isNetError || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
