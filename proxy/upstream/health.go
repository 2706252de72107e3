package upstream

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/telemetry"
)

// HealthConfig configures a [Health]. Its functions are called once a check, and must not block,
// except Callers.
type HealthConfig struct {
	// Needs returns the resources that listproxy keeps, or should keep.
	Needs func() []schema.GroupVersionResource
	// Versions are those of the API servers that may answer now.
	Versions func() []string
	// Callers sends a request as callers' requests are sent ([Transports.Probe]).
	Callers func(context.Context) error
	Log     *slog.Logger
}

// Health knows the state of the upstream: it asks every two seconds, with listproxy's own
// credentials and over a new connection, independently of feeds and callers; and once, without
// credentials, over the transport that new callers' requests use. Feeds notice some troubles late or
// not at all: client-go tries again without a word, and an open watch stays open when its account is
// deleted. The log has one line for each change of the [Condition].
//
// A trouble counts when two checks have found it and it has lasted for some seconds, in all within
// ten seconds; the first good answer ends it. It is safe for concurrent use.
type Health struct {
	HealthConfig
	prober *Prober
	cfg    *rest.Config

	// Only Run uses these.
	allowed schema.GroupVersionResource // what may be listed, as far as is known
	warned  map[string]time.Time        // the ends of logins that were warned of, by kind
	worked  bool                        // the upstream was ok once

	// mu is held for moments only: whoever logs may wait for it ([Health.Quiet]). Only Run changes
	// what it guards.
	mu      sync.Mutex
	trouble trouble
	stats   HealthStats
}

// HealthStats describes the state of the upstream.
type HealthStats struct {
	Condition Condition
	Since     time.Time
	// Answered is when an answer to a check last came, even an error; zero: never.
	Answered time.Time
	// User is the user that listproxy is for the upstream; empty: not known.
	User string
	// Problem is why it is not ok, without what looks like a credential, and Advice what to do.
	Problem, Advice string
	// Own: the fault is only this replica's, so others may work.
	Own bool
	// Logins are the tokens and certificates with which listproxy logged in at the last check, as far
	// as their ends are known.
	Logins []Login
}

// NewHealth returns a Health of the API server that cfg names, with its credentials. It knows
// nothing until Run runs.
func NewHealth(cfg *rest.Config, config HealthConfig) (*Health, error) {
	prober, err := NewProber(cfg, 0) // a check has one time for all its requests
	if err != nil {
		return nil, fmt.Errorf("cannot check the API server: %w", err)
	}
	return &Health{
		HealthConfig: config, prober: prober, cfg: cfg,
		stats: HealthStats{Condition: ConditionUnknown, Since: time.Now(), Logins: readLogins(cfg)},
	}, nil
}

// needs are the resources that are needed, each once.
func (h *Health) needs() []schema.GroupVersionResource {
	var needed []schema.GroupVersionResource
	if h.Needs != nil {
		for _, gvr := range h.Needs() {
			if !slices.Contains(needed, gvr) {
				needed = append(needed, gvr)
			}
		}
	}
	return needed
}

// Stats returns the state of the upstream as the last check found it. It asks and reads nothing.
func (h *Health) Stats() HealthStats {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stats
}

// Run checks until ctx ends.
func (h *Health) Run(ctx context.Context) {
	for ctx.Err() == nil {
		result := h.check(ctx)
		if ctx.Err() != nil {
			return
		}
		logins, now := readLogins(h.cfg), time.Now()
		pause := wait.Jitter(healthEvery, 0.2)
		if h.note(result, logins, now) {
			pause = healthAgain
		}
		h.warnOfEnd(logins, now)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// note records the result of a check, and the logins that there were at its end. It reports whether
// the check found a trouble that does not count yet.
func (h *Health) note(result healthResult, logins []Login, now time.Time) (again bool) {
	if result.condition == ConditionOK && h.Versions != nil {
		if versions := h.Versions(); len(versions) > 1 {
			result.condition, result.err = ConditionTwoVersions, versionsError(versions)
		}
	}
	before, found := h.Stats(), trouble{}
	if result.condition == ConditionOK {
		h.worked = true
	} else {
		found = h.trouble.after(before.Condition, result.condition, result.began)
	}
	after := before
	after.Logins = logins
	if !result.answered.IsZero() {
		after.Answered = result.answered
	}
	if result.user != "" {
		after.User = result.user
	}
	// What the API servers' versions say was considered long enough.
	counts := result.condition == ConditionOK || result.condition == ConditionTwoVersions || found.counts(now)
	if counts {
		after.Condition = result.condition
		after.Own = ownFault(result, h.worked, logins, now)
		words := conditionWords[result.condition]
		after.Problem, after.Advice = "", words.advice
		if after.Own {
			after.Advice = cmp.Or(words.ownAdvice, words.advice)
		}
		if result.err != nil {
			after.Problem = telemetry.MaskText(result.err.Error())
		}
		if before.Condition != after.Condition {
			after.Since = now
			h.tell(before, after) // before anybody can see it
		}
	}
	h.mu.Lock()
	h.stats, h.trouble = after, found
	h.mu.Unlock()
	return !counts && found.condition != before.Condition
}

// tell logs the one line about a change.
func (h *Health) tell(before, after HealthStats) {
	switch {
	case after.Condition != ConditionOK:
		h.Log.Warn(conditionWords[after.Condition].line, "state", string(after.Condition),
			"before", string(before.Condition), "error", after.Problem, "do", after.Advice)
	case before.Condition == ConditionUnknown:
		h.Log.Info("kube-apiserver answers", "state", string(after.Condition), "as", after.User)
	default:
		h.Log.Info("kube-apiserver is as it should be again", "state", string(after.Condition),
			"before", string(before.Condition), "after", after.Since.Sub(before.Since).Round(100*time.Millisecond), "as", after.User)
	}
}

// versionsError names versions.
type versionsError []string

// Error implements error.
func (e versionsError) Error() string { return strings.Join(e, ", ") }

// warnOfEnd says once of each login that it ends soon.
func (h *Health) warnOfEnd(logins []Login, now time.Time) {
	for _, login := range logins {
		if login.EndsSoon(now) && !login.Until.Equal(h.warned[login.Kind]) {
			if h.warned == nil {
				h.warned = map[string]time.Time{}
			}
			h.warned[login.Kind] = login.Until
			h.Log.Warn("what listproxy logs in with at kube-apiserver ends soon: renew it", "kind", login.Kind,
				"end", login.Until.UTC().Format(time.RFC3339), "left", login.Until.Sub(now).Round(time.Second))
		}
	}
}
