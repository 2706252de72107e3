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
	// RetryAfter is the time for which the upstream wants to be left alone; 0 if it does not say.
	RetryAfter time.Duration
}

func (e *AnswerError) Error() string {
	return fmt.Sprintf("the upstream answered %d %s: %s", e.Code, http.StatusText(e.Code), e.Message)
}

// IsCut reports whether err is one of the network: no answer came, or it broke off.
func IsCut(err error) bool {
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// ReadAnswerError makes one of an answer, and reads its body as far as that may matter.
func ReadAnswerError(resp *http.Response) *AnswerError {
	e := &AnswerError{Code: resp.StatusCode, RetryAfter: retryAfter(resp.Header)}
	if body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10)); err == nil {
		e.Message = statusMessage(body)
	}
	return e
}

// longestRetry bounds what an upstream can make a feed wait by its word.
const longestRetry = time.Minute

// retryAfter is what a Retry-After header says, in seconds as kube-apiserver writes it.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.ParseUint(h.Get("Retry-After"), 10, 31)
	if err != nil {
		return 0
	}
	return min(longestRetry, time.Duration(seconds)*time.Second)
}

// statusMessage is the message of a Status in either encoding, or "".
func statusMessage(body []byte) string {
	if e, err := unwrap(body); err == nil {
		status, _ := protobufStatus(e) // without a message it is as good as none
		return status.message
	}
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil {
		return status.Message
	}
	return ""
}
