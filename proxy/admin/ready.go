package admin

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/listproxy/listproxy/proxy/upstream"
)

// Check is the result of one check.
type Check struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// Message says what is wrong. A check that is OK may have one, too.
	Message string `json:"message,omitempty"`
}

// String returns the check in one line, much as kube-apiserver's health pages have it.
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

// newCheck returns a check that has the message only if it is not OK.
func newCheck(name string, ok bool, message string) Check {
	if ok {
		message = ""
	}
	return Check{Name: name, OK: ok, Message: message}
}

// allOK reports whether all checks are OK.
func allOK(checks []Check) bool {
	return !slices.ContainsFunc(checks, func(c Check) bool { return !c.OK })
}

// serveReady answers /readyz. The replica is ready if all checks are OK.
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

// upstreamCheck is the name of the check of the API server.
const upstreamCheck = "upstream"

// Checks returns the readiness checks: whether clients should be sent to this replica (docs/operate.md).
func (s *Source) Checks() []Check {
	const remedy = ": see whether the API server can be reached, and the log"
	health := s.Health()
	checks := []Check{
		newCheck("serving", !s.Draining(), "draining"),
		newCheck("discovery", s.DiscoveryReady(), "the API server has not said yet which resources it has"+remedy),
		newCheck("schemas", s.DefinitionsReady(), "the definitions of custom resources are not read yet"+remedy),
		newCheck("servers", s.ServersReady(), "the API servers behind the upstream are not known yet"+remedy),
		// A replica that never reached the API server is not ready: its address, CA or account may be wrong, and a
		// rollout should stop. A later failure mostly concerns all replicas. If all became unready, clients could not even
		// connect, and would not learn why. The failure is the message of the check in both cases.
		{Name: upstreamCheck, OK: !health.NeverOK, Message: describeFailure(health)},
	}
	for _, e := range s.Eager() {
		checks = append(checks, Check{Name: "collection/" + e.String(), OK: e.Ready, Message: e.WhyNotLoaded})
	}
	return checks
}

// describeFailure returns the state of the API server, the cause, and what to do, in one line. The line is empty if the
// state is OK.
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
