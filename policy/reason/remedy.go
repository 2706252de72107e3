package reason

// remedies has, for each reason to forward, what an operator or a client can do so that a request is answered from memory.
var remedies = map[Reason]string{
	NotList: "Nothing: it is kube-apiserver's to answer.",
	Watch:   "Switch on --watches. Old ways to write one (paths with /watch/, watch=yes) stay forwarded.",
	NotCanonical: "Look at the request at --log-level access, and at the client: double slashes, needless escapes, a body on a GET, hand-made tokens, " +
		"parameters that are unknown, given twice or contradict each other; selectors that are very long, or on fields that kube-apiserver " +
		"was not seen to accept; metadata.namespace=x or metadata.name=x with a limit.",
	Consistent: "Switch on --consistent-lists; always proves all, and makes small lists of quiet resources slower. Or let the client send resourceVersion=0 " +
		"if a state that is a moment old will do, or the lowest revision that will do.",
	Representation: "Only kube-apiserver writes tables, YAML, CBOR, and protobuf of custom resources: let the program ask for JSON, not indented.",
	Credentials: "Use one bearer token, the caller's own, or a client certificate with --client-ca-file; the user, UID and extras once, if there are Impersonate-* headers. With a Warning in the " +
		"answer, the token was usually generated into a Secret: take one of the TokenRequest API (kubectl create token, a projected volume).",
	UnknownCaller: "A valid token. That more new tokens come at the same moment than are reviewed within a second passes by itself.",
	NotAllowed: "Usually right: the body says what is missing. Callers must be allowed to create SelfSubjectAccessReviews, as by default. " +
		"Who impersonates needs the right to impersonate the user and every group, UID and extra, 64 in all, or impersonate-on:user-info:list.",
	ReviewFailed: "The log has the cause, or kube-apiserver's answer, a 429 or 5xx.",
	NotCached:    "Change the policy; listproxy policy check shows its rules. Events are never kept, Secrets only if a rule names them.",
	UnknownResource: "Nothing: it is kube-apiserver's to answer. If all but the core group have this reason, listproxy's account may not list and watch " +
		"apiservices.",
	Audit:   "The log says why: the disk of the audit log is full, its path is gone, or kube-apiserver is away.",
	Warming: "Passes by itself. If it comes at every start, name the resource in --eager; if again and again, the log says why the state is lost.",
	NotPermitted: "Give listproxy's account list and watch; it tries again within two minutes. With client certificates the 403 names what is missing: " +
		"impersonate, or impersonate:user-info and impersonate-on:user-info:list.",
	Form:    "RBAC objects with names that are not UTF-8 have this effect. Otherwise please report it, with the resource and the version of kube-apiserver.",
	Stale:   "kube-apiserver does not answer listproxy's questions, or its watches are late: look at it, and at the network between.",
	History: "The client takes longer than --history-window to read all pages, or listproxy lost its watch meanwhile. A longer window costs memory.",
	Memory:  "More --cache-bytes, a shorter window, or fewer resources. What did not fit is tried again after 2 to 3 minutes, later after 20 to 30.",
	Upstream: "Passes by itself. If not, the log says what changes, or on what API servers do not agree. If custom resources keep it, listproxy's " +
		"account may not list and watch customresourcedefinitions.",
	NotProven: "Passes by itself; else look at kube-apiserver, which may be slow. Without a watch cache for the resource (--watch-cache-sizes=…#0) " +
		"nothing can be proven.",
}

// Remedy returns what to do so that a request which is forwarded for this reason is answered from memory; "" if this is no
// reason to forward.
func (r Reason) Remedy() string { return remedies[r] }
