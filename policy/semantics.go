package policy

import (
	"github.com/listproxy/listproxy/policy/reason"
)

// Semantics says which state a list or watch asks for, in the words of the Kubernetes API concepts page.
type Semantics string

const (
	// Consistent is the state of the storage at the time of the request.
	Consistent Semantics = "consistent"
	// Any is any state that the server has seen, however old.
	Any Semantics = "any"
	// NotOlderThan is any state at or after a revision.
	NotOlderThan Semantics = "not-older-than"
	// Exact is the state at one revision.
	Exact Semantics = "exact"
	// Continue is the state at the revision of a continue token, beginning with the token's start key.
	Continue Semantics = "continue"
	// After is, for a watch, the changes after a revision.
	After Semantics = "after"
)

// The values of resourceVersionMatch.
const (
	matchNotOlderThan = "NotOlderThan"
	matchExact        = "Exact"
)

// ListOptions are the parameters of a list that determine its semantics, as the client wrote them. An empty value means
// that the parameter is not set.
type ListOptions struct {
	ResourceVersion      string
	ResourceVersionMatch string
	Continue             string
	// Limit is the number of objects that a page may have; 0 means no limit.
	Limit int64
}

// Decision says what to do with a list or watch: answer it from memory, or forward it.
type Decision struct {
	// Reason is the reason to forward the request; None if it may be answered from memory. With another reason than None
	// nothing else is set (but see [Evaluation]).
	Reason    reason.Reason
	Semantics Semantics
	// Revision is the revision for NotOlderThan, Exact, Continue and After; otherwise 0.
	Revision uint64
	// Limit is the number of objects that the page may have; 0 means no limit. For Any it is 0 unless the rule has
	// LimitHonoured, since kube-apiserver ignores the client's limit there.
	Limit int64
	// Start is the first key of a continuation, relative to the scope of the request and without a leading slash. It comes
	// from the client. It may be a key that does not exist, but never leads out of the scope (see [DecodeContinue]).
	Start string
	// Initial reports whether a watch begins with the state.
	Initial bool
}

// Decide decides what to do with a list or watch. limitAtZero and consistentLists are the settings of the resource's rule.
func (r *Request) Decide(limitAtZero LimitAtZero, consistentLists ConsistentLists) Decision {
	if r.Watch {
		return decideWatch(r.Options, r.WatchOptions)
	}
	return decideList(r.Options, limitAtZero, consistentLists)
}

// decideList maps list options to semantics as kube-apiserver 1.36 does (k8s.io/apiserver: storage/cacher/delegator,
// storage.ValidateListOptions, and apimachinery's internalversion validation). A list with any other options is
// forwarded.
func decideList(o ListOptions, limitAtZero LimitAtZero, consistentLists ConsistentLists) Decision {
	revision, isRevision := parseDecimal(o.ResourceVersion)
	switch {
	case isRefused(o):
		return forward(reason.NotCanonical)
	case o.Continue != "" && o.ResourceVersion == "0":
		// This is valid, but kube-apiserver's cache and its storage disagree about the limit.
		return forward(reason.NotCanonical)
	case o.Continue != "":
		return decideContinue(o)

	case o.ResourceVersion == "" && (consistentLists == ConsistentLarge || consistentLists == ConsistentAll):
		return Decision{Semantics: Consistent, Limit: o.Limit}
	case o.ResourceVersion == "":
		return forward(reason.Consistent)
	case o.ResourceVersion == "0" && limitAtZero == LimitHonoured:
		return Decision{Semantics: Any, Limit: o.Limit}
	case o.ResourceVersion == "0":
		// The limit is ignored, as by kube-apiserver. A client that relies on that does not ask for a next page, so a page
		// would hide objects from it.
		return Decision{Semantics: Any}
	case !isRevision:
		return forward(reason.NotCanonical)
	case o.ResourceVersionMatch == matchExact:
		return Decision{Semantics: Exact, Revision: revision, Limit: o.Limit}
	case o.ResourceVersionMatch == "" && o.Limit > 0:
		// The rule from before resourceVersionMatch existed: with a limit, the revision is exact.
		return Decision{Semantics: Exact, Revision: revision, Limit: o.Limit}
	default:
		return Decision{Semantics: NotOlderThan, Revision: revision, Limit: o.Limit}
	}
}

// isRefused reports whether kube-apiserver refuses a list with these options.
func isRefused(o ListOptions) bool {
	match := o.ResourceVersionMatch
	rv := o.ResourceVersion
	continues := o.Continue != ""
	return match != "" && match != matchNotOlderThan && match != matchExact ||
		match != "" && (rv == "" || continues) ||
		match == matchExact && rv == "0" ||
		continues && rv != "" && rv != "0" ||
		o.Limit < 0
}

// decideContinue decides what to do with a continuation by the revision in its token.
func decideContinue(o ListOptions) Decision {
	start, revision, ok := DecodeContinue(o.Continue)
	switch {
	case !ok: // malformed, or written differently from how kube-apiserver writes it
		return forward(reason.NotCanonical)
	case revision < 0: // kube-apiserver writes -1 for the newest state, from the start key on
		return forward(reason.Consistent)
	}
	return Decision{Semantics: Continue, Revision: uint64(revision), Limit: o.Limit, Start: start}
}

// forward returns the decision to forward a request for a reason.
func forward(why reason.Reason) Decision {
	return Decision{Reason: why}
}
