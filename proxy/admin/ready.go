package admin

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/upstream"
)

// Check is the result of one check.
type Check struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// Message says what is wrong. The checks "upstream" and "collection/…" may have a Message even if they are OK.
	Message string `json:"message,omitempty"`
}

// String returns the check in one line, in the manner of kube-apiserver's health pages.
func (c Check) String() string {
	sign, result := "[+]", "ok"
	if !c.OK {
		sign, result = "[-]", "not ready"
	}
	if c.Message != "" {
		result += ": " + c.Message
	}
	return fmt.Sprintf("%s%s %s", sign, c.Name, result)
}

// newCheck returns a check. If the check is not OK, failure is its message.
func newCheck(name string, ok bool, failure string) Check {
	if ok {
		return Check{Name: name, OK: true}
	}
	return Check{Name: name, Message: failure}
}

// allOK reports whether all checks are OK.
func allOK(checks []Check) bool {
	return !slices.ContainsFunc(checks, func(c Check) bool { return !c.OK })
}

// serveReady serves /readyz. The replica is ready if all checks are OK.
func (s *Source) serveReady(w http.ResponseWriter, r *http.Request) {
	checks := s.Checks()
	code, verdict := http.StatusOK, "ok"
	if !allOK(checks) {
		code, verdict = http.StatusServiceUnavailable, "not ready"
	}
	var text strings.Builder
	for _, c := range checks {
		if !c.OK || r.URL.Query().Has("verbose") {
			text.WriteString(c.String() + "\n")
		}
	}
	writeText(w, code, text.String()+verdict)
}

// Checks returns the readiness checks. If all are OK, clients should be sent to this replica (docs/operate.md).
func (s *Source) Checks() []Check {
	health := s.Health()
	// A replica is not ready until the API server has once been OK: before that, the configured address, CA or account may be
	// wrong, and a rollout should stop. Later failures leave the replica ready. They mostly concern all replicas, and if all
	// became unready, clients could not connect to learn why.
	return s.newChecks(health, !health.NeverOK)
}

// newChecks returns the checks. upstreamOK is the result of the check "upstream". Its Message is the API server's current
// failure, even if upstreamOK is true.
func (s *Source) newChecks(health upstream.Diagnosis, upstreamOK bool) []Check {
	const remedy = ": see whether the API server can be reached, and the log"
	checks := []Check{
		newCheck("serving", !s.Draining(), "draining"),
		newCheck("discovery", s.DiscoveryReady(), "the API server has not said yet which resources it has"+remedy),
		newCheck("schemas", s.DefinitionsReady(), "the definitions of custom resources are not read yet"+remedy),
		newCheck("servers", s.ServersReady(), "the API servers behind the upstream are not known yet"+remedy),
		{Name: "upstream", OK: upstreamOK, Message: describeFailure(health)},
	}
	for _, e := range s.Eager() {
		checks = append(checks, Check{Name: "collection/" + e.String(), OK: e.Ready, Message: e.WhyNotLoaded})
	}
	return checks
}

// checkFeeds returns the check "feeds", which is OK if no collection is stale. A stale collection is not kept current by its
// feed, the watch that brings its changes. If a collection is unavailable for another reason, its feed is not at fault.
func checkFeeds(collections []Collection) Check {
	stale := 0
	for _, c := range collections {
		if c.State == string(reason.Stale) {
			stale++
		}
	}
	return newCheck("feeds", stale == 0, fmt.Sprintf("nothing new was heard of %d of the collections for longer than "+
		"--staleness-bound, so lists of their newest state are forwarded (stale)", stale))
}

// describeFailure returns the condition of the API server, its cause, and what to do, in one line, or "" if the condition is
// OK.
func describeFailure(health upstream.Diagnosis) string {
	if health.Condition == upstream.ConditionOK {
		return ""
	}
	text := "kube-apiserver is " + health.Condition.Meaning()
	if health.Problem != "" {
		text += " (" + health.Problem + ")"
	}
	if health.Advice != "" {
		text += ": " + health.Advice
	}
	return text
}
