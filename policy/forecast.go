package policy

import (
	"cmp"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
)

// Switches are flags of a process: which lists of the newest state are answered from memory, and
// whether watches are, for resources whose rule does not say it.
type Switches struct {
	Consistent ConsistentLists
	Watches    bool
}

// Forecast is what can be said about a list or watch without a cluster: whether the policy and the
// request itself allow an answer from memory. Whether memory has the state, and whether the caller
// may list, is known only when the request comes.
type Forecast struct {
	// Decision follows from the options. Its Reason may differ from Why, which is found first.
	Decision Decision
	// Representation is the form of the answer; empty if listproxy does not have that form.
	Representation media.Representation
	// Newest: the newest state is asked for, with a list's first page.
	Newest bool
	// AsAny: Newest, but the policy gives this caller any state.
	AsAny bool
	// Consistent is the setting for lists of the newest state.
	Consistent ConsistentLists
	// Rule is the one for the resource.
	Rule Rule
	// Why it is forwarded; empty if it may be answered from memory.
	Why reason.Reason
}

// Forecast says what happens to a list or watch that [Parse] has understood. custom says whether
// the resource is a custom one. Whether it has namespaces is not known: if the list can be answered
// from memory in either case, it counts as answered.
func (c *Config) Forecast(list Request, switches Switches, custom bool, caller user.Info) Forecast {
	rule := c.For(list.Group, list.Version, list.Resource)
	f := Forecast{Rule: rule, Consistent: cmp.Or(rule.ConsistentLists, switches.Consistent)}
	f.Decision = list.Decide(rule.LimitAtZero, f.Consistent)
	// newestAsAny is about lists, and not about the pages that follow a first one.
	f.Newest = !list.Watch && list.Options.Continue == "" &&
		(f.Decision.Semantics == MostRecent || f.Decision.Reason == reason.MostRecent)
	if f.AsAny = f.Newest && rule.GetsAny(caller); f.AsAny {
		f.Decision = list.Decide(rule.LimitAtZero, ConsistentFaster)
		f.Decision.Semantics = Any
	}
	f.Representation, f.Why = rule.Form(list, true, custom)
	if f.Why != "" && list.Namespace == "" {
		f.Representation, f.Why = rule.Form(list, false, custom)
	}
	switch {
	case list.Watch && !rule.AnswersWatches(switches.Watches):
		f.Why = reason.Watch
	case !f.Decision.Serve:
		f.Why = f.Decision.Reason
	case rule.Cache == CacheNever:
		f.Why = reason.NotCached
	}
	return f
}
