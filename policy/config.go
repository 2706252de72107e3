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

// The modes, as a policy file has them.
const (
	// CacheOnDemand loads a resource when somebody asks for it, and drops it when nobody has for a while.
	CacheOnDemand CacheMode = "onDemand"
	// CacheNever forwards all requests for it.
	CacheNever CacheMode = "never"
)

// LimitAtZero says what limit means in a list at resourceVersion=0.
type LimitAtZero string

// The two ways, as a policy file has them.
const (
	// LimitIgnored means that the whole list is written, as kube-apiserver's cache does.
	LimitIgnored LimitAtZero = "ignore"
	// LimitHonoured means that a page is written, and a continue token of its revision, as
	// kube-apiserver does for resources that it does not cache.
	LimitHonoured LimitAtZero = "honour"
)

// ConsistentLists says which lists of the newest state, those that name no resourceVersion, are
// answered from memory.
type ConsistentLists string

// The three ways, as a policy file and --consistent-lists have them.
const (
	// ConsistentNever means that all are forwarded.
	ConsistentNever ConsistentLists = "false"
	// ConsistentOn means that large lists are answered from memory. Small ones are forwarded, since kube-apiserver answers
	// them sooner than memory is proven to have the newest state; but only a few at the same time.
	ConsistentOn ConsistentLists = "true"
	// ConsistentAlways means that all are answered from memory.
	ConsistentAlways ConsistentLists = "always"
)

// BuiltIn is the Source of a rule that is not from a file.
const BuiltIn = "built-in default"

// AllResources is the resource of a rule for all resources of its group.
const AllResources = "*"

// Rule has the settings of a resource.
type Rule struct {
	Cache CacheMode
	// HistoryWindow is the time for which states are kept. If it is 0, the flag decides.
	HistoryWindow time.Duration
	// LimitAtZero says what a limit means at resourceVersion=0.
	LimitAtZero LimitAtZero
	// ConsistentLists says which lists of the newest state are answered from memory. If it is empty, the flag decides.
	ConsistentLists ConsistentLists
	// Watches says whether watches are answered from memory. If it is nil, the flag decides.
	Watches *bool
	// Source is the file and place of the most specific rule ("policy.yaml: resources[3]"), or BuiltIn.
	Source string
}

// Representation returns the representation in which a list or watch is answered. With a reason other than None it must
// be forwarded: the namespace, the Accept header or the selectors do not fit this kind of resource. A representation
// beside such a reason only tells what the client asks for.
func (r Rule) Representation(list *Request, namespaced, custom bool) (media.Representation, reason.Reason) {
	if list.Namespace != "" && !namespaced {
		return "", reason.UnknownResource
	}
	representation, why := list.Accept.Representation(custom)
	if why != reason.None {
		return "", why
	}
	return representation, list.CheckSelectors(namespaced, r.LimitAtZero)
}

// AnswersWatches reports whether watches are answered from memory.
func (r Rule) AnswersWatches() bool { return r.Watches != nil && *r.Watches }

// Config is a policy: it says which resources are kept in memory, and how. It does not change, so it is safe for
// concurrent use. [DefaultConfig] and [ParseConfig] return one.
type Config struct {
	// defaults has the settings of every resource without a rule of its own.
	defaults Rule
	// rules have all settings, also those that they inherit.
	rules map[schema.GroupResource]Rule
	// order has the keys of rules in the order of the file.
	order []schema.GroupResource
}

// DefaultConfig returns the policy without a file: all resources are kept on demand. ([Config.RuleFor] makes an exception
// of Secrets and Events.)
func DefaultConfig() *Config {
	return &Config{defaults: Rule{Cache: CacheOnDemand, LimitAtZero: LimitIgnored, Source: BuiltIn}}
}

// Switches are flags of the process. They decide for the resources whose rule does not.
type Switches struct {
	// Consistent is --consistent-lists.
	Consistent ConsistentLists
	// Watches is --watches.
	Watches bool
}

// WithSwitches returns a copy of the policy in which the flags decide for each rule that does not.
func (c *Config) WithSwitches(s Switches) *Config {
	fill := func(r Rule) Rule {
		r.ConsistentLists = cmp.Or(r.ConsistentLists, s.Consistent)
		r.Watches = cmp.Or(r.Watches, &s.Watches)
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

// RuleFor returns the settings of a resource; group is empty for the core group. It does not allocate.
func (c *Config) RuleFor(group, resource string) Rule {
	if rule, ok := c.rules[schema.GroupResource{Group: group, Resource: resource}]; ok {
		return rule
	}
	rule, ok := c.rules[schema.GroupResource{Group: group, Resource: AllResources}]
	if !ok {
		rule = c.defaults
	}
	if mustBeNamed(group, resource) && rule.Cache != CacheNever {
		rule.Cache = CacheNever
		rule.Source = BuiltIn
	}
	return rule
}

// Defaults returns the settings of resources without a rule of their own.
func (c *Config) Defaults() Rule { return c.defaults }

// Targets returns the resources that the file has rules for, in its order.
func (c *Config) Targets() []schema.GroupResource { return slices.Clone(c.order) }

// mustBeNamed reports whether a resource is kept only if a rule names it. With Secrets in it, listproxy's memory needs
// as much protection as etcd. (Not even a rule that names Events can keep them, see isEvents.)
func mustBeNamed(group, resource string) bool {
	return (group == "" && resource == "secrets") || isEvents(group, resource)
}

// isEvents reports whether a resource is Events, which a policy file cannot keep. The upstream has no watch cache of
// them: their watches get no bookmarks, so a quiet feed cannot prove up to which revision it has seen them, and
// several of them can change in one revision.
func isEvents(group, resource string) bool {
	return (group == "" || group == "events.k8s.io") && resource == "events"
}

// Evaluation is the decision that follows from a request and the policy alone, before rights and state are looked up.
type Evaluation struct {
	// Decision follows from the request and the rule. Semantics is Consistent also if the request is forwarded for that
	// reason.
	Decision
	// NotKept is the reason why the policy forbids an answer from memory, or None. It is told only to callers whom
	// kube-apiserver knows.
	NotKept reason.Reason
	// Rule is the rule for the resource.
	Rule Rule
}

// Evaluate decides about a list or watch that [Parse] has read. parseReason is Parse's reason to forward it, or None. If
// the rule answers no watches, the reason of every watch is reason.Watch, whatever parseReason is.
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
		e.NotKept = reason.NotCached
	}
	return e
}
