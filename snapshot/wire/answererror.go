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
	// RetryAfter is the time that the upstream asks its clients to wait before the next request; 0 if it does not ask.
	RetryAfter time.Duration
}

func (e *AnswerError) Error() string {
	return fmt.Sprintf("the upstream answered %d %s: %s", e.Code, http.StatusText(e.Code), e.Message)
}

// IsCut reports whether err is a failure of the network: no answer came, or an answer broke off.
func IsCut(err error) bool {
	_, isNetError := errors.AsType[net.Error](err)
	return isNetError || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// ReadAnswerError returns the AnswerError of an answer. It reads the body up to a bound that no Status exceeds, and does
// not close it.
func ReadAnswerError(resp *http.Response) *AnswerError {
	e := &AnswerError{Code: resp.StatusCode, RetryAfter: retryAfter(resp.Header)}
	if body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10)); err == nil {
		e.Message = statusMessage(body)
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

// statusMessage returns the message of a Status in JSON or protobuf, or "".
func statusMessage(body []byte) string {
	if w, err := parseWrapper(body); err == nil {
		status, _ := w.status() // the message is only for people, so an error does not matter
		return status.message
	}
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil {
		return status.Message
	}
	return ""
}

// asError returns the error for the Status in an ERROR event, with which the upstream says why a watch ends.
func (m ObjectMeta) asError() error {
	answer := &AnswerError{Code: m.code, Message: m.message}
	if answer.Code == 0 {
		answer.Code = http.StatusInternalServerError
	}
	return fmt.Errorf("the watch ended with an error: %w", answer)
}
