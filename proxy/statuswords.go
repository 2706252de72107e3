package proxy

import "github.com/listproxy/listproxy/policy"

// reasonWords says in plain words why lists are forwarded for a reason. The README has more of them.
func reasonWords(reason policy.Reason) string {
	switch reason {
	case policy.ReasonNotList:
		return "not a list: a write, a single object, discovery"
	case policy.ReasonWatch:
		return "watches, streaming lists among them"
	case policy.ReasonNotCanonical:
		return "written in a form that might be read differently elsewhere"
	case policy.ReasonParameter:
		return "a query parameter is unknown, given twice, or unusual"
	case policy.ReasonInvalid:
		return "parameters that do not go together: kube-apiserver refuses them"
	case policy.ReasonMostRecent:
		return "the state at this moment, which only kube-apiserver knows: what kubectl and plain clients ask for"
	case policy.ReasonSelector:
		return "a selector that is not known to be understood as kube-apiserver does"
	case policy.ReasonRepresentation:
		return "a form that is not kept: tables (kubectl get), YAML, CBOR"
	case policy.ReasonPretty:
		return "indented JSON: browsers and curl get it"
	case policy.ReasonImpersonation:
		return "the caller impersonates somebody"
	case policy.ReasonAnonymous:
		return "no bearer token, nor a certificate that counts here"
	case policy.ReasonCredentials:
		return "several credentials, or oddly written ones"
	case policy.ReasonUnknownCaller:
		return "kube-apiserver had not accepted the caller's token yet: new callers, and made-up tokens"
	case policy.ReasonNotAllowed:
		return "kube-apiserver did not say that the caller may"
	case policy.ReasonNotLent:
		return "listproxy's own account may not list it as the caller"
	case policy.ReasonReviewFailed:
		return "kube-apiserver could not be asked whether the caller may, or its answer came too late, or said neither"
	case policy.ReasonNotCached:
		return "the policy does not keep it: Secrets and Events by default"
	case policy.ReasonUnknownResource:
		return "not known as a resource of kube-apiserver's own that can be listed and watched"
	case policy.ReasonAudit:
		return "the audit log could not be written"
	case policy.ReasonAggregated:
		return "another API server answers for it"
	case policy.ReasonWarming:
		return "it was still being read: for the first time, or again after a loss"
	case policy.ReasonNotPermitted:
		return "listproxy's own account may not list and watch it"
	case policy.ReasonForm:
		return "lists and watches could not be reconciled byte for byte"
	case policy.ReasonStale:
		return "kube-apiserver had been silent for too long"
	case policy.ReasonAhead:
		return "a revision newer than what was heard of"
	case policy.ReasonHistory:
		return "a revision older than the history, or in a gap of it"
	case policy.ReasonMemory:
		return "the bound on memory left no room"
	case policy.ReasonSchema:
		return "the definition of the custom resource had just changed"
	case policy.ReasonUpstream:
		return "the API servers had just changed, or did not agree"
	case policy.ReasonStopped:
		return "the collection was given up at that moment"
	}
	return ""
}
