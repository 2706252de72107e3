package client

import (
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

// run requests the list until it comes from memory. It returns a [forwardedError] if the list is forwarded for a reason
// that is not transient, or is still forwarded when wait is over.
func (p *poller) run(ctx context.Context, wait time.Duration) error {
	deadline := time.Now().Add(wait)
	for {
		a, err := p.request(ctx)
		if err != nil {
			return err
		}
		why, failure := a.judge()
		if failure != nil && !why.IsTransient() {
			return failure
		}
		p.printIfNew(a, why)
		if why == reason.None { // the list came from memory
			return nil
		}
		if !why.IsTransient() {
			return forwardedError{fmt.Errorf("the list did not come from memory: %s", why)}
		}
		isOver := time.Now().Add(retryInterval).After(deadline)
		switch {
		case isOver && failure != nil:
			return failure
		case isOver:
			return forwardedError{fmt.Errorf("the list did not come from memory within %v: %s", wait, why)}
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
	size        int64  // in bytes
	duration    time.Duration
}

// request requests the list once, and reads the answer to its end.
func (p *poller) request(ctx context.Context) (answer, error) {
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
	a.size, err = io.Copy(io.Discard, resp.Body)
	a.duration = time.Since(start)
	return a, err
}

// judge says what the answer means. Without a failure it is a list, and why is the reason for which it was forwarded; None if it
// came from memory. With a failure it is no list, or did not come through a listproxy, and why is the reason in it, or None. If
// that reason is transient, the next request may succeed.
func (a answer) judge() (why reason.Reason, failure error) {
	fromMemory, detail := kubehttp.ReadCacheStatus(a.cacheStatus)
	why = reason.Reason(detail) // as kubehttp.CacheForwarded writes it
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
	var text string
	if why == reason.None {
		size := humanize.IBytes(uint64(a.size)) // #nosec G115 -- not negative
		text = fmt.Sprintf("from memory: %s in %v", size, a.duration.Round(100*time.Microsecond))
	} else {
		explanation, _ := why.Explain()
		text = fmt.Sprintf("forwarded: %s. %s", why, explanation)
	}
	if text == p.lastPrint {
		return
	}
	p.lastPrint = text
	// A failed write is ignored: the exit code, too, says whether the list came from memory.
	_, _ = fmt.Fprintf(p.out, "%s\n  Cache-Status: %s\n", text, strings.Map(dropControl, a.cacheStatus))
}
