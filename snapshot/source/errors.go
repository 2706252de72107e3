package source

import (
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/listproxy/listproxy/snapshot/wire"
)

// Answered reports whether err is an answer of the upstream with one of these status codes. For example, Answered(err, 403,
// 404) is true if a request for a list was answered with 404.
func Answered(err error, codes ...int) bool {
	answer, ok := errors.AsType[*wire.AnswerError](err)
	return ok && slices.Contains(codes, answer.Code)
}

// IsAnswer reports whether err is an answer with any status code, from the upstream or from a load balancer in front of it.
func IsAnswer(err error) bool {
	_, ok := errors.AsType[*wire.AnswerError](err)
	return ok
}

// RetryPause returns the pause before another try after err: the given pause, or the upstream's Retry-After if that is longer.
func RetryPause(pause time.Duration, err error) time.Duration {
	if answer, ok := errors.AsType[*wire.AnswerError](err); ok {
		return max(pause, answer.RetryAfter)
	}
	return pause
}

// IsBusy reports whether the API server itself answered that it is overloaded or cannot answer now: a 429, or any 5xx with a
// Status. After such an answer, the API server is known to be alive, and its watches may work.
//
// A 5xx without a Status is from a load balancer. The load balancer may have lost the API server and still hold its watches
// open.
func IsBusy(err error) bool {
	answer, ok := errors.AsType[*wire.AnswerError](err)
	if !ok {
		return false
	}
	hasStatus := answer.Message != "" // Only a Status has a message (see wire.ReadAnswerError).
	return answer.Code == http.StatusTooManyRequests || (answer.Code >= http.StatusInternalServerError && hasStatus)
}

// IsUpstreamFailure reports whether err is a failure of the upstream or of the connection to it, and not of the request. A 401
// counts as a failure of the upstream: it cannot check listproxy's own credentials now.
func IsUpstreamFailure(err error) bool {
	return isNetworkFailure(err) || errors.Is(err, wire.ErrEnded) || IsBusy(err) || Answered(err, http.StatusUnauthorized)
}

// isNetworkFailure reports whether err says that no answer came, or that an answer broke off. Every error of an http.Client is
// a [url.Error], and so a [net.Error]. io.EOF says that the connection was closed before an answer, and io.ErrUnexpectedEOF
// that it was closed inside an answer.
func isNetworkFailure(err error) bool {
	_, isNetError := errors.AsType[net.Error](err)
	return isNetError || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
