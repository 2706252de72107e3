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
	// ConsistentOn answers all but small ones, which kube-apiserver answers sooner than a proof comes that memory
	// has the newest state. (Where many small ones come at once, only a few are forwarded.)
	ConsistentOn ConsistentLists = "true"
	// ConsistentAlways answers small ones, too.
	ConsistentAlways ConsistentLists = "always"
)

// BuiltIn is the Source of a rule that is not from a file.
const BuiltIn = "built-in default"

// AllResources is the resource of a rule for all resources of its group.
const AllResources = "*"

// Rule has the settings of a resource.
type Rule struct {
	Cache CacheMode
	// HistoryWindow is how far back states are kept; 0 is the process's default.
	HistoryWindow time.Duration
	// LimitAtZero is what a limit means at resourceVersion=0.
	LimitAtZero LimitAtZero
	// ConsistentLists says which lists of the newest state are answered from memory;
	// without it, the flag decides.
	ConsistentLists ConsistentLists
	// Watches says whether watches are answered from memory; without it, the flag decides.
	Watches *bool
	// Source is the file and place of the most specific rule ("policy.yaml: resources[3]"), or BuiltIn.
	Source string
}

// Representation returns the representation in which a list is answered, which depends on the kind of
// resource, or the reason why it is not.
func (r Rule) Representation(list *Request, namespaced, custom bool) (media.Representation, reason.Reason) {
	if list.Namespace != "" && !namespaced {
		return "", reason.UnknownResource
	}
	representation, why := list.Accept.Representation(custom)
	if why != "" {
		return "", why
	}
	return representation, list.CheckSelectors(namespaced, r.LimitAtZero)
}

// AnswersWatches reports whether watches are answered from memory.
func (r Rule) AnswersWatches() bool { return r.Watches != nil && *r.Watches }

// Config is a policy: what is kept in memory, and how. It does not change, so it is
// safe for concurrent use. DefaultConfig and ParseConfig make one.
type Config struct {
	// rest has the settings of every resource without a rule of its own.
	rest Rule
	// rules are complete: what they inherit is filled in.
	rules map[schema.GroupResource]Rule
	// order is that of the file.
	order []schema.GroupResource
}

// DefaultConfig is the policy without a file: everything on demand, except Secrets and
// Events, which are never kept.
func DefaultConfig() *Config {
	return &Config{rest: Rule{Cache: CacheOnDemand, LimitAtZero: LimitIgnored, Source: BuiltIn}}
}

// Switches are flags of a process: which lists of the newest state are answered from memory, and
// whether watches are, for resources whose rule does not say it.
type Switches struct {
	Consistent ConsistentLists
	Watches    bool
}

// With returns the same policy, with switches where a rule leaves something to them.
func (c *Config) With(s Switches) *Config {
	filled := func(r Rule) Rule {
		r.ConsistentLists, r.Watches = cmp.Or(r.ConsistentLists, s.Consistent), cmp.Or(r.Watches, &s.Watches)
		return r
	}
	with := *c
	with.rest, with.rules = filled(c.rest), make(map[schema.GroupResource]Rule, len(c.rules))
	for target, rule := range c.rules {
		with.rules[target] = filled(rule)
	}
	return &with
}

// For returns the settings of a resource; group is empty for the core group. It does not allocate.
func (c *Config) For(group, resource string) Rule {
	if rule, ok := c.rules[schema.GroupResource{Group: group, Resource: resource}]; ok {
		return rule
	}
	rule, ok := c.rules[schema.GroupResource{Group: group, Resource: AllResources}]
	if !ok {
		rule = c.rest
	}
	if reluctant(group, resource) && rule.Cache != CacheNever {
		rule.Cache, rule.Source = CacheNever, BuiltIn
	}
	return rule
}

// Defaults returns the settings of resources without a rule of their own.
func (c *Config) Defaults() Rule { return c.rest }

// Targets returns what the rules of the file are for, in its order.
func (c *Config) Targets() []schema.GroupResource { return slices.Clone(c.order) }

// reluctant tells whether a resource is kept only if a rule names it.
//
// Secrets are left out because with them listproxy's memory needs as much protection as etcd.
func reluctant(group, resource string) bool {
	return group == "" && resource == "secrets" || isEvents(group, resource)
}

// isEvents names the resources that are never kept, whatever the file says. They have no
// watch cache upstream: their watches get no bookmarks, so a quiet feed cannot prove up to which
// revision it has seen them, and several of them can change in one revision.
func isEvents(group, resource string) bool {
	return (group == "" || group == "events.k8s.io") && resource == "events"
}

// Evaluation is what a request and the policy say about an answer from memory, before anybody is
// asked.
type Evaluation struct {
	// Decision follows from the request and the rule's switches. Semantics is Consistent also if the
	// request is forwarded for that reason.
	Decision
	// NotKept is the reason why the policy forbids the answer, or empty. Only callers whom kube-apiserver knows may
	// learn it.
	NotKept reason.Reason
	// Rule is the one for the resource.
	Rule Rule
}

// Evaluate evaluates a list or watch as [Parse] has read it; why is Parse's reason to
// forward it, or empty. Where watches are not answered, each is forwarded because it is one, whatever
// else stands in the way.
func (c *Config) Evaluate(list *Request, why reason.Reason) Evaluation {
	o := Evaluation{Rule: c.For(list.Group, list.Resource)}
	switch {
	case list.Watch && !o.Rule.AnswersWatches():
		o.Decision = forward(reason.Watch)
	case why != "":
		o.Decision = forward(why)
	default:
		o.Decision = list.Decide(o.Rule.LimitAtZero, o.Rule.ConsistentLists)
	}
	if o.Reason == reason.Consistent {
		o.Semantics = Consistent
	}
	if o.Rule.Cache == CacheNever {
		o.NotKept = reason.NotCached
	}
	return o
}
