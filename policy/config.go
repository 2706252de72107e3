package policy

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/reason"
)

// Config is a policy: it says which resources are kept in memory, and how. [File.Config] returns a Config. It never changes, so
// it is safe for concurrent use.
type Config struct {
	// defaults has the settings of every resource without a rule of its own.
	defaults Rule
	// rules has the file's rules, each completed by what it inherits.
	rules map[schema.GroupResource]Rule
}

// RuleFor returns the rule for a resource: its own, else the rule for all resources of its group, else the defaults. group is
// empty for the core group. RuleFor does not allocate.
//
// The rule for a group and the defaults never keep Secrets and Events. A rule of their own can keep Secrets. (For Events,
// ParseFile refuses such a rule.)
func (c *Config) RuleFor(group, resource string) Rule {
	if rule, ok := c.rules[schema.GroupResource{Group: group, Resource: resource}]; ok {
		return rule
	}
	rule, ok := c.rules[schema.GroupResource{Group: group, Resource: AllResources}]
	if !ok {
		rule = c.defaults
	}
	if rule.Cache != CacheNever && (isSecrets(group, resource) || isEvents(group, resource)) {
		rule.Cache = CacheNever
	}
	return rule
}

// Evaluation is what follows from a request and the policy alone, before rights and state are looked up.
type Evaluation struct {
	// Decision does not depend on Rule.Cache. Only callers whom kube-apiserver has authenticated may learn which resources are
	// kept.
	Decision
	Rule Rule
}

// Evaluate decides about a list or watch. [Parse] has returned req and parseReason. If the rule does not answer watches from
// memory, every watch has reason.Watch, even if parseReason is another reason: the operator should first learn that watches are
// switched off.
func (c *Config) Evaluate(req *Request, parseReason reason.Reason) Evaluation {
	rule := c.RuleFor(req.Group, req.Resource)
	switch {
	case req.Watch && !rule.Watches:
		return Evaluation{Decision: forward(reason.Watch), Rule: rule}
	case parseReason != reason.None:
		return Evaluation{Decision: forward(parseReason), Rule: rule}
	}
	return Evaluation{Decision: req.Decide(rule.LimitAtZero, rule.ConsistentLists), Rule: rule}
}

// isSecrets reports whether a resource is Secrets. If Secrets are kept, listproxy's memory needs as much protection as etcd.
func isSecrets(group, resource string) bool { return group == "" && resource == "secrets" }

// isEvents reports whether a resource is Events. The upstream has no watch cache for Events, so their watches get no bookmarks,
// and a feed without events could not prove how current it is. Besides, several Events can change in one revision.
func isEvents(group, resource string) bool {
	return (group == "" || group == "events.k8s.io") && resource == "events"
}
