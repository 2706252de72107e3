package policy

// Explain says in one sentence, for users, why a request is forwarded. It is empty for
// what is no Reason.
func (r Reason) Explain() string { return explanations[r] }

var explanations = map[Reason]string{
	ReasonNotList:        "It is not a GET of a list of resources: a write, a single object, a subresource, or no resource at all.",
	ReasonWatch:          "It is a watch.",
	ReasonNotCanonical:   "Its path, query, headers or continue token are not in the one form that listproxy takes, so they might be read differently elsewhere.",
	ReasonParameter:      "A query parameter is unknown, given twice, or has a value in an unusual form.",
	ReasonInvalid:        "Its parameters do not go together; kube-apiserver refuses it.",
	ReasonMostRecent:     "It asks for the state at this moment, which only kube-apiserver knows.",
	ReasonSelector:       "It has a selector that does not parse, is too large, or does something else at kube-apiserver than to select.",
	ReasonRepresentation: "It prefers a form that is not kept, such as a table or YAML, or one that kube-apiserver does not have.",
	ReasonPretty:         "It gets indented output, by a parameter, or because its User-Agent is a browser, curl or Wget.",
	ReasonImpersonation:  "It has Impersonate-* headers.",
	ReasonAnonymous:      "It has no Authorization header with a bearer token.",
	ReasonCredentials:    "It has several Authorization headers, so it is not certain who asks.",

	ReasonUnknownCaller:   "kube-apiserver has not accepted this caller's token yet; when it has answered, the next list may come from memory.",
	ReasonNotAllowed:      "kube-apiserver did not say that this caller may list this.",
	ReasonNotLent:         "listproxy's own account may not list this as the caller, whom it would have to impersonate.",
	ReasonReviewFailed:    "kube-apiserver could not be asked whether this caller may list this, or there was no room for the question; or its answer expired before the list could be written; or memory had no answer, and kube-apiserver's own does not show whether the caller may.",
	ReasonAudit:           "The audit log cannot be written, or kube-apiserver could not be asked who the caller is.",
	ReasonNotCached:       "The policy keeps this resource, or this form of it, out of memory.",
	ReasonUnknownResource: "Discovery has no such resource that can be listed and watched.",
	ReasonAggregated:      "Another API server answers for it, which may show each caller something else.",

	ReasonWarming:      "The resource is being read for the first time, or again after a loss.",
	ReasonNotPermitted: "listproxy's own account may not list and watch the resource.",
	ReasonForm:         "What kube-apiserver sends in lists and in watches could not be reconciled byte for byte.",
	ReasonStale:        "Nothing was heard from kube-apiserver for too long.",
	ReasonAhead:        "The revision is newer than what listproxy has heard of.",
	ReasonHistory:      "The revision is older than the history that is kept, or from a time that listproxy missed.",
	ReasonMemory:       "The bound on memory leaves no room.",
	ReasonSchema:       "The definition of the custom resource changed a moment ago, or listproxy would not hear of a change now.",
	ReasonUpstream:     "The API servers behind the upstream changed a moment ago, or do not agree in which version they write the resource.",
	ReasonStopped:      "The resource was given up at this moment: idle for too long, or listproxy is ending.",
}
