package source

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/listproxy/listproxy/snapshot/wire"
)

// Answered reports whether err is the upstream's answer with one of these status codes.
func Answered(err error, codes ...int) bool {
	var answer *wire.AnswerError
	return errors.As(err, &answer) && slices.Contains(codes, answer.Code)
}

// IsAnswer reports whether err is an answer of the upstream, or of somebody before it.
func IsAnswer(err error) bool {
	_, ok := errors.AsType[*wire.AnswerError](err)
	return ok
}

// RetryPause returns the pause after an error: the given one, or a longer one that the upstream asks for (Retry-After).
func RetryPause(pause time.Duration, err error) time.Duration {
	if answer, ok := errors.AsType[*wire.AnswerError](err); ok {
		return max(pause, answer.RetryAfter)
	}
	return pause
}

// IsBusy reports whether the API server itself answered that it is overloaded or cannot answer now: it is alive,
// and its watches may work. An answer that is no Status is not the API server's own: a load balancer may have
// lost the API server, and still hold its watches open.
func IsBusy(err error) bool {
	answer, ok := errors.AsType[*wire.AnswerError](err)
	return ok && (answer.Code == http.StatusTooManyRequests || (answer.Code >= http.StatusInternalServerError && answer.Message != ""))
}

// IsUpstreamFailure reports whether err is a failure of the upstream or of the connection to it, whatever the request
// was. (An error that breaks off a stream of HTTP/2, like a ping without an answer, is no [net.Error].)
func IsUpstreamFailure(err error) bool {
	return wire.IsCut(err) || errors.Is(err, wire.ErrEnded) || IsBusy(err) || Answered(err, http.StatusUnauthorized)
}

// Backoff returns the pauses between tries.
func Backoff() wait.Backoff {
	return wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 8, Cap: 10 * time.Second}
}
