package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/telemetry"
)

// Health knows the condition of the upstream. Every ten seconds it probes GET /readyz with listproxy's own credentials. It
// also observes the answers to listproxy's other requests ([Health.Watch]): an upstream that answers them is not
// unreachable, and one that refuses them all is of no use. Each change of the [Condition] is one line in the log.
//
// A failure counts when two probes have found it, five seconds apart. When one of listproxy's requests gets no answer, the
// next probe follows at once, and if its connection is refused, that one probe is enough. The first good answer ends the
// failure. Health is safe for concurrent use.
type Health struct {
	client  *http.Client
	base    *url.URL
	log     *slog.Logger
	traffic traffic

	mu    sync.Mutex  // guards stats
	stats HealthStats // only Run changes them
}

// HealthStats describes the state of the upstream.
type HealthStats struct {
	Condition Condition
	Since     time.Time
	// Answered is the time at which the upstream last sent anything, even an error; zero if it never has.
	Answered time.Time
	// Problem is the reason why the condition is not OK. Whatever looks like a credential is masked.
	Problem string
	// Advice says what to do about the problem.
	Advice string
	// NeverOK reports whether the condition was never OK for this replica. Other replicas may then serve better.
	NeverOK bool
}

const (
	// probeInterval is the pause between two probes, to which a little jitter is added.
	probeInterval = 10 * time.Second
	// confirmInterval is the pause before the probe that confirms a failure.
	confirmInterval = 5 * time.Second
	// probeTimeout bounds the time of a probe. With the pauses it makes a failure known within twenty seconds.
	probeTimeout = 2 * time.Second
)

// NewHealth returns a Health of the API server that cfg names. It probes with the credentials of cfg. The condition is
// unknown until Run runs.
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

// Stats returns the state of the upstream by the last probe. It sends no request.
func (h *Health) Stats() HealthStats {
	h.mu.Lock()
	defer h.mu.Unlock()
	stats := h.stats
	stats.Answered = h.traffic.lastHeard()
	return stats
}

// Run probes until ctx ends.
func (h *Health) Run(ctx context.Context) {
	wasOK := false
	previous := ConditionUnknown
	for woken := false; ; { // woken says that an outage has begun, which made this probe early
		found, err := h.probe(ctx)
		if ctx.Err() != nil {
			return
		}
		wasOK = wasOK || found == ConditionOK
		pause := wait.Jitter(probeInterval, 0.05)
		isDown := woken && errors.Is(err, syscall.ECONNREFUSED) // a request has failed, and now the connection is refused
		if isDown || isCertain(h.Stats().Condition, previous, found) {
			h.setCondition(found, err, !wasOK)
		} else {
			pause = confirmInterval
		}
		previous = found
		outage := h.traffic.began
		if woken || h.Stats().Condition == ConditionUnreachable {
			outage = nil // an outage makes one probe early, and not every probe while it lasts
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

// setCondition sets the condition. It logs a change before, so that every change that Stats shows is in the log. cause is
// the reason if c is not OK.
func (h *Health) setCondition(c Condition, cause error, neverOK bool) {
	before := h.Stats()
	after := HealthStats{Condition: c, Since: before.Since, NeverOK: neverOK, Advice: conditionTexts[c].advice}
	if cause != nil {
		after.Problem = telemetry.MaskText(cause.Error())
	}
	if before.Condition != c {
		after.Since = time.Now()
	}
	switch {
	case before.Condition == c: // nothing to log
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

// probe asks the upstream whether it is ready. If the probe gets no answer, but another request is answered meanwhile, the
// upstream is only busy, which counts as OK.
func (h *Health) probe(ctx context.Context) (Condition, error) {
	sent := time.Now()
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	status, err := statusOf(ctx, h.client, h.base.JoinPath("readyz"))
	if err != nil {
		if h.traffic.lastHeard().After(sent) {
			return ConditionOK, nil
		}
		h.traffic.failed(sent, err)
		return ConditionUnreachable, err
	}
	h.traffic.answered(status)
	switch {
	case status == http.StatusUnauthorized:
		return ConditionUnauthorized, fmt.Errorf("it answers %d", status)
	case status >= http.StatusInternalServerError:
		return ConditionNotReady, fmt.Errorf("/readyz answers %d", status)
	case h.traffic.isRefused(status == http.StatusForbidden):
		return ConditionForbidden, errors.New("it allows nothing that listproxy asks for")
	case status == http.StatusOK, status == http.StatusForbidden, status == http.StatusTooManyRequests:
		return ConditionOK, nil
	}
	// It may be a login page, or the base path is wrong.
	return ConditionNotReady, fmt.Errorf("/readyz answers %d, which no kube-apiserver does", status)
}
