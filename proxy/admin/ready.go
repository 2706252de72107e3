package admin

import (
	"fmt"
	"slices"

	"github.com/listproxy/listproxy/proxy"
	"github.com/listproxy/listproxy/proxy/upstream"
)

// Readiness decides whether clients should come (docs/operate.md). Its functions must be safe for concurrent use and
// must not block.
type Readiness struct {
	// Draining reports whether shutdown has begun.
	Draining func() bool
	// Discovery, Schemas and Servers report whether the resources of the API server, the definitions of custom
	// resources, and the API servers behind the upstream are known.
	Discovery, Schemas, Servers func() bool
	Upstream                    func() upstream.HealthStats
	Eager                       func() []proxy.EagerStats
}

// Check is the result of one check.
type Check struct {
	Name    string `json:"name"`
	OK      bool   `json:"ok"`
	Message string `json:"message,omitempty"`
}

// String returns the check in the form of kube-apiserver's own health pages.
func (c Check) String() string {
	sign, message := "[+]", "ok"
	if !c.OK {
		sign, message = "[-]", "not ready"
	}
	if c.Message != "" {
		message += ": " + c.Message
	}
	return fmt.Sprintf("%s%s %s", sign, c.Name, message)
}

// allOK reports whether all checks are OK.
func allOK(checks []Check) bool {
	return !slices.ContainsFunc(checks, func(c Check) bool { return !c.OK })
}

// upstreamCheck is the name of the check of the API server.
const upstreamCheck = "upstream"

// Checks returns all checks. Clients should come if all are OK.
func (r Readiness) Checks() []Check {
	health := r.Upstream()
	checks := []Check{
		check("serving", !r.Draining(), "draining"),
		check("discovery", r.Discovery(), "the API server has not said yet which resources it has: see whether it can be reached, and the log"),
		check("schemas", r.Schemas(), "the definitions of custom resources are not read yet: see whether the API server can be reached, and the log"),
		check("servers", r.Servers(), "the API servers behind the upstream are not known yet: see whether it can be reached, and the log"),
		// A replica that never reached the API server keeps out: its address, CA or account may be wrong, and a rollout
		// should stop. Later failures are mostly those of all replicas. If all were taken out, clients could not even
		// connect, and would not be told why.
		{Name: upstreamCheck, OK: !health.NeverOK, Message: describeFailure(health)},
	}
	for _, e := range r.Eager() {
		checks = append(checks, Check{Name: "collection/" + e.String(), OK: e.Ready, Message: e.Waits})
	}
	return checks
}

// check returns a check that has the message only if it is not OK.
func check(name string, ok bool, message string) Check {
	if ok {
		message = ""
	}
	return Check{Name: name, OK: ok, Message: message}
}

// describeFailure returns a line with the failure of the API server, its cause, and what to do. It is empty if there is
// none.
func describeFailure(s upstream.HealthStats) string {
	if s.Condition == upstream.ConditionOK {
		return ""
	}
	words := "kube-apiserver is " + s.Condition.Meaning()
	if s.Problem != "" {
		words += " (" + s.Problem + ")"
	}
	if s.Advice != "" {
		words += ": " + s.Advice
	}
	return words
}
