package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/telemetry"
)

// Health knows the condition of the upstream, and whether there is an outage. It is safe for concurrent use.
//
//   - The [Condition] is for people. Every ten seconds Health probes the upstream: it sends GET /readyz with listproxy's own
//     credentials. The condition becomes bad after two failed probes in a row, five seconds apart, and good after one good
//     probe. Health also observes the answers to listproxy's other requests ([Health.Observe]). If anything of them comes while
//     a probe gets no answer, even an event of an open watch, the upstream counts as OK. If they refuse every resource, the
//     condition is [ConditionForbidden], even if the upstream is ready. Each change is logged.
//   - A [Health.Outage] is a time without answers, in which listproxy answers from memory for longer. A single failed request
//     begins it, and a single answer ends it (see traffic).
type Health struct {
	client  *http.Client
	base    *url.URL
	log     *slog.Logger
	traffic traffic

	mu        sync.Mutex // guards diagnosis
	diagnosis Diagnosis  // without Answered, which traffic knows; only Run's goroutine writes it
}

// Diagnosis is the condition of the upstream, and what is known about it.
type Diagnosis struct {
	Condition Condition
	// Since is the time at which the condition began.
	Since time.Time
	// Answered is the time at which the upstream last sent anything, even an error, or zero if it never has.
	Answered time.Time
	// Problem is the reason why the condition is not OK. Text that looks like a credential is masked.
	Problem string
	// Advice says what to do about the problem.
	Advice string
	// NeverOK means that this replica has never found the upstream OK. Other replicas may then serve better.
	NeverOK bool
}

const (
	// probeInterval is the pause between two probes. A jitter of up to half a second is added.
	probeInterval = 10 * time.Second
	// confirmInterval is the pause before the probe that confirms a failure.
	confirmInterval = 5 * time.Second
	// probeTimeout bounds a probe. A failure is confirmed at most 19.5 seconds after it has begun: after a pause of 10.5
	// seconds, a probe of 2, a pause of 5, and another probe of 2.
	probeTimeout = 2 * time.Second
)

// NewHealth returns a Health of the API server that cfg names. It probes with the credentials of cfg. The condition is
// unknown until Run runs.
func NewHealth(cfg *rest.Config, log *slog.Logger) (*Health, error) {
	base, err := BaseURL(cfg)
	if err != nil {
		return nil, err
	}
	client, err := kubehttp.NewClient(cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot ask the API server how it is: %w", err)
	}
	return &Health{client: client, base: base, log: log, diagnosis: Diagnosis{Condition: ConditionUnknown, Since: time.Now()}}, nil
}

// Observe returns a copy of cfg for listproxy's own clients. h records the answers to the requests of these clients.
func (h *Health) Observe(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return observedTransport{RoundTripper: next, traffic: &h.traffic, base: h.base}
	})
	return cfg
}

// RecordCallerAnswer records the status of an answer to a caller's request. The answer can end an outage. Without an outage,
// RecordCallerAnswer does nothing, so that callers' requests take no lock.
func (h *Health) RecordCallerAnswer(status int) {
	if h.Outage().Ongoing {
		h.traffic.recordAnswer(status)
	}
}

// OnOutageEnd sets a function that h calls when an outage has ended. It must be called before any request is sent.
func (h *Health) OnOutageEnd(f func()) { h.traffic.onOutageEnd = f }

// Outage returns the current outage of the upstream, or the last one.
func (h *Health) Outage() clock.Outage { return h.traffic.lastOutage() }

// Diagnosis returns what Run has found, and the time at which the upstream last sent anything. It sends no request.
func (h *Health) Diagnosis() Diagnosis {
	h.mu.Lock()
	defer h.mu.Unlock()
	diagnosis := h.diagnosis
	diagnosis.Answered = h.traffic.lastHeard()
	return diagnosis
}

// Run probes until ctx ends.
func (h *Health) Run(ctx context.Context) {
	neverOK := true
	previous := ConditionUnknown
	for {
		found, err := h.probe(ctx)
		if ctx.Err() != nil {
			return
		}
		neverOK = neverOK && found != ConditionOK
		pause := confirmInterval // if the condition found is a failure that is not confirmed yet
		if isConfirmed(h.Diagnosis().Condition, previous, found) {
			h.setCondition(found, err, neverOK)
			pause = wait.Jitter(probeInterval, 0.05)
		}
		previous = found
		if !clock.Sleep(ctx, pause) {
			return
		}
	}
}

// setCondition sets the condition to c. cause is the problem if c is not OK. A change is logged before it is stored, so that
// the log has every change that Diagnosis shows.
func (h *Health) setCondition(c Condition, cause error, neverOK bool) {
	before := h.Diagnosis()
	after := Diagnosis{Condition: c, Since: before.Since, NeverOK: neverOK, Advice: conditionTexts[c].advice}
	if cause != nil {
		after.Problem = telemetry.MaskText(cause.Error())
	}
	if before.Condition != c {
		after.Since = time.Now()
		h.logChange(before, after)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.diagnosis = after
}

// logChange logs that the condition has changed.
func (h *Health) logChange(before, after Diagnosis) {
	log := h.log.With("state", string(after.Condition))
	former := string(before.Condition)
	switch {
	case after.Condition != ConditionOK:
		log.Warn("kube-apiserver is "+after.Condition.Meaning(), "before", former, "error", after.Problem, "do", after.Advice)
	case before.Condition == ConditionUnknown:
		log.Info("kube-apiserver answers")
	default:
		lasted := after.Since.Sub(before.Since).Round(100 * time.Millisecond)
		log.Info("kube-apiserver is as it should be again", "before", former, "after", lasted)
	}
}

// probe asks the upstream whether it is ready. It returns the condition, and the problem if the condition is not OK. If the
// upstream does not answer the probe, but has meanwhile sent something for another request, it is only busy. This counts as OK.
func (h *Health) probe(ctx context.Context) (Condition, error) {
	sent := time.Now()
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	status, err := getStatus(ctx, h.client, h.base.JoinPath("readyz"))
	if err != nil {
		if h.traffic.lastHeard().After(sent) {
			return ConditionOK, nil
		}
		h.traffic.recordFailure(sent, err)
		return ConditionUnreachable, err
	}
	h.traffic.recordAnswer(status)
	return conditionOf(status, h.traffic.resourceRefused.Load(), h.traffic.openAnswers.Load() > 0)
}

// conditionOf returns the condition of an upstream that answers a probe with status, and the problem. resourceRefused means
// that its last answer about a resource was a 403. resourceOpen means that it is answering a request for a resource now, such
// as a watch, so it does not refuse every resource.
func conditionOf(status int, resourceRefused, resourceOpen bool) (Condition, error) {
	switch { // the first case that holds decides
	case status == http.StatusUnauthorized:
		return ConditionUnauthorized, fmt.Errorf("it answers %d", status)
	case status >= http.StatusInternalServerError:
		return ConditionNotReady, fmt.Errorf("/readyz answers %d", status)
	case (status == http.StatusForbidden || resourceRefused) && !resourceOpen:
		return ConditionForbidden, errors.New("it allows nothing that listproxy asks for")
	case status == http.StatusOK, status == http.StatusForbidden, status == http.StatusTooManyRequests:
		return ConditionOK, nil
	}
	// For example a redirect to a login page, or the 404 of a wrong base path.
	return ConditionNotReady, fmt.Errorf("/readyz answers %d, which no kube-apiserver does", status)
}

// getStatus sends a GET, and returns the status of the answer, or an error if the answer does not come whole.
func getStatus(ctx context.Context, client *http.Client, address *url.URL) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), http.NoBody)
	if err != nil {
		return 0, err
	}
	res, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer func() { _ = res.Body.Close() }()
	const maxBody = 64 << 10 // a connection whose answer was read to the end can be used again
	_, err = io.Copy(io.Discard, io.LimitReader(res.Body, maxBody))
	return res.StatusCode, err
}
