package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// poller requests a list until it comes from memory.
type poller struct {
	client    *http.Client
	url       string
	out       io.Writer
	lastPrint string // the text that printIfNew wrote last
}

// retryInterval is the pause between two requests.
const retryInterval = 500 * time.Millisecond

// forwardedError says that a list was forwarded, and why.
type forwardedError struct{ error }

// run requests the list until it comes from memory. What judge returns for an answer decides what run does next:
//
//	why is                  failure is  run
//	not transient, or None  an error    returns failure
//	None                    nil         returns nil, since the list came from memory
//	not transient           nil         returns a [forwardedError]
//	transient               nil         requests the list again until wait is over, then returns a forwardedError
//	transient               an error    requests the list again until wait is over, then returns failure
func (p *poller) run(ctx context.Context, wait time.Duration) error {
	deadline := time.Now().Add(wait)
	for {
		a, err := p.requestOnce(ctx)
		if err != nil {
			return err
		}
		why, failure := a.judge()
		mayRetry := why.IsTransient()
		if failure != nil && !mayRetry {
			return failure
		}
		p.printIfNew(a, why)
		if why == reason.None {
			return nil
		}
		if !mayRetry {
			return forwardedError{fmt.Errorf("the list did not come from memory: %s", why)}
		}
		if time.Now().Add(retryInterval).After(deadline) { // no time for another request
			timedOut := forwardedError{fmt.Errorf("the list did not come from memory within %v: %s", wait, why)}
			return cmp.Or[error](failure, timedOut) // failure, if there is one
		}
		select {
		case <-time.After(retryInterval):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// answer describes the answer to one request.
type answer struct {
	code        int
	cacheStatus string // the header Cache-Status
	bytes       int64
	duration    time.Duration // from the request to the end of the answer
}

// requestOnce requests the list, and reads the answer to its end.
func (p *poller) requestOnce(ctx context.Context) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url, nil)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Accept", "application/json")
	start := time.Now()
	resp, err := p.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	a := answer{code: resp.StatusCode, cacheStatus: resp.Header.Get(kubehttp.CacheStatusHeader)}
	a.bytes, err = io.Copy(io.Discard, resp.Body)
	a.duration = time.Since(start)
	return a, err
}

// judge says where the answer came from, and whether it is a list:
//
//	answer                             why                             failure
//	a list from memory                 None                            nil
//	a forwarded list                   the reason to forward           nil
//	401, 403, or not from a listproxy  None                            an error
//	another error, such as 503         the reason to forward, or None  an error
func (a answer) judge() (why reason.Reason, failure error) {
	fromMemory, detail := kubehttp.ReadCacheStatus(a.cacheStatus)
	why = reason.Reason(detail) // unless fromMemory
	switch {
	case fromMemory: // always a list
		return reason.None, nil
	case a.code == http.StatusUnauthorized:
		return reason.None, fmt.Errorf("the answer is %d: the kubeconfig's credentials are not accepted", a.code)
	case a.code == http.StatusForbidden:
		return reason.None, fmt.Errorf("the answer is %d: the kubeconfig's user may not list this", a.code)
	case a.code >= http.StatusBadRequest:
		return why, fmt.Errorf("the answer is %d %s, not a list", a.code, http.StatusText(a.code))
	case detail == "": // the answer has no Cache-Status, or one of another cache
		return reason.None, errors.New("the answer has no Cache-Status of listproxy's: the kubeconfig does not lead to " +
			"a listproxy (listproxy kubeconfig makes one that does)")
	}
	return why, nil
}

// printIfNew prints that the list came from memory, or why it was forwarded, unless it would repeat the last text.
func (p *poller) printIfNew(a answer, why reason.Reason) {
	explanation, _ := why.Explain()
	text := fmt.Sprintf("forwarded: %s. %s", why, explanation)
	if why == reason.None {
		size := humanize.IBytes(uint64(a.bytes)) // #nosec G115 -- not negative
		text = fmt.Sprintf("from memory: %s in %v", size, a.duration.Round(100*time.Microsecond))
	}
	if text == p.lastPrint {
		return
	}
	p.lastPrint = text
	// The error is ignored, since the exit code also says whether the list came from memory.
	_, _ = fmt.Fprintf(p.out, "%s\n  Cache-Status: %s\n", text, strings.Map(dropControl, a.cacheStatus))
}
