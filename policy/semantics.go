package policy

import "github.com/listproxy/listproxy/policy/reason"

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
	// Reason is the reason to forward the request, or None if it may be answered from memory. The other fields are zero if the
	// request is forwarded, with one exception: with reason.Consistent, Semantics is Consistent, for metrics and the access
	// log.
	Reason    reason.Reason
	Semantics Semantics
	// Revision is set for NotOlderThan, Exact, Continue and After.
	Revision uint64
	// Limit is the number of objects that the page may have; 0 means no limit. It is the client's limit, with one exception:
	// for Any with LimitIgnored, Limit is 0, since kube-apiserver ignores the client's limit.
	Limit int64
	// Start is the key at which a list with a continue token begins, relative to the scope of the request and without a leading
	// slash. The client could choose any key, so perhaps no object has it. It never leads out of the scope (see
	// [DecodeContinue]).
	Start string
	// Initial reports whether a watch begins with the state, as ADDED events.
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
// storage.ValidateListOptions, and apimachinery's internalversion validation). Lists with options that are not in this table
// are forwarded.
//
//	resourceVersion  resourceVersionMatch       limit   semantics
//	""               not given                  any     Consistent, or forwarded with ConsistentNone
//	"0"              not given or NotOlderThan  any     Any
//	N                NotOlderThan               any     NotOlderThan
//	N                Exact                      any     Exact
//	N                not given                  0       NotOlderThan
//	N                not given                  > 0     Exact (kept from the time before resourceVersionMatch)
//
// A list with a continue token is decided by its token: see decideContinue.
func decideList(o ListOptions, limitAtZero LimitAtZero, consistentLists ConsistentLists) Decision {
	rv, match := o.ResourceVersion, o.ResourceVersionMatch
	revision, isRevision := parseDecimal(rv)
	answersConsistent := consistentLists == ConsistentLarge || consistentLists == ConsistentAll
	switch { // the first case that applies
	case upstreamRefuses(o): // the upstream writes the refusal
		return forward(reason.NotCanonical)
	case o.Continue != "":
		return decideContinue(o)
	case rv == "" && answersConsistent:
		// With ConsistentLarge, package proxy still forwards some small lists.
		return Decision{Semantics: Consistent, Limit: o.Limit}
	case rv == "":
		return forwardConsistent()
	case rv == "0" && limitAtZero == LimitHonoured:
		return Decision{Semantics: Any, Limit: o.Limit}
	case rv == "0":
		// kube-apiserver ignores the limit, so some clients never ask for a next page. With a limit, they would miss objects.
		return Decision{Semantics: Any}
	case !isRevision:
		return forward(reason.NotCanonical)
	case match == matchExact, match == "" && o.Limit > 0:
		return Decision{Semantics: Exact, Revision: revision, Limit: o.Limit}
	}
	return Decision{Semantics: NotOlderThan, Revision: revision, Limit: o.Limit}
}

// upstreamRefuses reports whether kube-apiserver refuses a list with these options: resourceVersionMatch requires a
// resourceVersion, and a continue token has a revision already.
func upstreamRefuses(o ListOptions) bool {
	rv := o.ResourceVersion
	isContinued := o.Continue != ""
	switch o.ResourceVersionMatch {
	case "":
		return isContinued && rv != "" && rv != "0"
	case matchNotOlderThan:
		return isContinued || rv == ""
	case matchExact:
		return isContinued || rv == "" || rv == "0"
	}
	return true // an unknown match
}

// decideContinue decides about a list with a continue token.
func decideContinue(o ListOptions) Decision {
	start, revision, isCanonical := DecodeContinue(o.Continue)
	switch {
	case !isCanonical, o.ResourceVersion == "0":
		// With "0" and a token, kube-apiserver's cache and its storage disagree about the limit.
		return forward(reason.NotCanonical)
	case revision < 0: // kube-apiserver writes -1 for the newest state, from the start key on
		return forwardConsistent()
	}
	return Decision{Semantics: Continue, Revision: uint64(revision), Limit: o.Limit, Start: start}
}

// forward returns the decision to forward a request for a reason.
func forward(why reason.Reason) Decision { return Decision{Reason: why} }

// forwardConsistent returns the decision to forward a list of the newest state.
func forwardConsistent() Decision {
	return Decision{Reason: reason.Consistent, Semantics: Consistent}
}
