package policy

import (
	"cmp"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
)

// Outline is what a request and the policy say about an answer from memory, before anybody is
// asked.
type Outline struct {
	// Decision follows from the request and the rule's switches. Semantics is MostRecent also if the
	// request is forwarded for that reason.
	Decision
	// NotKept is why the policy forbids the answer, or empty. Only callers whom kube-apiserver knows may
	// learn it.
	NotKept reason.Reason
	// Rule is the one for the resource.
	Rule Rule
	// Newest: the first page of a list asks for the newest state, even if AsAny gives it any.
	Newest bool
	// AsAny: Newest, but the policy gives this caller any state.
	AsAny bool
}

// Outline returns the outline of a list or watch as [Parse] has read it; why is Parse's reason to
// forward it, or empty. Where watches are not answered, each is forwarded because it is one, whatever
// else stands in the way.
func (c *Config) Outline(list Request, why reason.Reason) Outline {
	o := Outline{Rule: c.For(list.Group, list.Version, list.Resource)}
	switch {
	case list.Watch && !o.Rule.AnswersWatches():
		o.Decision = forward(reason.Watch)
	case why != "":
		o.Decision = forward(why)
	default:
		o.Decision = list.Decide(o.Rule.LimitAtZero, o.Rule.ConsistentLists)
	}
	if o.Reason == reason.MostRecent {
		o.Semantics = MostRecent
	}
	if o.Rule.Cache == CacheNever {
		o.NotKept = reason.NotCached
	}
	// A page that continues a list of the newest state must not be of any other state.
	o.Newest = o.Semantics == MostRecent && !list.Watch && list.Options.Continue == ""
	return o
}

// GiveAny changes the outline of a list of the newest state whose caller gets any state.
func (o *Outline) GiveAny(list Request) {
	o.Decision, o.AsAny = list.Decide(o.Rule.LimitAtZero, ConsistentFaster), true
	o.Semantics = Any
}

// Forecast is what can be said about a list or watch without a cluster. Whether memory has the
// state, and whether the caller may list, is known only when the request comes.
type Forecast struct {
	Outline
	// Representation is the form of the answer; empty if listproxy does not have that form.
	Representation media.Representation
	// Why it is forwarded; empty if it may be answered from memory.
	Why reason.Reason
}

// Forecast says what happens to a list or watch as [Parse] has read it; why is Parse's reason to
// forward it, or empty. custom says whether the resource is a custom one. Whether it has namespaces is
// not known: if the list can be answered from memory in either case, it counts as answered.
func (c *Config) Forecast(list Request, why reason.Reason, custom bool, caller user.Info) Forecast {
	f := Forecast{Outline: c.Outline(list, why)}
	if f.Newest && f.Rule.GetsAny(caller) {
		f.GiveAny(list)
	}
	representation, unkept := f.Rule.Form(list, true, custom)
	if unkept != "" && list.Namespace == "" {
		representation, unkept = f.Rule.Form(list, false, custom)
	}
	f.Representation, f.Why = representation, cmp.Or(f.Reason, f.NotKept, unkept)
	return f
}
