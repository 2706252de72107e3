package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/kubehttp"
)

const (
	// defaultPath is the path of a small list, the namespaces.
	defaultPath = "/api/v1/namespaces?resourceVersion=0"
	// retryInterval is the pause between two requests.
	retryInterval = 500 * time.Millisecond
	// answerTimeout is how long after --wait the last request may be answered. It may begin just before --wait is over, and
	// listproxy itself may have to wait for kube-apiserver.
	answerTimeout = time.Minute
)

// NewTryCommand returns the command that requests a list and says where the answer came from. userAgent is the
// User-Agent of the requests.
func NewTryCommand(userAgent string) *cobra.Command {
	var kubeconfig, contextName string
	path := defaultPath // PreRunE replaces it with the argument, if any
	var wait time.Duration
	var allowForwarded bool
	cmd := &cobra.Command{
		Use:   "try [PATH]",
		Short: "Ask for a list, and say where the answer came from",
		Long: `Asks for a list as the client that a kubeconfig describes, and says where the answer came
from: from memory, or from kube-apiserver and why. While the reason is transient (the
resource is being loaded, for example), it asks again, for --wait at most.
The exit code is 0 only if the list came from memory.

  (umask 077; listproxy kubeconfig > proxy.kubeconfig)
  listproxy try --kubeconfig proxy.kubeconfig
  listproxy try --kubeconfig proxy.kubeconfig '/api/v1/namespaces/default/pods?resourceVersion=0'`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		PreRunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				path = args[0]
			}
			if _, err := url.ParseRequestURI(path); err != nil || !strings.HasPrefix(path, "/") {
				return fmt.Errorf("%q is not a path like %s", path, defaultPath)
			}
			if wait < 0 {
				return fmt.Errorf("--wait %v is negative: give a duration, or 0 to ask once", wait)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := kubeconfigLoader(kubeconfig, contextName).ClientConfig()
			if err != nil {
				return fmt.Errorf("the kubeconfig of the client (--kubeconfig, or %s): %w", usualKubeconfig, err)
			}
			cfg.UserAgent = userAgent
			client, err := kubehttp.NewClient(cfg)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), wait+answerTimeout)
			defer cancel()
			p := poller{client: client, url: strings.TrimSuffix(cfg.Host, "/") + path, out: cmd.OutOrStdout()}
			err = p.run(ctx, wait)
			if _, forwarded := errors.AsType[forwardedError](err); forwarded && allowForwarded {
				return nil
			}
			return err
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&kubeconfig, "kubeconfig", "",
		"`file` of the client, which leads to listproxy; without it, "+usualKubeconfig)
	fs.StringVar(&contextName, "context", "", "`name` of the context; without it, the current one")
	fs.DurationVar(&wait, "wait", 30*time.Second,
		"how long to ask again while the list is forwarded for a transient reason; 0: ask once")
	fs.BoolVar(&allowForwarded, "allow-forwarded", false, "exit with 0, too, if the list was forwarded")
	return cmd
}

// forwardedError says that a list was forwarded, and why.
type forwardedError struct{ error }

// poller requests a list until it comes from memory.
type poller struct {
	client    *http.Client
	url       string
	out       io.Writer
	lastPrint string // the text that print wrote last
}

// answer describes the answer to one request.
type answer struct {
	code        int
	cacheStatus string // the header Cache-Status
	size        int64  // in bytes
	duration    time.Duration
}

// run requests the list until it comes from memory. It returns a [forwardedError] if the list is forwarded for a reason
// that is not transient, or is still forwarded when wait is over.
func (p *poller) run(ctx context.Context, wait time.Duration) error {
	deadline := time.Now().Add(wait)
	for {
		a, err := p.request(ctx)
		if err != nil {
			return err
		}
		why, err := a.whyForwarded()
		if err != nil {
			return err
		}
		p.print(a, why)
		if why == reason.None { // the list came from memory
			return nil
		}
		if !why.IsTransient() {
			return forwardedError{fmt.Errorf("the list did not come from memory: %s", why)}
		}
		if time.Now().Add(retryInterval).After(deadline) {
			if err := a.failure(); err != nil {
				return err
			}
			return forwardedError{fmt.Errorf("the list did not come from memory within %v: %s", wait, why)}
		}
		select {
		case <-time.After(retryInterval):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
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

// whyForwarded returns the reason why the list was forwarded, or reason.None if it came from memory. It returns an error if
// the answer is not a list, or did not come through a listproxy.
func (a answer) whyForwarded() (reason.Reason, error) {
	fromMemory, detail := kubehttp.ReadCacheStatus(a.cacheStatus)
	switch {
	case fromMemory: // always a list
		return reason.None, nil
	case a.code == http.StatusUnauthorized:
		return reason.None, fmt.Errorf("the answer is %d: the kubeconfig's credentials are not accepted", a.code)
	case a.code == http.StatusForbidden:
		return reason.None, fmt.Errorf("the answer is %d: the kubeconfig's user may not list this", a.code)
	case a.code >= http.StatusBadRequest && !reason.Reason(detail).IsTransient(): // for a transient reason, run asks again
		return reason.None, a.failure()
	case detail == "": // the answer has no Cache-Status, or one of another cache
		return reason.None, errors.New("the answer has no Cache-Status of listproxy's: the kubeconfig does not lead to " +
			"a listproxy (listproxy kubeconfig makes one that does)")
	}
	return reason.Reason(detail), nil // as kubehttp.CacheForwarded writes it
}

// failure returns an error if the answer is an error of the API server.
func (a answer) failure() error {
	if a.code >= http.StatusBadRequest {
		return fmt.Errorf("the answer is %d %s, not a list", a.code, http.StatusText(a.code))
	}
	return nil
}

// print prints where the answer came from, and why it was forwarded, unless it would repeat the last text.
func (p *poller) print(a answer, why reason.Reason) {
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
	// A failed write is ignored: the exit code says the same.
	_, _ = fmt.Fprintf(p.out, "%s\n  Cache-Status: %s\n", text, strings.Map(dropControl, a.cacheStatus))
}
