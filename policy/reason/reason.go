// Package reason has all reasons why listproxy forwards a request instead of answering it from memory, and why it lost a
// state in memory. Each reason is one word, the same in the Cache-Status header, metrics, traces, logs and the
// documentation.
package reason

// Reason says in one word why a request is forwarded, or why a state was lost: listproxy had the objects of a resource in
// memory, and had to drop them. [NotPermitted], [Form], [Memory] and [Upstream] are used for both.
type Reason string

// None means that there is no reason: the request is answered from memory.
const None Reason = ""

// The reasons to forward a request. [Reason.Explain] says more about each.
const (
	// Found in the request itself:

	NotList        Reason = "not-list"       // no list and no watch
	Watch          Reason = "watch"          // a watch that listproxy does not answer
	NotCanonical   Reason = "not-canonical"  // can be read in several ways, or kube-apiserver refuses it
	Consistent     Reason = "consistent"     // asks for the newest state, which is left to kube-apiserver
	Representation Reason = "representation" // asks for a table or another representation that is not kept
	Credentials    Reason = "credentials"    // no credentials that listproxy accepts, or several

	// Found out about the caller, the policy or the resource:

	UnknownCaller   Reason = "unknown-caller"   // kube-apiserver does not accept the token
	NotAllowed      Reason = "not-allowed"      // the caller has no right to the list
	ReviewFailed    Reason = "review-failed"    // kube-apiserver could not be asked for the caller's right
	NotCached       Reason = "not-cached"       // the policy keeps the resource out of memory
	UnknownResource Reason = "unknown-resource" // not a resource of kube-apiserver's own
	Audit           Reason = "audit"            // the audit log cannot be written

	// Found in memory, which has no state for the request:

	Warming      Reason = "warming"       // the state is being loaded
	NotPermitted Reason = "not-permitted" // listproxy's own account has no right to the list
	Form         Reason = "form"          // lists and watches of the resource differ in their bytes
	Stale        Reason = "stale"         // the newest known state is too old
	History      Reason = "history"       // the revision is older than the kept history
	Memory       Reason = "memory"        // the state does not fit into --cache-bytes
	Upstream     Reason = "upstream"      // API servers or definitions have changed, or do not agree
	NotProven    Reason = "not-proven"    // the wanted state was not proven in time
)

// The reasons that only say why a state was lost, never why a request is forwarded.
const (
	Expired       Reason = "expired"       // the upstream has forgotten the changes after the watch's revision (410)
	NotFound      Reason = "not-found"     // the upstream no longer serves the resource
	Contradiction Reason = "contradiction" // an event cannot follow those before it
	WentBack      Reason = "went-back"     // a revision is below one that was seen before
	FirstObject   Reason = "first-object"  // the form of an empty collection's first object could not be learned
	Mismatch      Reason = "mismatch"      // a self-check found a difference between the state and the upstream
	Moved         Reason = "moved"         // another server now answers for the resource
	Schema        Reason = "schema"        // the definition of the custom resource changed
	Other         Reason = "other"         // any other loss, like a representation that the upstream does not have (406)
)

// forwarding has the reasons to forward a request, and what [Reason.Explain] returns for each, in the order of
// docs/reference.md.
var forwarding = []struct {
	reason           Reason
	sentence, remedy string
}{
	{
		reason: NotList,
		sentence: "It is not a GET of a list of resources: a write, a single object, a subresource, or no " +
			"resource at all.",
		remedy: "Nothing: it is kube-apiserver's to answer.",
	},
	{
		reason: Watch,
		sentence: "It is a watch, but --watches is off for this resource, kube-apiserver has no streaming lists, or " +
			"listproxy is ending.",
		remedy: "Switch on --watches. Watches written in old ways (paths with /watch/, watch=yes) are always forwarded.",
	},
	{
		reason: NotCanonical,
		sentence: "Its path, query, selectors, headers or continue token are written in a way that kube-apiserver " +
			"refuses, or might read differently from listproxy.",
		remedy: "Look at the request at --log-level access, and at the client: double slashes, needless escapes, " +
			"a body on a GET, hand-made tokens, parameters that are unknown, repeated or contradictory; selectors " +
			"that are very long, or on fields that kube-apiserver was not seen to accept; metadata.namespace=x or " +
			"metadata.name=x with a limit.",
	},
	{
		reason: Consistent,
		sentence: "It asks for the state at this moment, but --consistent-lists is off for this resource, or the " +
			"list is so small that kube-apiserver answers it before listproxy could prove that it has that state.",
		remedy: "Switch on --consistent-lists. With the value always, listproxy proves small lists, too, " +
			"and those of quiet resources get slower. Or let the client send resourceVersion=0 if a state that is a " +
			"moment old will do, or the lowest revision that will do.",
	},
	{
		reason: Representation,
		sentence: "It prefers a representation that is not kept (such as a table or YAML), one that " +
			"kube-apiserver does not have, or indented JSON of very deeply nested objects; or it has several Accept " +
			"headers, or a very long one.",
		remedy: "Only kube-apiserver writes tables, YAML, CBOR, and protobuf of custom resources: let the program " +
			"ask for JSON, not indented.",
	},
	{
		reason: Credentials,
		sentence: "It has several credentials, or no bearer token and no certificate that listproxy accepts, or " +
			"Impersonate-* headers that kube-apiserver refuses or might read differently; or kube-apiserver adds a " +
			"warning, about the token for example, to each of this caller's answers.",
		remedy: "Use one bearer token, the caller's own, or a client certificate with --client-ca-file; the user, " +
			"UID and extras once, if there are Impersonate-* headers. With a Warning in the answer, the token was " +
			"usually generated into a Secret: take one of the TokenRequest API (kubectl create token, a projected " +
			"volume).",
	},
	{
		reason: UnknownCaller,
		sentence: "kube-apiserver does not accept this caller's token, or too many new tokens came at the same " +
			"moment.",
		remedy: "Use a valid token. If too many new tokens came at once, ask again.",
	},
	{
		reason: NotAllowed,
		sentence: "kube-apiserver did not say that this caller may list this, or impersonate the user of its " +
			"Impersonate-* headers for that.",
		remedy: "Usually the refusal is right, and its body says what is missing. Callers must be allowed to create " +
			"SelfSubjectAccessReviews, as by default. Callers who impersonate need the right to impersonate the " +
			"user and every group, UID and extra (at most 64), or impersonate-on:user-info:list.",
	},
	{
		reason: ReviewFailed,
		sentence: "kube-apiserver could not be asked whether this caller may list this, there was no room for the " +
			"review, or its answer came too late or said neither yes nor no.",
		remedy: "The log has the cause, such as a 429 or 5xx of kube-apiserver.",
	},
	{
		reason:   NotCached,
		sentence: "The policy keeps this resource out of memory.",
		remedy:   "Change the policy. Events are never kept, Secrets only if a rule names them.",
	},
	{
		reason: UnknownResource,
		sentence: "Discovery has no such resource of kube-apiserver's own that can be listed and watched; another " +
			"API server may show each caller something else.",
		remedy: "Nothing: it is kube-apiserver's to answer. If all but the core group have this reason, " +
			"listproxy's account may not list and watch apiservices.",
	},
	{
		reason:   Audit,
		sentence: "The audit log cannot be written, or kube-apiserver could not be asked who the caller is.",
		remedy:   "The log says why: the disk of the audit log is full, its path is gone, or kube-apiserver is away.",
	},
	{
		reason: Warming,
		sentence: "The resource is being read for the first time, or again after a loss; or it was just dropped, " +
			"since nobody had asked for it or listproxy is ending.",
		remedy: "Passes by itself. If it comes at every start, name the resource in --eager; if again and again, " +
			"the log says why the state is lost.",
	},
	{
		reason: NotPermitted,
		sentence: "listproxy's own account may not list and watch the resource, or not as the caller, whom it " +
			"would have to impersonate.",
		remedy: "Give listproxy's account list and watch; it tries again within two minutes. With client " +
			"certificates the 403 names what is missing: impersonate, or impersonate:user-info and " +
			"impersonate-on:user-info:list.",
	},
	{
		reason:   Form,
		sentence: "What kube-apiserver sends in lists and in watches could not be reconciled byte for byte.",
		remedy: "RBAC objects with names that are not UTF-8 have this effect. Otherwise please report it, with " +
			"the resource and the version of kube-apiserver.",
	},
	{
		reason:   Stale,
		sentence: "The newest state that listproxy knows is older than --staleness-bound.",
		remedy: "kube-apiserver does not answer listproxy's questions, or its watches are late: look at it, and " +
			"at the network between.",
	},
	{
		reason:   History,
		sentence: "The revision is older than the history that is kept, or from a time that listproxy missed.",
		remedy: "The client takes longer than --history-window to read all pages, or listproxy lost its watch " +
			"meanwhile. A longer window costs memory.",
	},
	{
		reason:   Memory,
		sentence: "--cache-bytes leaves no room.",
		remedy: "More --cache-bytes, a shorter window, or fewer resources. What did not fit is tried again after " +
			"2 to 3 minutes, and if it fails again, after 40 to 60.",
	},
	{
		reason: Upstream,
		sentence: "The API servers behind the upstream, or the definition of the custom resource, changed a " +
			"moment ago; or they do not agree, or listproxy cannot watch the definitions now.",
		remedy: "Passes by itself. If not, the log says what changes, or on what API servers do not agree. If " +
			"custom resources keep it, listproxy's account may not list and watch customresourcedefinitions.",
	},
	{
		reason: NotProven,
		sentence: "It asks for the state at this moment, or for a revision newer than any that listproxy knows, " +
			"and listproxy could not prove in time that it has that state.",
		remedy: "Passes by itself; else look at kube-apiserver, which may be slow. Without a watch cache for the " +
			"resource (--watch-cache-sizes=…#0) nothing can be proven.",
	},
}

// Explain returns a sentence that says why a request is forwarded. remedy says what an operator or a client can do so that it
// is answered from memory. Both are empty if r is no reason to forward.
func (r Reason) Explain() (sentence, remedy string) {
	for _, row := range forwarding {
		if row.reason == r {
			return row.sentence, row.remedy
		}
	}
	return "", ""
}

// IsTransient reports whether the reason may soon pass by itself: if the client then sends the request again, it is answered
// from memory.
func (r Reason) IsTransient() bool {
	switch r {
	case UnknownCaller, // perhaps too many new tokens came at once
		UnknownResource, // perhaps the resource was defined after discovery was read
		Warming, ReviewFailed, Stale, Upstream, NotProven:
		return true
	}
	return false
}
