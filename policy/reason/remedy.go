package reason

// remedies say what an operator or a client can do so that a request comes from memory.
var remedies = map[Reason]string{
	NotList: "Nothing: it is kube-apiserver's to answer.",
	Watch:   "Switch on --watches. Old ways to write one (paths with /watch/, watch=yes), and streaming lists of a kube-apiserver without them, stay forwarded.",
	NotCanonical: "Look at the request at --log-level access, and at the client: double slashes, escapes that are not needed, a body on a GET, hand-made " +
		"tokens, parameters that are unknown, given twice or contradict each other; selectors that are very long, or on a field that kube-apiserver was not " +
		"seen to accept, or that metadata-only lists do not have. metadata.namespace=x across all namespaces must have no limit; metadata.name=x at a " +
		"revision and with a limit needs a resourceVersionMatch.",
	MostRecent: "Switch on --consistent-lists; always proves all, and makes small lists of quiet resources slower. Or let the client send resourceVersion=0 " +
		"if a state that is a moment old will do, or the lowest revision that will do.",
	Representation: "Only kube-apiserver writes tables, YAML, CBOR, and protobuf of custom resources: let the program ask for JSON, not indented.",
	Credentials: "Use one bearer token, the caller's own, or a client certificate with --client-ca-file; no Impersonate-* headers. A Warning in the answer says " +
		"what is wrong: usually the token was generated into a Secret; take one of the TokenRequest API (kubectl create token, a projected volume).",
	UnknownCaller: "A valid token. That more than 128 new tokens, or 64 from one address, come at the same moment passes by itself.",
	NotAllowed:    "Usually right: the body says what is missing. Callers must be allowed to create SelfSubjectAccessReviews, as all authenticated users are by default.",
	ReviewFailed:  "The log has the cause if kube-apiserver could not be asked, or if the caller asks for too much at once; else kube-apiserver's answer, a 429 or 5xx.",
	NotCached:     "Change the policy; listproxy policy check shows its rules. Events are never kept, Secrets only if a rule names them.",
	UnknownResource: "Nothing: it is kube-apiserver's to answer. If all but the core group have this reason, listproxy's account may not list and watch " +
		"apiservices.",
	Audit:   "The log says why: the disk of the audit log is full, its path is gone, or kube-apiserver is away.",
	Warming: "Passes by itself. If it comes at every start, name the resource in --eager; if again and again, the log says why the state is lost.",
	NotPermitted: "Give listproxy's account list and watch; it tries again after a second, then less often, up to two minutes. With client certificates the " +
		"403 names what is missing: impersonate on the user, groups, uid and extras, or impersonate:user-info and impersonate-on:user-info:list.",
	Form:    "RBAC objects with names that are not UTF-8 have this effect. Otherwise please report it, with the resource and the version of kube-apiserver.",
	Stale:   "kube-apiserver does not answer listproxy's questions, or its watches are late: look at it, and at the network between.",
	History: "The client takes longer than --history-window to read all pages, or listproxy lost its watch meanwhile. A longer window costs memory.",
	Memory:  "More --cache-bytes, a shorter window, or fewer resources. What did not fit is tried again after 2 to 3 minutes, later after 20 to 30.",
	Upstream: "Passes by itself. If not, the log says what changes, or the StorageVersion on which API servers do not agree. If custom resources keep " +
		"it, listproxy's account may not list and watch customresourcedefinitions, or an APIService and the definitions disagree.",
	NotProven: "Passes by itself where kube-apiserver was slow, or a client asked for a revision right after a write elsewhere; else look at kube-apiserver. Without a watch cache for the resource (--watch-cache-sizes=…#0) nothing can be proven.",
}

// Remedy says what to do so that a request which is forwarded for this reason comes from memory. It is
// empty for what is no reason to forward.
func (r Reason) Remedy() string { return remedies[r] }
