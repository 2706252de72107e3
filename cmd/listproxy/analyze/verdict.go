package analyze

import (
	"cmp"
	"strings"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// kind is the kind of a request.
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

// answerer says who would answer a request.
type answerer string

const (
	// byMemory means that listproxy answers without any switch.
	byMemory answerer = "memory"
	// withConsistentLists means that listproxy answers with --consistent-lists.
	withConsistentLists answerer = "consistent-lists"
	// withWatches means that listproxy answers with --watches.
	withWatches answerer = "watches"
	// byAPIServer means that kube-apiserver answers, as without listproxy.
	byAPIServer answerer = "kube-apiserver"
)

// whyRefused is a reason besides those of package reason: kube-apiserver refused the request.
const whyRefused reason.Reason = "refused"

// verdict is what listproxy would do with a request.
type verdict struct {
	kind       kind
	form       string
	answeredBy answerer
	why        reason.Reason // why kube-apiserver answers; None if listproxy does
}

// judge decides what listproxy would do under a policy.
type judge struct {
	policy       *policy.Config // as it is, with the switches off
	withSwitches *policy.Config // with the switches on
}

func newJudge(p *policy.Config) judge {
	on := policy.Switches{Consistent: policy.ConsistentAlways, Watches: true}
	return judge{policy: p, withSwitches: p.WithSwitches(on)}
}

// verdict returns what listproxy would do with the request of an audit event.
func (j *judge) verdict(e *auditEvent) verdict {
	v := verdict{kind: kind(e.Verb), form: formUnknown, answeredBy: byAPIServer, why: reason.NotCanonical}
	r, ok := e.httpRequest()
	if !ok {
		return v
	}
	credentials := policy.PlainToken
	if e.anonymous() {
		credentials = policy.NoToken
	}
	parsed := kubehttp.Parse(r)
	list, why := policy.Parse(r, parsed.Info, credentials)
	v.form = formOf(list, why)
	v.answeredBy, v.why = j.answerer(list, why)
	switch {
	case !succeeded(e.ResponseStatus.Code):
		v.answeredBy, v.why = byAPIServer, whyRefused
	case v.answeredBy != byAPIServer && isAggregated(list):
		v.answeredBy, v.why = byAPIServer, reason.UnknownResource
	}
	return v
}

// answerer returns who answers a list or watch. why is the reason of [policy.Parse] to forward it.
func (j *judge) answerer(list *policy.Request, why reason.Reason) (answerer, reason.Reason) {
	if why != reason.None {
		return byAPIServer, why
	}
	// A rule of the policy can say yes or no for a resource, whatever the switches say.
	if whyForwarded(j.policy, list) == reason.None {
		return byMemory, reason.None
	}
	switch why := whyForwarded(j.withSwitches, list); {
	case why != reason.None:
		return byAPIServer, why
	case list.Watch:
		return withWatches, reason.None
	}
	return withConsistentLists, reason.None
}

// whyForwarded returns the reason why a list or watch is forwarded under a policy. Without a cluster nobody knows
// whether the resource has namespaces. If the request could be answered in one of the two cases, it counts as answered.
func whyForwarded(p *policy.Config, list *policy.Request) reason.Reason {
	evaluation := p.Evaluate(list, reason.None)
	_, unkept := evaluation.Rule.Representation(list, true, false)
	if unkept != reason.None && list.Namespace == "" {
		_, unkept = evaluation.Rule.Representation(list, false, false)
	}
	return cmp.Or(evaluation.Reason, evaluation.NotKept, unkept)
}

// formOf returns the form of a list or watch. why is the reason of [policy.Parse] to forward it: depending on that,
// only a part of the request was parsed.
func formOf(list *policy.Request, why reason.Reason) string {
	switch why {
	case reason.NotList, reason.Watch, reason.NotCanonical:
		return formUnknown // the query was not parsed
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

// isAggregated reports whether a resource is known to be served by an aggregated API server. Logs do not tell that,
// but the metrics APIs are never kube-apiserver's own.
func isAggregated(list *policy.Request) bool {
	return list.Group == "metrics.k8s.io" || strings.HasSuffix(list.Group, ".metrics.k8s.io")
}
