package policy

import (
	"github.com/listproxy/listproxy/policy/reason"
)

// Semantics says which state a list must show, in the words of the Kubernetes API concepts page.
type Semantics string

const (
	// Consistent is the state of the storage at the time of the request.
	Consistent Semantics = "consistent"
	// Any is some state that the server has seen, of any age.
	Any Semantics = "any"
	// NotOlderThan is any state at or after a revision.
	NotOlderThan Semantics = "not-older-than"
	// Exact is the state at one revision.
	Exact Semantics = "exact"
	// Continue is the state at the revision of a continue token, beginning with the token's start key.
	Continue Semantics = "continue"
)

// The values of resourceVersionMatch.
const (
	matchNotOlderThan = "NotOlderThan"
	matchExact        = "Exact"
)

// ListOptions are the parameters of a list that choose its semantics, as the client wrote them. An empty value is the
// same as none.
type ListOptions struct {
	ResourceVersion      string
	ResourceVersionMatch string
	Continue             string
	// Limit is the number of objects a page may hold; 0 is no limit.
	Limit int64
}

// Decision says what to do with a list or watch: serve it from memory, or forward it.
type Decision struct {
	// Serve reports whether the list may be answered from memory. If not, only Reason is set.
	Serve     bool
	Semantics Semantics
	// Revision is the revision of the semantics; 0 for Any and Consistent.
	Revision uint64
	// Limit is the number of objects the page may hold; 0 is no limit. For Any it is 0, since
	// kube-apiserver ignores the client's limit there, unless the rule has LimitHonoured.
	Limit int64
	// Start is the first key of a continuation, relative to the scope of the request and without a leading slash. It
	// comes from the client: it may be any key of the scope, existing or not, and must never lead out of it.
	Start string
	// Initial reports whether a watch begins with the state.
	Initial bool
	// Reason is the reason to forward the list; None if it may be served.
	Reason reason.Reason
}

// Decide decides what to do with a list or watch. Of the policy's rule, it depends on what a limit at resourceVersion=0
// means (atZero), and on which lists of the newest state may be answered from memory (consistent).
func (r *Request) Decide(atZero LimitAtZero, consistent ConsistentLists) Decision {
	if r.Watch {
		return decideWatch(r.Options, r.WatchOptions)
	}
	return decideList(r.Options, atZero, consistent)
}

// decideList maps list options to semantics as kube-apiserver 1.36 does (k8s.io/apiserver:
// storage/cacher/delegator, storage.ValidateListOptions, and apimachinery's internalversion
// validation). Options that it does not understand are forwarded.
//
// A revision has to be a decimal without sign or leading zeros that fits int64, as etcd's revisions
// do.
func decideList(o ListOptions, atZero LimitAtZero, consistent ConsistentLists) Decision {
	match := o.ResourceVersionMatch
	rv := o.ResourceVersion
	revision, isRevision := parseDecimal(rv)
	continues := o.Continue != ""
	switch {
	// The upstream refuses these.
	case match != "" && match != matchNotOlderThan && match != matchExact:
		return forward(reason.NotCanonical)
	case match != "" && (rv == "" || continues):
		return forward(reason.NotCanonical)
	case match == matchExact && rv == "0":
		return forward(reason.NotCanonical)
	case continues && rv != "" && rv != "0":
		return forward(reason.NotCanonical)
	case o.Limit < 0:
		return forward(reason.NotCanonical)

	// A continuation is an exact read, unless its token says otherwise. Together with
	// resourceVersion=0 it is valid, but kube-apiserver's cache and its storage disagree about the
	// limit.
	case continues && rv == "0":
		return forward(reason.NotCanonical)
	case continues:
		return decideContinue(o)

	case rv == "" && (consistent == ConsistentOn || consistent == ConsistentAlways):
		return Decision{Serve: true, Semantics: Consistent, Limit: o.Limit}
	case rv == "":
		return forward(reason.Consistent)
	case rv == "0" && atZero == LimitHonoured:
		return Decision{Serve: true, Semantics: Any, Limit: o.Limit}
	case rv == "0":
		// The limit is ignored, as at kube-apiserver: a client that does not ask for the next page would
		// miss objects without noticing.
		return Decision{Serve: true, Semantics: Any}
	case !isRevision:
		return forward(reason.NotCanonical)
	case match == matchExact:
		return Decision{Serve: true, Semantics: Exact, Revision: revision, Limit: o.Limit}
	case match == "" && o.Limit > 0:
		// A rule from before there was resourceVersionMatch: a limit makes the revision exact.
		return Decision{Serve: true, Semantics: Exact, Revision: revision, Limit: o.Limit}
	default:
		return Decision{Serve: true, Semantics: NotOlderThan, Revision: revision, Limit: o.Limit}
	}
}

// decideContinue decides what to do with a continuation, by the revision in its token.
func decideContinue(o ListOptions) Decision {
	revision, start, ok := DecodeContinue(o.Continue)
	switch {
	case !ok:
		// Malformed, or written differently from how kube-apiserver writes it.
		return forward(reason.NotCanonical)
	case revision <= 0:
		// With -1 the list goes on from the start key in the newest state. (0 is refused upstream; no server sends it.)
		return forward(reason.Consistent)
	default:
		return Decision{Serve: true, Semantics: Continue, Revision: uint64(revision), Limit: o.Limit, Start: start}
	}
}

// forward returns the decision to forward a request for a reason.
func forward(why reason.Reason) Decision {
	return Decision{Reason: why}
}
