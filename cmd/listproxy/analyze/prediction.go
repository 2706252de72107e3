package analyze

import (
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"

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

// form says what a list or watch asks for. The form of a list is one of the [policy.Semantics], like any or exact, or
// formUnknown. The form of a watch is one of the constants.
type form string

const (
	// formWatch is a watch that begins with the next change.
	formWatch form = "watch"
	// formWatchWithState is a watch that begins with the state: a streaming list, or a watch without a resourceVersion or
	// with resourceVersion=0.
	formWatchWithState form = "streaming-list"
	// formUnknown is a list or watch whose options cannot be read.
	formUnknown form = "unknown"
)

// answerer says who would answer a request. [RequestCounts] has a number for each.
type answerer string

const (
	byMemory                  answerer = "memory"           // listproxy, without any switch
	byMemoryIfConsistentLists answerer = "consistent-lists" // listproxy, only with --consistent-lists
	byMemoryIfWatches         answerer = "watches"          // listproxy, only with --watches
	byAPIServer               answerer = "kube-apiserver"
)

// reasonRefused means that kube-apiserver answered the request with an error. It would do so behind listproxy, too, since
// listproxy would forward the request. Package reason does not have this reason, since listproxy does not foresee such answers.
const reasonRefused reason.Reason = "refused"

// Prediction is what listproxy would do with a request.
type Prediction struct {
	// Verb is list or watch.
	Verb verb `json:"verb"`
	// Form is what the list or watch asks for: any, not-older-than, exact, continue, consistent, watch, streaming-list
	// or unknown.
	Form form `json:"form"`
	// AnsweredBy is memory, consistent-lists, watches or kube-apiserver, as in [RequestCounts].
	AnsweredBy answerer `json:"answeredBy"`
	// Reason says why kube-apiserver answers. It is empty if listproxy can answer.
	Reason reason.Reason `json:"reason,omitempty"`
}

// predictor predicts what listproxy would do under a policy.
type predictor struct {
	withoutSwitches *policy.Config // the policy without --consistent-lists and --watches
	withSwitches    *policy.Config // the policy with both
}

func newPredictor(f *policy.File) predictor {
	switches := policy.Switches{ConsistentLists: policy.ConsistentAll, Watches: true}
	return predictor{withoutSwitches: f.Config(policy.Switches{}), withSwitches: f.Config(switches)}
}

// predict returns what listproxy would do with the request of an audit event.
func (p *predictor) predict(e *auditEvent) Prediction {
	result := Prediction{Verb: e.Verb, Form: formUnknown, AnsweredBy: byAPIServer, Reason: reason.NotCanonical}
	httpRequest, ok := e.httpRequest()
	if !ok {
		return result
	}
	credentials := policy.PlainToken
	if e.User.Username == user.Anonymous {
		credentials = policy.NoToken
	}
	request, parseReason := policy.Parse(httpRequest, kubehttp.Parse(httpRequest).Info, credentials)
	result.Form = formOf(request, parseReason)
	if !succeeded(e.ResponseStatus.Code) {
		result.Reason = reasonRefused
		return result
	}
	result.AnsweredBy, result.Reason = p.whoAnswers(request, parseReason)
	return result
}

// succeeded reports whether code is the status of a successful list or watch. A code of 0, in a log without a status, counts
// as success.
func succeeded(code int) bool { return code == 0 || code == http.StatusOK }

// whoAnswers returns who answers a request and, if that is kube-apiserver, the reason. parseReason is the reason for which
// [policy.Parse] forwards the request, or None. The first line that fits decides:
//
//	the request                                         who answers
//	is forwarded even with both switches                kube-apiserver
//	is for a group of aggregated API servers            kube-apiserver
//	is answered without any switch                      memory
//	is a watch, so it needs --watches                   memory, with --watches
//	is a list, so it needs --consistent-lists           memory, with --consistent-lists
func (p *predictor) whoAnswers(request *policy.Request, parseReason reason.Reason) (answerer, reason.Reason) {
	why := parseReason
	if why == reason.None {
		why = whyForwarded(p.withSwitches, request)
	}
	switch {
	case why != reason.None: // forwarded even with both switches
		return byAPIServer, why
	case isAggregated(request):
		return byAPIServer, reason.UnknownResource
	case whyForwarded(p.withoutSwitches, request) == reason.None:
		// For some resources, rules of the policy turn on consistent lists or watches without the switches.
		return byMemory, reason.None
	case request.Watch:
		return byMemoryIfWatches, reason.None
	}
	return byMemoryIfConsistentLists, reason.None
}

// whyForwarded returns the reason why a request is forwarded under a policy, or None.
func whyForwarded(p *policy.Config, request *policy.Request) reason.Reason {
	evaluation := p.Evaluate(request, reason.None)
	switch {
	case evaluation.Reason != reason.None:
		return evaluation.Reason
	case evaluation.Rule.Cache == policy.CacheNever:
		return reason.NotCached
	}
	return mismatchOf(evaluation.Rule, request)
}

// mismatchOf returns the reason why a request does not fit its resource, or None if it may fit. Two facts about the resource
// are not in a log:
//
//   - whether it has namespaces: a request without a namespace may fit either kind;
//   - whether it is custom: this matters for protobuf only, and [auditEvent.httpRequest] asks for JSON or a table.
func mismatchOf(rule policy.Rule, request *policy.Request) reason.Reason {
	const namespaced, clusterScoped = true, false
	const notCustom = false
	_, mismatch := rule.Representation(request, namespaced, notCustom)
	if mismatch != reason.None && request.Namespace == "" {
		_, mismatch = rule.Representation(request, clusterScoped, notCustom)
	}
	return mismatch
}

// formOf returns the form of a request. parseReason is the reason for which [policy.Parse] forwards the request, or None.
func formOf(request *policy.Request, parseReason reason.Reason) form {
	switch parseReason {
	case reason.NotList, reason.Watch, reason.NotCanonical:
		return formUnknown // Parse did not read the query
	}
	// With these settings, Decide forwards as few requests as possible. A request that is forwarded even so has no Semantics,
	// so its form is unknown. There is one exception, a page at the newest state: it is forwarded, and has Semantics.
	decision := request.Decide(policy.LimitIgnored, policy.ConsistentAll)
	switch {
	case decision.Semantics == "":
		return formUnknown
	case request.Watch && decision.Initial:
		return formWatchWithState
	case request.Watch:
		return formWatch
	}
	return form(decision.Semantics)
}

// isAggregated reports whether a request is for the metrics APIs, which only aggregated API servers serve. A log does not say
// which other resources are aggregated.
func isAggregated(request *policy.Request) bool {
	return request.Group == "metrics.k8s.io" || strings.HasSuffix(request.Group, ".metrics.k8s.io")
}
