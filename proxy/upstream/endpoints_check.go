package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/version"
)

// checkResult is the result of one check of an endpoint.
type checkResult struct {
	state   endpointState
	began   time.Time
	late    bool          // it did not answer in time
	refused bool          // /readyz may not be read
	said    *version.Info // nil: not known
	err     error         // why it is not up
}

func (r checkResult) version() string {
	if r.said == nil {
		return ""
	}
	return r.said.GitVersion
}

// check asks an endpoint whether it is ready, and then, over the same connection, which version it
// is.
func (ep *endpoint) check(ctx context.Context) checkResult {
	began := time.Now()
	result := ep.look(ctx)
	result.began, result.late = began, tooLate(result.err)
	return result
}

// tooLate says whether an error means that no answer came in time.
func tooLate(err error) bool {
	var timed interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timed) && timed.Timeout()
}

// look is check without times.
func (ep *endpoint) look(ctx context.Context) checkResult {
	ctx, cancel := context.WithTimeout(ctx, endpointTimeout)
	defer cancel()
	defer ep.prober.closeIdle()

	state, problem, refused := endpointUp, error(nil), false
	status, _, err := ep.prober.ask(ctx, "readyz", false)
	switch {
	case err != nil:
		return checkResult{state: endpointUnreachable, err: err}
	case status == http.StatusForbidden:
		// The endpoint answers and knows listproxy's account; more may not be allowed.
		refused = true
	case status != http.StatusOK:
		state, problem = endpointNotReady, fmt.Errorf("/readyz answered %d", status)
	}
	said, status, err := ep.prober.Version(ctx)
	switch {
	case err != nil:
		return checkResult{state: endpointUnreachable, err: err}
	case status != http.StatusOK:
		return checkResult{state: state, refused: refused, err: problem}
	}
	return checkResult{state: state, refused: refused, said: &said, err: problem}
}
