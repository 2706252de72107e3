package analyze

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// verb is the verb of an audit event.
type verb string

const (
	verbList  verb = "list"
	verbWatch verb = "watch"
)

// form says what a list or watch asks for. The form of a list is one of [policy.Semantics], or formUnknown.
type form string

const (
	// formWatch is a watch that goes on from a revision.
	formWatch form = "watch"
	// formStreaming is a watch that begins with the state: a streaming list.
	formStreaming form = "streaming-list"
	// formUnknown is a request whose options cannot be read.
	formUnknown form = "unknown"
)

// answerer says who would answer a request.
type answerer string

const (
	// byMemory means that listproxy answers without any switch.
	byMemory answerer = "memory"
	// byMemoryIfConsistentLists means that listproxy answers only with --consistent-lists.
	byMemoryIfConsistentLists answerer = "consistent-lists"
	// byMemoryIfWatches means that listproxy answers only with --watches.
	byMemoryIfWatches answerer = "watches"
	// byAPIServer means that kube-apiserver answers, as without listproxy.
	byAPIServer answerer = "kube-apiserver"
)

// whyRefused is a reason that package reason does not have: kube-apiserver refused the request.
const whyRefused reason.Reason = "refused"

// prediction is what listproxy would do with a request.
type prediction struct {
	verb       verb
	form       form
	answeredBy answerer
	why        reason.Reason // why kube-apiserver answers; None if listproxy does
}

// predictor predicts what listproxy would do under a policy.
type predictor struct {
	asWritten    *policy.Config // without --consistent-lists and --watches
	withSwitches *policy.Config // with both
}

func newPredictor(p *policy.Config) predictor {
	switches := policy.Switches{Consistent: policy.ConsistentAlways, Watches: true}
	return predictor{asWritten: p, withSwitches: p.WithSwitches(switches)}
}

// predict returns what listproxy would do with the request of an audit event.
func (p *predictor) predict(e *auditEvent) prediction {
	result := prediction{verb: e.Verb, form: formUnknown, answeredBy: byAPIServer, why: reason.NotCanonical}
	r, ok := e.httpRequest()
	if !ok {
		return result
	}
	credentials := policy.PlainToken
	if e.isAnonymous() {
		credentials = policy.NoToken
	}
	list, why := policy.Parse(r, kubehttp.Parse(r).Info, credentials)
	result.form = formOf(list, why)
	if !succeeded(e.ResponseStatus.Code) {
		// A refusal is always kube-apiserver's: listproxy forwards what it cannot answer.
		result.why = whyRefused
		return result
	}
	result.answeredBy, result.why = p.whoAnswers(list, why)
	if result.answeredBy != byAPIServer && isAggregated(list) {
		result.answeredBy, result.why = byAPIServer, reason.UnknownResource
	}
	return result
}

// succeeded reports whether a response has the status code of success. A log without the code has 0; then success is
// assumed.
func succeeded(code int) bool { return code == 0 || code == http.StatusOK }

// whoAnswers returns who answers a list or watch, and why it is forwarded. parseReason is the reason of [policy.Parse]
// to forward it, or None.
func (p *predictor) whoAnswers(list *policy.Request, parseReason reason.Reason) (answerer, reason.Reason) {
	if parseReason != reason.None {
		return byAPIServer, parseReason
	}
	// Rules count before the switches: a rule can turn on consistent lists or watches for its resource.
	if whyForwarded(p.asWritten, list) == reason.None {
		return byMemory, reason.None
	}
	if why := whyForwarded(p.withSwitches, list); why != reason.None {
		return byAPIServer, why
	}
	if list.Watch {
		return byMemoryIfWatches, reason.None
	}
	return byMemoryIfConsistentLists, reason.None
}

// whyForwarded returns the reason why a list or watch is forwarded under a policy, or None. Without a cluster it is not
// known whether the resource is namespaced. The request counts as answered if either kind of resource could be
// answered.
func whyForwarded(p *policy.Config, list *policy.Request) reason.Reason {
	const namespaced, clusterScoped, builtIn = true, false, false
	evaluation := p.Evaluate(list, reason.None)
	_, mismatch := evaluation.Rule.Representation(list, namespaced, builtIn)
	if mismatch != reason.None && list.Namespace == "" {
		_, mismatch = evaluation.Rule.Representation(list, clusterScoped, builtIn)
	}
	return cmp.Or(evaluation.Reason, evaluation.PolicyReason, mismatch) // the first that is not None
}

// formOf returns the form of a list or watch. parseReason is the reason of [policy.Parse] to forward it, or None.
func formOf(list *policy.Request, parseReason reason.Reason) form {
	switch parseReason {
	case reason.NotList, reason.Watch, reason.NotCanonical:
		return formUnknown // Parse did not read the query
	}
	// The form does not depend on the policy, so the settings are those that forward the fewest requests.
	decision := list.Decide(policy.LimitIgnored, policy.ConsistentAlways)
	switch {
	case !decision.Serve && decision.Reason == reason.Consistent: // a continuation at the newest state
		return form(policy.Consistent)
	case !decision.Serve:
		return formUnknown
	case list.Watch && decision.Initial:
		return formStreaming
	case list.Watch:
		return formWatch
	}
	return form(decision.Semantics)
}

// isAggregated reports whether a resource is known to be served by an aggregated API server. Logs do not have this
// fact, but the metrics APIs are never kube-apiserver's own.
func isAggregated(list *policy.Request) bool {
	return list.Group == "metrics.k8s.io" || strings.HasSuffix(list.Group, ".metrics.k8s.io")
}
