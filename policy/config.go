package policy

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
)

// CacheMode says whether a resource is kept in memory.
type CacheMode string

// The modes, as spelled in a policy file.
const (
	// CacheOnDemand loads a resource at the first request for it, and drops it after a while without requests.
	CacheOnDemand CacheMode = "onDemand"
	// CacheNever forwards all requests for the resource.
	CacheNever CacheMode = "never"
)

// LimitAtZero says what the parameter limit means in a list at resourceVersion=0.
type LimitAtZero string

// The meanings, as spelled in a policy file.
const (
	// LimitIgnored means that the answer is the whole list, as from kube-apiserver's cache.
	LimitIgnored LimitAtZero = "ignore"
	// LimitHonoured means that the answer is a page with a continue token, as from a kube-apiserver that does not cache
	// the resource.
	LimitHonoured LimitAtZero = "honour"
)

// ConsistentLists says which lists of the newest state are answered from memory. These are the lists without a
// resourceVersion.
type ConsistentLists string

// The choices, as spelled in a policy file and in --consistent-lists.
const (
	// ConsistentNone means that all these lists are forwarded.
	ConsistentNone ConsistentLists = "false"
	// ConsistentLarge means that large lists are answered from memory. Of small lists, a few at a time are forwarded, since
	// kube-apiserver answers them sooner than memory can be proven to have the newest state. The others are answered from
	// memory.
	ConsistentLarge ConsistentLists = "true"
	// ConsistentAll means that all these lists are answered from memory.
	ConsistentAll ConsistentLists = "always"
)

// BuiltIn is the Source of a rule that comes from no file.
const BuiltIn = "built-in default"

// AllResources is the resource of a rule for all resources of its group.
const AllResources = "*"

// Rule has the settings of a resource.
type Rule struct {
	Cache CacheMode
	// HistoryWindow is the time for which old states are kept; 0 means --history-window.
	HistoryWindow time.Duration
	LimitAtZero   LimitAtZero
	// ConsistentLists is empty if --consistent-lists decides.
	ConsistentLists ConsistentLists
	// Watches says whether watches are answered from memory; nil means that --watches decides.
	Watches *bool
	// Source is the file and place of the most specific rule ("policy.yaml: resources[3]"), or BuiltIn.
	Source string
}

// Representation returns the representation in which a list or watch is answered. namespaced says whether the resource has
// namespaces, and custom whether it is a custom resource.
//
// If the reason is not None, the request must be forwarded: its namespace, Accept header or selectors do not fit such a
// resource.
func (r Rule) Representation(list *Request, namespaced, custom bool) (media.Representation, reason.Reason) {
	if list.Namespace != "" && !namespaced {
		return "", reason.UnknownResource
	}
	representation, why := list.Accept.Representation(custom)
	if why != reason.None {
		return "", why
	}
	return representation, list.CheckSelectors(namespaced, r.LimitAtZero) // some selectors cannot be combined with a limit
}

// AnswersWatches reports whether watches are answered from memory. It returns false if Watches is nil: call
// [Config.WithSwitches] before.
func (r Rule) AnswersWatches() bool { return r.Watches != nil && *r.Watches }

// Config is a policy: it says which resources are kept in memory, and how. [DefaultConfig] and [ParseConfig] return a
// Config. It never changes, so it is safe for concurrent use.
type Config struct {
	// defaults has the settings of every resource without a rule of its own.
	defaults Rule
	// rules have all settings, including the inherited ones.
	rules map[schema.GroupResource]Rule
	// order has the keys of rules in the order in which the file has the rules.
	order []schema.GroupResource
}

// DefaultConfig returns the policy without a file: all resources are kept on demand, except Secrets and Events (see
// [Config.RuleFor]).
func DefaultConfig() *Config {
	return &Config{defaults: Rule{Cache: CacheOnDemand, LimitAtZero: LimitIgnored, Source: BuiltIn}}
}

// Switches are the flags that decide for a resource if its rule does not have the setting.
type Switches struct {
	// ConsistentLists is --consistent-lists.
	ConsistentLists ConsistentLists
	// Watches is --watches.
	Watches bool
}

// WithSwitches returns a copy of the policy in which every rule has both settings: its own, or else the switch.
func (c *Config) WithSwitches(s Switches) *Config {
	fill := func(r Rule) Rule {
		r.ConsistentLists = cmp.Or(r.ConsistentLists, s.ConsistentLists)
		if r.Watches == nil {
			r.Watches = &s.Watches
		}
		return r
	}
	filled := *c
	filled.defaults = fill(c.defaults)
	filled.rules = make(map[schema.GroupResource]Rule, len(c.rules))
	for target, rule := range c.rules {
		filled.rules[target] = fill(rule)
	}
	return &filled
}

// RuleFor returns the rule for a resource: its own, else the rule for all resources of its group, else the defaults. Only
// a rule of their own can keep Secrets, and no rule keeps Events. group is empty for the core group. RuleFor does not
// allocate.
func (c *Config) RuleFor(group, resource string) Rule {
	if rule, ok := c.rules[schema.GroupResource{Group: group, Resource: resource}]; ok {
		return rule
	}
	rule, ok := c.rules[schema.GroupResource{Group: group, Resource: AllResources}]
	if !ok {
		rule = c.defaults
	}
	if isKeptByOwnRuleOnly(group, resource) && rule.Cache != CacheNever {
		rule.Cache = CacheNever
		rule.Source = BuiltIn // but if the file itself says never, Source names the place in the file
	}
	return rule
}

// Targets returns the resources that the file has rules for, in its order.
func (c *Config) Targets() []schema.GroupResource { return slices.Clone(c.order) }

// isKeptByOwnRuleOnly reports whether a resource is never kept by the rule for its group or by the defaults: Secrets, since
// listproxy's memory then needs as much protection as etcd, and Events, which not even a rule of their own may keep.
func isKeptByOwnRuleOnly(group, resource string) bool {
	return (group == "" && resource == "secrets") || isEvents(group, resource)
}

// isEvents reports whether a resource is Events, which are never kept: ParseConfig refuses a rule that would keep them.
// The upstream has no watch cache of Events. So their watches get no bookmarks, and a quiet feed cannot prove how current
// it is. Besides, several Events can change in one revision.
func isEvents(group, resource string) bool {
	return (group == "" || group == "events.k8s.io") && resource == "events"
}

// Evaluation is what follows from a request and the policy alone, before rights and state are looked up.
type Evaluation struct {
	// Decision follows from the request and the rule. If its Reason is Consistent, its Semantics is set, too, for metrics and
	// the access log.
	Decision
	// PolicyReason is NotCached if the policy keeps the resource out of memory, otherwise None. It is not in
	// Decision.Reason, since only callers whom kube-apiserver has authenticated may learn it.
	PolicyReason reason.Reason
	Rule         Rule
}

// Evaluate decides about a list or watch that [Parse] has returned with parseReason. If the rule answers no watches, the
// reason of every watch is reason.Watch, whatever parseReason is, since the operator can change the switch.
func (c *Config) Evaluate(req *Request, parseReason reason.Reason) Evaluation {
	e := Evaluation{Rule: c.RuleFor(req.Group, req.Resource)}
	switch {
	case req.Watch && !e.Rule.AnswersWatches():
		e.Decision = forward(reason.Watch)
	case parseReason != reason.None:
		e.Decision = forward(parseReason)
	default:
		e.Decision = req.Decide(e.Rule.LimitAtZero, e.Rule.ConsistentLists)
	}
	if e.Reason == reason.Consistent {
		e.Semantics = Consistent
	}
	if e.Rule.Cache == CacheNever {
		e.PolicyReason = reason.NotCached
	}
	return e
}
