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

// AnswerError is an answer of the upstream that is not a 200.
type AnswerError struct {
	Code    int
	Message string
	// RetryAfter is the time that the upstream asks to wait before the next request; 0 if it asks for none.
	RetryAfter time.Duration
}

func (e *AnswerError) Error() string {
	return fmt.Sprintf("the upstream answered %d %s: %s", e.Code, http.StatusText(e.Code), e.Message)
}

// IsCut reports whether err is a failure of the network: no answer came, or it broke off.
func IsCut(err error) bool {
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// ReadAnswerError returns the AnswerError of an answer. It reads the body up to a bound that no Status exceeds.
func ReadAnswerError(resp *http.Response) *AnswerError {
	e := &AnswerError{Code: resp.StatusCode, RetryAfter: retryAfter(resp.Header)}
	if body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10)); err == nil {
		e.Message = statusMessage(body)
	}
	return e
}

// maxRetryAfter is the longest pause that a Retry-After can cause.
const maxRetryAfter = time.Minute

// retryAfter returns the pause that a Retry-After header demands, in seconds as kube-apiserver writes it.
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
		status, _ := w.status() // after an error the message is empty, which is all that counts here
		return status.message
	}
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil {
		return status.Message
	}
	return ""
}
