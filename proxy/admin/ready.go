package admin

import (
	"fmt"
	"slices"

	"github.com/listproxy/listproxy/proxy"
	"github.com/listproxy/listproxy/proxy/upstream"
)

// Check is one thing that must be right.
type Check struct {
	Name    string `json:"name"`
	OK      bool   `json:"ok"`
	Message string `json:"message,omitempty"`
}

// String is in the form that kube-apiserver's own health pages have.
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

// allOK reports whether all is right.
func allOK(checks []Check) bool {
	return !slices.ContainsFunc(checks, func(c Check) bool { return !c.OK })
}

// Readiness decides whether clients should come (docs/operate.md). Its functions must be safe for
// concurrent use and must not block.
type Readiness struct {
	// Draining says whether shutdown has begun.
	Draining func() bool
	// Discovery, Schemas and Servers say whether it is known what the API server serves, how custom
	// resources are defined, and which servers there are.
	Discovery, Schemas, Servers func() bool
	Upstream                    func() upstream.HealthStats
	Eager                       func() []proxy.EagerStats
}

// Checks returns one check for each thing that must be right: clients should come if all are.
func (r Readiness) Checks() []Check {
	health := r.Upstream()
	checks := []Check{
		check("serving", !r.Draining(), "draining"),
		check("discovery", r.Discovery(), "the API server has not said yet which resources it has: see whether it can be reached, and the log"),
		check("schemas", r.Schemas(), "the definitions of custom resources are not read yet: see whether the API server can be reached, and the log"),
		check("servers", r.Servers(), "the API servers behind the upstream are not known yet: see whether it can be reached, and the log"),
		// A replica that never was of use keeps out: its address, CA or account may be wrong, and a rollout
		// should stop. Later trouble is mostly that of all replicas: if all were taken out, clients could not
		// even connect, and would not be told why.
		{Name: upstreamCheck, OK: !health.NeverOK, Message: troubleOf(health)},
	}
	for _, e := range r.Eager() {
		checks = append(checks, Check{Name: "collection/" + e.String(), OK: e.Ready, Message: e.Waits})
	}
	return checks
}

// check has a message only if it is not OK.
func check(name string, ok bool, message string) Check {
	if ok {
		message = ""
	}
	return Check{Name: name, OK: ok, Message: message}
}

// upstreamCheck names the check that says how the API server is.
const upstreamCheck = "upstream"

// troubleOf says in one line what is wrong with the API server, why, and what to do; it is empty if
// nothing is.
func troubleOf(s upstream.HealthStats) string {
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
