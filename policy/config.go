package policy

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
)

// The words at the head of a policy file.
const (
	// ConfigAPIVersion is the one version of policy files that there is.
	ConfigAPIVersion = "listproxy.io/v1alpha1"
	// ConfigKind is the kind of a policy file.
	ConfigKind = "Policy"
)

// CacheMode says whether and when a resource is read into memory.
type CacheMode string

// The modes, as a policy file has them.
const (
	// CacheOnDemand: read when somebody asks for it, dropped when nobody has for a while.
	CacheOnDemand CacheMode = "onDemand"
	// CacheEager: read before the process says that it is ready, and kept.
	CacheEager CacheMode = "eager"
	// CacheNever: always forwarded.
	CacheNever CacheMode = "never"
)

// LimitAtZero says what limit means in a list at resourceVersion=0.
type LimitAtZero string

// The two ways, as a policy file has them.
const (
	// LimitIgnored: the whole list is written, as kube-apiserver's cache does.
	LimitIgnored LimitAtZero = "ignore"
	// LimitHonoured: a page is written, and a continue token of its revision, as
	// kube-apiserver does for resources that it does not cache.
	LimitHonoured LimitAtZero = "honour"
)

// ConsistentLists says which lists of the newest state, those that name no resourceVersion, are
// answered from memory.
type ConsistentLists string

// The three ways, as a policy file and --consistent-lists have them.
const (
	// ConsistentNever: all are forwarded.
	ConsistentNever ConsistentLists = "false"
	// ConsistentFaster: those for which the proof that memory has the newest state is likely to
	// take less time than kube-apiserver's own answer.
	ConsistentFaster ConsistentLists = "true"
	// ConsistentAlways: all, even where kube-apiserver would have answered sooner.
	ConsistentAlways ConsistentLists = "always"
)

// BuiltIn is the Source of a rule that is not from a file.
const BuiltIn = "built-in default"

// AllResources is the resource of a rule for all resources of its group.
const AllResources = "*"

// Rule has the settings of a resource. Its slices and pointers are shared and must not be written
// to.
type Rule struct {
	Cache CacheMode
	// Representations are the ones that are kept. A request for another one is forwarded
	// (reason.NotCached).
	Representations []media.Representation
	// HistoryWindow is how far back states are kept; 0 is the process's default.
	HistoryWindow time.Duration
	// MaxBytes bounds what the collections of this resource store together; 0 is no bound except
	// --cache-bytes.
	MaxBytes int64
	// IdleTimeout is how long a collection that nobody asks for is kept: nil is the process's default,
	// 0 for ever.
	IdleTimeout *time.Duration
	// LimitAtZero is what a limit means at resourceVersion=0.
	LimitAtZero LimitAtZero
	// ConsistentLists says which lists of the newest state are answered from memory;
	// without it, the flag decides.
	ConsistentLists ConsistentLists
	// Watches says whether watches are answered from memory; without it, the flag decides.
	Watches *bool
	// SameForEveryone: if an aggregated API server owns the resource, whoever wrote the
	// rule vouches that it shows the same to all callers who may list it.
	SameForEveryone bool
	// NewestAsAny are callers whose lists of the newest state get what resourceVersion=0 gets: a state
	// that is at most --staleness-bound old, and may lack what was written just now.
	NewestAsAny []Caller
	// Source is the file and line of the most specific rule ("policy.yaml:12"), or BuiltIn.
	Source string
}

// Form returns the representation in which a list is answered, which depends on the kind of
// resource, or the reason why it is not. With a reason, the representation is empty if the list's
// Accept header has none.
func (r Rule) Form(list Request, namespaced, custom bool) (media.Representation, reason.Reason) {
	if list.Namespace != "" && !namespaced {
		return "", reason.UnknownResource
	}
	representation, why := list.Accept.Representation(custom)
	switch {
	case why != "":
		return "", why
	case !r.Keeps(representation):
		return representation, reason.NotCached
	}
	return representation, list.CheckSelectors(namespaced, r.LimitAtZero)
}

// Keeps says whether a representation is kept.
func (r Rule) Keeps(representation media.Representation) bool {
	return r.Cache != CacheNever && slices.Contains(r.Representations, representation)
}

// AnswersWatches says whether watches are answered from memory.
func (r Rule) AnswersWatches() bool { return r.Watches != nil && *r.Watches }

// RuleTarget says which resources a rule is for. An empty Version means all versions, and the
// Resource AllResources all resources of the group.
type RuleTarget struct {
	Group, Version, Resource string
}

// String names it as kubectl would: resource.version.group.
func (t RuleTarget) String() string {
	name := t.Resource
	if t.Version != "" {
		name += "." + t.Version
	}
	if t.Group != "" {
		name += "." + t.Group
	}
	return name
}

// covers says whether a rule for t is also for all that a rule for o is for: o is t, or inherits
// from it.
func (t RuleTarget) covers(o RuleTarget) bool {
	return t.Group == o.Group && (t.Resource == o.Resource || t.Resource == AllResources) && (t.Version == o.Version || t.Version == "")
}

// EagerCollection is one that is to be read before anybody asks.
type EagerCollection struct {
	Group, Version, Resource string
	Representation           media.Representation
}

// Config is a policy: what is kept in memory, and how. It does not change, so it is
// safe for concurrent use. DefaultConfig and ParseConfig make one.
type Config struct {
	// rest has the settings of every resource without a rule of its own.
	rest Rule
	// rules are complete: what they inherit is filled in.
	rules map[RuleTarget]Rule
	// order is that of the file.
	order []RuleTarget
	eager []EagerCollection
	file  File
}

// File is the file of a policy, as it was read.
type File struct {
	// Name is the name that ParseConfig got; empty for the default policy.
	Name string
	// SHA256 is the digest of what was read, in hexadecimal, as sha256sum has it.
	SHA256 string
}

// File returns where the policy is from.
func (c *Config) File() File { return c.file }

// DefaultConfig is the policy without a file: everything on demand, except Secrets and
// Events, which are never kept.
func DefaultConfig() *Config {
	return &Config{rest: builtIn()}
}

func builtIn() Rule {
	return Rule{
		Cache:           CacheOnDemand,
		Representations: media.All(),
		LimitAtZero:     LimitIgnored,
		Source:          BuiltIn,
	}
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
	with.rest, with.rules = filled(c.rest), make(map[RuleTarget]Rule, len(c.rules))
	for target, rule := range c.rules {
		with.rules[target] = filled(rule)
	}
	return &with
}

// For returns the settings of a resource; group is empty for the core group. It does not allocate.
func (c *Config) For(group, version, resource string) Rule {
	if rule, ok := c.rules[RuleTarget{group, version, resource}]; ok {
		return rule
	}
	if rule, ok := c.rules[RuleTarget{group, "", resource}]; ok {
		return rule
	}
	rule, ok := c.rules[RuleTarget{group, "", AllResources}]
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

// RuleTargets returns what the rules of the file are for, in its order.
func (c *Config) RuleTargets() []RuleTarget { return slices.Clone(c.order) }

// Rule returns the rule for a target, with all that it inherits. It is the zero Rule if
// the file has none.
func (c *Config) Rule(t RuleTarget) Rule { return c.rules[t] }

// Eager returns the collections to read before anybody asks, in the order of the file.
func (c *Config) Eager() []EagerCollection { return slices.Clone(c.eager) }

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

// statement is a rule as it is written: what it does not say is nil.
type statement struct {
	target          RuleTarget
	cache           *CacheMode
	representations []media.Representation
	historyWindow   *time.Duration
	maxBytes        *int64
	idleTimeout     *time.Duration
	limitAtZero     *LimitAtZero
	consistentLists *ConsistentLists
	watches         *bool
	sameForEveryone *bool
	newestAsAny     []Caller
	// line is where it stands; lines where its fields do.
	line  int
	lines map[string]int
}

// over returns the settings of s and, for those that s does not have, those of base.
func (s *statement) over(base Rule, name string) Rule {
	base.Cache = said(s.cache, base.Cache)
	if s.representations != nil {
		base.Representations = s.representations
	}
	base.HistoryWindow = said(s.historyWindow, base.HistoryWindow)
	base.MaxBytes = said(s.maxBytes, base.MaxBytes)
	base.IdleTimeout = cmp.Or(s.idleTimeout, base.IdleTimeout)
	base.LimitAtZero = said(s.limitAtZero, base.LimitAtZero)
	base.ConsistentLists = said(s.consistentLists, base.ConsistentLists)
	base.SameForEveryone = said(s.sameForEveryone, base.SameForEveryone)
	base.Watches = cmp.Or(s.watches, base.Watches)
	if s.newestAsAny != nil {
		base.NewestAsAny = s.newestAsAny
	}
	base.Source = fmt.Sprintf("%s:%d", name, s.line)
	return base
}

func said[T any](value *T, otherwise T) T {
	if value != nil {
		return *value
	}
	return otherwise
}

// newConfig fills in what the statements inherit: a rule with a version from the one
// without, that from the one for the group, that from the defaults.
func newConfig(name string, defaults *statement, statements []*statement) *Config {
	c := &Config{rest: builtIn(), rules: make(map[RuleTarget]Rule, len(statements))}
	if defaults != nil {
		c.rest = defaults.over(c.rest, name)
	}
	byDetail := slices.Clone(statements)
	slices.SortStableFunc(byDetail, func(a, b *statement) int { return cmp.Compare(a.target.detail(), b.target.detail()) })
	for _, s := range byDetail {
		t := s.target
		base := c.rest
		if t.Resource != AllResources {
			base = c.For(t.Group, "", t.Resource)
		}
		c.rules[t] = s.over(base, name)
	}
	for _, s := range statements {
		c.order = append(c.order, s.target)
		if s.cache == nil || *s.cache != CacheEager {
			continue
		}
		representations := s.representations
		if representations == nil {
			representations = []media.Representation{media.JSON}
		}
		for _, representation := range representations {
			c.eager = append(c.eager, EagerCollection{s.target.Group, s.target.Version, s.target.Resource, representation})
		}
	}
	return c
}

// detail orders targets by how much they say.
func (t RuleTarget) detail() int {
	switch {
	case t.Resource == AllResources:
		return 0
	case t.Version == "":
		return 1
	}
	return 2
}
