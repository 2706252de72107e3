// Package reason has all reasons why a request is forwarded instead of being answered from memory, and why a state in
// memory was lost. The same words appear in the Cache-Status header, in metrics, in traces, in logs and in the
// documentation.
package reason

// Reason is the word for one reason.
type Reason string

// None is the zero Reason: nothing stands in the way.
const None Reason = ""

// The reasons to forward a request; the table below explains each. The first group is found in the request itself, the
// second on the way to an answer. The third is about the state of a collection, and NotProven about its age.
const (
	NotList        Reason = "not-list"
	Watch          Reason = "watch"
	NotCanonical   Reason = "not-canonical"
	Consistent     Reason = "consistent"
	Representation Reason = "representation"
	Credentials    Reason = "credentials"

	UnknownCaller   Reason = "unknown-caller"
	NotAllowed      Reason = "not-allowed"
	ReviewFailed    Reason = "review-failed"
	NotCached       Reason = "not-cached"
	UnknownResource Reason = "unknown-resource"
	Audit           Reason = "audit"

	Warming      Reason = "warming"
	NotPermitted Reason = "not-permitted"
	Form         Reason = "form"
	Stale        Reason = "stale"
	History      Reason = "history"
	Memory       Reason = "memory"
	Upstream     Reason = "upstream"

	NotProven Reason = "not-proven"
)

// The reasons why a state was lost, besides [Form], [Memory], [NotPermitted] and [Upstream].
const (
	// Expired means that the upstream's history did not reach back to where the watch was to go on (410).
	Expired Reason = "expired"
	// NotFound means that the upstream no longer serves the resource.
	NotFound Reason = "not-found"
	// Contradiction means that an event cannot follow those before it.
	Contradiction Reason = "contradiction"
	// WentBack means that a revision is below one that was seen before.
	WentBack Reason = "went-back"
	// FirstObject means that an empty collection got its first object, and its form could not be learned.
	FirstObject Reason = "first-object"
	// Mismatch means that a self-check found that the state is not the upstream's.
	Mismatch Reason = "mismatch"
	// Moved means that another server now answers for the resource.
	Moved Reason = "moved"
	// Schema means that the definition of the custom resource changed.
	Schema Reason = "schema"
	// Other is none of these; it should not happen.
	Other Reason = "other"
)

// forwarding has the reasons to forward, in the order of documentation and metrics. summary describes all lists that were
// forwarded for the reason, sentence a single request.
var forwarding = []struct {
	reason            Reason
	summary, sentence string
}{
	{
		NotList,
		"not a list: a write, a single object, discovery",
		"It is not a GET of a list of resources: a write, a single object, a " +
			"subresource, or no resource at all.",
	},
	{
		Watch,
		"watches and streaming lists, where --watches is not on",
		"It is a watch, and --watches is not on for this resource, or kube-apiserver has no " +
			"streaming lists, or listproxy is ending.",
	},
	{
		NotCanonical,
		"written in a way that kube-apiserver refuses or might read differently",
		"Its path, query, selectors, headers or continue token are written in a way that " +
			"kube-apiserver refuses, or might read differently from listproxy.",
	},
	{
		Consistent,
		"the state at this moment, where --consistent-lists is not on, or the list is small: " +
			"what kubectl and plain clients ask for",
		"It asks for the state at this moment, and --consistent-lists is not on for this resource, or " +
			"the list is so small that kube-apiserver answers it sooner than listproxy could prove that it has that state.",
	},
	{
		Representation,
		"a form that is not kept: tables (kubectl get), YAML, CBOR, indented JSON of very deep objects",
		"It prefers a form that is not kept, such as a table or YAML, or one that " +
			"kube-apiserver does not have, or indented JSON of objects that are nested very deeply.",
	},
	{
		Credentials,
		"no bearer token and no certificate that listproxy accepts, several credentials, " +
			"Impersonate-* headers that are unclear, or a warning of kube-apiserver with every answer",
		"It has no bearer token and no certificate that listproxy accepts, or several credentials, or " +
			"Impersonate-* headers that kube-apiserver refuses or might read differently, or kube-apiserver warns this caller with every answer, of the token for " +
			"example.",
	},
	{
		UnknownCaller,
		"kube-apiserver does not accept the caller's token, or too many new tokens came at the same moment",
		"kube-apiserver does not accept this caller's token, or too many new tokens came at the same moment.",
	},
	{
		NotAllowed,
		"kube-apiserver did not say that the caller may list it, or impersonate somebody for that",
		"kube-apiserver did not say that this caller may list this, or impersonate the user of its Impersonate-* headers for that.",
	},
	{
		ReviewFailed,
		"kube-apiserver could not be asked whether the caller may list it, or its answer " +
			"came too late or said neither yes nor no",
		"kube-apiserver could not be asked whether this caller may list this, or there " +
			"was no room for the review, or its answer came too late or said neither yes nor no.",
	},
	{
		NotCached,
		"the policy does not keep it: Secrets and Events by default",
		"The policy keeps this resource out of memory.",
	},
	{
		UnknownResource,
		"not a resource that kube-apiserver itself is known to list and watch: another API server's, for example",
		"Discovery has no such resource of kube-apiserver's own that can be listed and watched; another " +
			"API server may show each caller something else.",
	},
	{
		Audit,
		"the audit log could not be written",
		"The audit log cannot be written, or kube-apiserver could not be asked who the " +
			"caller is.",
	},
	{
		Warming,
		"it was still being read: for the first time, or again after a loss",
		"The resource is being read for the first time, or again after a loss; or it was just dropped, since " +
			"nobody had asked for it or listproxy is ending.",
	},
	{
		NotPermitted,
		"listproxy's own account may not list and watch it, or not as the caller",
		"listproxy's own account may not list and watch the resource, or not as the caller, whom it " +
			"would have to impersonate.",
	},
	{
		Form,
		"lists and watches could not be reconciled byte for byte",
		"What kube-apiserver sends in lists and in watches could not be reconciled byte " +
			"for byte.",
	},
	{
		Stale,
		"the newest known state was older than --staleness-bound",
		"The newest state that listproxy knows is older than --staleness-bound.",
	},
	{
		History,
		"a revision older than the history, or in a gap in it",
		"The revision is older than the history that is kept, or from a time that " +
			"listproxy missed.",
	},
	{
		Memory,
		"--cache-bytes left no room",
		"--cache-bytes leaves no room.",
	},
	{
		Upstream,
		"the API servers or the resource's definition had just changed, or did not agree",
		"The API servers behind the upstream, or the definition of the custom resource, changed a moment " +
			"ago; or they do not agree, or listproxy cannot watch the definitions now.",
	},
	{
		NotProven,
		"the state at this moment, or one newer than any that listproxy knew, which it could not prove " +
			"in time to have",
		"It asks for the state at this moment, or for a revision newer than any that listproxy knows, and " +
			"listproxy could not prove in time that it has that state.",
	},
}

// Forwarding returns every reason to forward a request. The slice is the caller's.
func Forwarding() []Reason {
	all := make([]Reason, len(forwarding))
	for i, row := range forwarding {
		all[i] = row.reason
	}
	return all
}

// Losses returns every reason for which a state is lost. The slice is the caller's.
func Losses() []Reason {
	return []Reason{
		Expired, NotFound, Contradiction, WentBack, FirstObject, Mismatch, Moved,
		Form, Memory, NotPermitted, Schema, Upstream, Other,
	}
}

// Explain returns a sentence that says why a request is forwarded; "" if this is no reason to forward.
func (r Reason) Explain() string {
	for _, row := range forwarding {
		if row.reason == r {
			return row.sentence
		}
	}
	return ""
}

// Passes reports whether this reason to forward soon passes by itself, so that it pays to ask again.
func (r Reason) Passes() bool {
	switch r {
	case UnknownCaller, Warming, ReviewFailed, Stale, Upstream, NotProven, UnknownResource:
		return true
	}
	return false
}

// Summary returns a few words that say why lists are forwarded; "" if this is no reason to forward.
func (r Reason) Summary() string {
	for _, row := range forwarding {
		if row.reason == r {
			return row.summary
		}
	}
	return ""
}
