package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/telemetry"
)

const (
	// questionEvery is the time from one question to the next, and a little more; questionAgain is the time
	// after a trouble was found that is not certain yet. With questionTimeout, which bounds one question, a
	// trouble is told within twenty seconds.
	questionEvery   = 10 * time.Second
	questionAgain   = 5 * time.Second
	questionTimeout = 2 * time.Second
)

// Health knows the state of the upstream from one question every ten seconds, GET /readyz with
// listproxy's own credentials, and from what listproxy's own requests find there ([Health.Watch]): an
// upstream from which something comes is not away, and an account that may read nothing is of no use.
// The log has one line for each change of the [Condition].
//
// A trouble counts when two questions have found it, five seconds apart, or at once when an outage begins and the
// connection of a question is refused; the first good answer ends it.
// Health is safe for concurrent use.
type Health struct {
	client  *http.Client
	base    *url.URL
	log     *slog.Logger
	traffic traffic

	// mu is held for moments only. Only Run changes what it guards.
	mu    sync.Mutex
	stats HealthStats
}

// HealthStats describes the state of the upstream.
type HealthStats struct {
	Condition Condition
	Since     time.Time
	// Answered is the time at which something last came from it, even an error; zero: never.
	Answered time.Time
	// Problem is the reason why it is not ok, without what looks like a credential, and Advice what to do.
	Problem, Advice string
	// Own reports whether it has never been ok for this replica, so others may be better.
	Own bool
}

// NewHealth returns a Health of the API server that cfg names, with its credentials. It knows
// nothing until Run runs.
func NewHealth(cfg *rest.Config, log *slog.Logger) (*Health, error) {
	base, err := Base(cfg)
	if err != nil {
		return nil, err
	}
	client, err := kubehttp.NewClient(cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot ask the API server how it is: %w", err)
	}
	return &Health{
		client: client, base: base, log: log, traffic: traffic{began: make(chan struct{}, 1)},
		stats: HealthStats{Condition: ConditionUnknown, Since: time.Now()},
	}, nil
}

// Stats returns the state of the upstream as the last question found it. It asks nothing.
func (h *Health) Stats() HealthStats {
	h.mu.Lock()
	defer h.mu.Unlock()
	stats := h.stats
	stats.Answered = h.traffic.lastHeard()
	return stats
}

// Run asks until ctx ends.
func (h *Health) Run(ctx context.Context) {
	worked, before := false, ConditionUnknown
	for woken := false; ; {
		is, err := h.ask(ctx)
		if ctx.Err() != nil {
			return
		}
		worked = worked || is == ConditionOK
		pause := wait.Jitter(questionEvery, 0.05)
		if isCertain(h.Stats().Condition, before, is) || woken && errors.Is(err, syscall.ECONNREFUSED) {
			h.become(is, err, !worked)
		} else {
			pause = questionAgain
		}
		before = is
		outage := h.traffic.began
		if woken || h.Stats().Condition == ConditionUnreachable {
			outage = nil // no more questions than one in so long because of others
		}
		select {
		case <-ctx.Done():
			return
		case <-outage:
			woken = true
		case <-time.After(pause):
			woken = false
		}
	}
}

// become logs the one line about a change, and makes c the state: who sees it finds it in the log, too.
func (h *Health) become(c Condition, cause error, own bool) {
	before := h.Stats()
	after := HealthStats{Condition: c, Since: before.Since, Own: own, Advice: conditionWords[c].advice}
	if cause != nil {
		after.Problem = telemetry.MaskText(cause.Error())
	}
	if before.Condition != c {
		after.Since = time.Now()
	}
	switch {
	case before.Condition == c:
	case c != ConditionOK:
		h.log.Warn("kube-apiserver is "+c.Meaning(), "state", string(c), "before", string(before.Condition),
			"error", after.Problem, "do", after.Advice)
	case before.Condition == ConditionUnknown:
		h.log.Info("kube-apiserver answers", "state", string(c))
	default:
		h.log.Info("kube-apiserver is as it should be again", "state", string(c), "before", string(before.Condition),
			"after", after.Since.Sub(before.Since).Round(100*time.Millisecond))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stats = after
}

// ask asks the upstream whether it is ready. An answer to another request that comes meanwhile counts, too.
func (h *Health) ask(ctx context.Context) (Condition, error) {
	asked := time.Now()
	within, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	status, body, err := read(within, h.client, h.base.JoinPath("readyz"))
	if err != nil {
		if h.traffic.lastHeard().After(asked) {
			return ConditionOK, nil // it is busy, and not away
		}
		h.traffic.failed(asked, err)
		return ConditionUnreachable, unanswered(err)
	}
	h.traffic.answered(status)
	switch {
	case status == http.StatusUnauthorized:
		return ConditionUnauthorized, fmt.Errorf("it answers %d", status)
	case status >= http.StatusInternalServerError:
		return ConditionNotReady, fmt.Errorf("/readyz answers %d%s", status, failedOf(body))
	case h.traffic.isRefused(status == http.StatusForbidden):
		return ConditionForbidden, errors.New("it allows nothing that listproxy asks for")
	case status == http.StatusOK, status == http.StatusForbidden, status == http.StatusTooManyRequests:
		return ConditionOK, nil
	}
	return ConditionNotReady, fmt.Errorf("/readyz answers %d, which no kube-apiserver does", status) // a login page, another path
}

// unanswered returns the reason why a question got no answer, without the URL, which is always the same.
func unanswered(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %v", questionTimeout)
	}
	if request, ok := errors.AsType[*url.Error](err); ok {
		return request.Err
	}
	return err
}

// failedOf names the first checks of an API server's own that a /readyz says have failed.
func failedOf(body []byte) string {
	const most = 3
	var failed []string
	for line := range strings.Lines(string(body)) {
		if name, found := strings.CutPrefix(line, "[-]"); found && len(failed) < most {
			name, _, _ = strings.Cut(name, " ")
			failed = append(failed, strings.TrimSpace(name))
		}
	}
	if len(failed) == 0 {
		return ""
	}
	return ": " + strings.Join(failed, ", ")
}
