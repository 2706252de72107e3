package analyze

import (
	"cmp"
	"strings"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// kind is what somebody asks for.
type kind string

const (
	kindList  kind = "list"
	kindWatch kind = "watch"
)

// Forms of requests besides [policy.Semantics].
const (
	// formWatch is a watch that goes on from a revision.
	formWatch = "watch"
	// formStreaming is a watch that begins with the state: a streaming list.
	formStreaming = "streaming-list"
	// formUnknown is a request whose options cannot be read.
	formUnknown = "unknown"
)

// answerer is who answers.
type answerer string

const (
	// byMemory means that listproxy answers, as it comes.
	byMemory answerer = "memory"
	// withConsistentLists means that listproxy answers with --consistent-lists.
	withConsistentLists answerer = "consistent-lists"
	// withWatches means that listproxy answers with --watches.
	withWatches answerer = "watches"
	// byAPIServer means that kube-apiserver answers, as without listproxy.
	byAPIServer answerer = "kube-apiserver"
)

// whyRefused, besides those of package reason: kube-apiserver did not answer with what was asked
// for.
const whyRefused reason.Reason = "refused"

// verdict is what listproxy would do with a request.
type verdict struct {
	kind kind
	form string
	by   answerer
	why  reason.Reason // with byAPIServer
}

// judge says what listproxy would do under a policy.
type judge struct {
	policy *policy.Config // as it is, with the switches off
	on     *policy.Config // with the switches on
}

func newJudge(p *policy.Config) judge {
	return judge{policy: p, on: p.With(policy.Switches{Consistent: policy.ConsistentAlways, Watches: true})}
}

// verdict is what listproxy would do with the request of an audit event.
func (j *judge) verdict(e *auditEvent) verdict {
	v := verdict{kind: kind(e.Verb), form: formUnknown, by: byAPIServer, why: reason.NotCanonical}
	r, ok := e.httpRequest()
	if !ok {
		return v
	}
	by := policy.PlainToken
	if e.anonymous() {
		by = policy.NoToken
	}
	parsed := kubehttp.Parse(r)
	list, why := policy.Parse(r, parsed.Info, by)
	v.form = formOf(list, why)
	v.by, v.why = j.answerer(list, why)
	switch {
	case !succeeded(e.ResponseStatus.Code):
		v.by, v.why = byAPIServer, whyRefused
	case v.by != byAPIServer && aggregated(list):
		v.by, v.why = byAPIServer, reason.UnknownResource
	}
	return v
}

// answerer returns who answers a list or watch, which policy.Parse has read and may have a reason to
// forward.
func (j *judge) answerer(list *policy.Request, why reason.Reason) (answerer, reason.Reason) {
	if why != "" {
		return byAPIServer, why
	}
	// What a rule of the policy says comes before the switches.
	if forwarded(j.policy, list) == "" {
		return byMemory, ""
	}
	switch why := forwarded(j.on, list); {
	case why != "":
		return byAPIServer, why
	case list.Watch:
		return withWatches, ""
	}
	return withConsistentLists, ""
}

// forwarded returns the reason why a list or watch is forwarded under a policy, as far as that is known without a
// cluster. A resource may have namespaces or not; if the list could be answered in either case, it
// counts as answered.
func forwarded(p *policy.Config, list *policy.Request) reason.Reason {
	o := p.Evaluate(list, "")
	_, unkept := o.Rule.Representation(list, true, false)
	if unkept != "" && list.Namespace == "" {
		_, unkept = o.Rule.Representation(list, false, false)
	}
	return cmp.Or(o.Reason, o.NotKept, unkept)
}

// formOf returns what a list or watch asks for, as far as policy.Parse has read it before it came to a
// reason to forward it.
func formOf(list *policy.Request, why reason.Reason) string {
	switch why {
	case reason.NotList, reason.Watch, reason.NotCanonical:
		return formUnknown // the query was not read
	}
	decision := list.Decide(policy.LimitIgnored, policy.ConsistentAlways)
	switch {
	case !decision.Serve && decision.Reason == reason.Consistent:
		return string(policy.Consistent)
	case !decision.Serve:
		return formUnknown
	case list.Watch && decision.Initial:
		return formStreaming
	case list.Watch:
		return formWatch
	}
	return string(decision.Semantics)
}

// aggregated reports whether another API server answers for a resource, which a log does not tell: the
// metrics APIs are never kube-apiserver's own.
func aggregated(list *policy.Request) bool {
	return list.Group == "metrics.k8s.io" || strings.HasSuffix(list.Group, ".metrics.k8s.io")
}
