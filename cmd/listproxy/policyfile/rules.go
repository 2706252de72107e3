package policyfile

import (
	"cmp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/media"
)

// NamedRule is a rule, and what it is for.
type NamedRule struct {
	Name string
	policy.Rule
}

// InForce are all rules of a policy: those of its file in its order, and what holds without
// one.
func InForce(c *policy.Config) []NamedRule {
	var rules []NamedRule
	for _, t := range c.RuleTargets() {
		rules = append(rules, NamedRule{t.String(), c.Rule(t)})
	}
	rules = append(rules, NamedRule{"everything else", c.Defaults()})
	for _, t := range []policy.RuleTarget{{Resource: "secrets"}, {Resource: "events"}, {Group: "events.k8s.io", Resource: "events"}} {
		if rule := c.For(t.Group, "v1", t.Resource); rule.Source == policy.BuiltIn {
			rules = append(rules, NamedRule{t.String(), rule})
		}
	}
	return rules
}

// RepresentationsOf are the representations that a rule keeps.
func RepresentationsOf(r policy.Rule) string {
	if len(r.Representations) == len(media.All()) {
		return "all"
	}
	words := make([]string, len(r.Representations))
	for i, representation := range r.Representations {
		words[i] = string(representation)
	}
	return strings.Join(words, ",")
}

// HistoryOf is how far back the history of a resource reaches, or the flag that says so.
func HistoryOf(r policy.Rule) string {
	if r.HistoryWindow == 0 {
		return "--history-window"
	}
	return r.HistoryWindow.String()
}

func bytesOf(r policy.Rule) string {
	if r.MaxBytes == 0 {
		return "--cache-bytes"
	}
	return resource.NewQuantity(r.MaxBytes, resource.BinarySI).String()
}

func watchesOf(r policy.Rule) string {
	if r.Watches == nil {
		return "--watches"
	}
	return strconv.FormatBool(*r.Watches)
}

func consistentOf(r policy.Rule) string {
	return cmp.Or(string(r.ConsistentLists), "--consistent-lists")
}

// NewestAsAnyOf are the callers who get any for the newest state.
func NewestAsAnyOf(r policy.Rule) string {
	names := make([]string, len(r.NewestAsAny))
	for i, caller := range r.NewestAsAny {
		names[i] = caller.String()
	}
	return cmp.Or(strings.Join(names, ", "), "nobody")
}

func sameOf(r policy.Rule) string {
	if r.SameForEveryone {
		return "yes"
	}
	return "no"
}

func idleOf(r policy.Rule) string {
	switch {
	case r.Cache == policy.CacheEager:
		return "never"
	case r.IdleTimeout == nil:
		return "--idle-timeout"
	case *r.IdleTimeout == 0:
		return "never"
	}
	return r.IdleTimeout.String()
}
