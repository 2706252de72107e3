package proxy

import (
	"context"
	"errors"
	"net/http"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/auth"
	"github.com/listproxy/listproxy/proxy/cluster"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/index"
)

// decide decides in stages whether a request can be answered from memory. If it returns a reason other than None, the request
// must be forwarded. Who may know the reason depends on the stage that has found it:
//
//   - Everybody may know a reason that follows from the request and the rule's switches.
//   - Callers whom kube-apiserver has accepted may also know a reason of the policy or the cluster.
//   - Callers who may list the resource may also know a reason that depends on memory.
//
// While a later stage waits, the result of an earlier stage may become wrong, so [lastCheck] checks everything at the end.
func (h *Handler) decide(r *http.Request, who *caller) (*answer, reason.Reason) {
	asked, why := policy.Parse(r, kubehttp.RequestOf(r).Info, who.Identity.CredentialKind())
	evaluation := h.Policy.Evaluate(asked, why)
	a := &answer{
		asked:      asked,
		attributes: attributesFor(asked),
		semantics:  evaluation.Semantics,
		revision:   evaluation.Revision,
		initial:    evaluation.Initial,
		mustProve:  asked.Watch || evaluation.Rule.ConsistentLists == policy.ConsistentAll,
	}
	if evaluation.Reason != reason.None {
		return a, evaluation.Reason
	}
	if why := h.checkAccepted(r.Context(), who, a); why != reason.None {
		return a, why
	}
	if evaluation.PolicyReason != reason.None {
		return a, evaluation.PolicyReason
	}
	if why := h.lookUp(a, &evaluation); why != reason.None {
		return a, why
	}
	if why := h.forwardUnreviewed(who, a); why != reason.None {
		return a, why
	}
	if why := h.review(r.Context(), who, a); why != reason.None {
		return a, why
	}
	return a, h.setState(r.Context(), who, a)
}

// checkAccepted returns None if kube-apiserver accepts the caller's credentials. If that is not known yet, a review tells.
func (h *Handler) checkAccepted(ctx context.Context, who *caller, a *answer) reason.Reason {
	switch who.verdict {
	case auth.Refused, auth.NoToken:
		return reason.UnknownCaller
	case auth.Unjudged:
		who.seat.Pause() // many unknown callers may wait for their reviews
		return h.review(ctx, who, a)
	}
	return reason.None
}

// lookUp sets the resource's entry, the collection's key and the query in a, or returns the reason to forward the request.
func (h *Handler) lookUp(a *answer, evaluation *policy.Evaluation) reason.Reason {
	resource := resourceOf(a.asked)
	entry, why := h.Cluster.Lookup(resource)
	if why != reason.None {
		return why
	}
	representation, why := evaluation.Rule.Representation(a.asked, entry.Namespaced, entry.Custom)
	a.entry = entry
	a.key = snapshot.CollectionKey{
		GroupVersionResource: resource, Namespaced: entry.Namespaced, Representation: representation,
	}
	a.query = queryFor(a.asked, evaluation.Decision, entry)
	return why
}

// forwardUnreviewed returns a reason if a list is to be forwarded without a review: no decision about the caller's right is
// remembered, and the list would be forwarded even after a good one. kube-apiserver's answer to the list costs no more than a
// review. It also shows whether the caller may know the reason ([forwardedList]). None means that a review must follow.
func (h *Handler) forwardUnreviewed(who *caller, a *answer) (why reason.Reason) {
	if a.asked.Watch {
		return reason.None
	}
	a.provesRight = true
	var known bool
	a.ruling, known = h.Authorizer.Remembered(who.Identity, &a.attributes)
	if known {
		return reason.None
	}
	why, a.afterForward = h.reasonBeforeReview(who, a)
	a.unreviewed = why != reason.None
	return why
}

// setState sets the state that the request asks for in a, or returns the reason to forward the request.
func (h *Handler) setState(ctx context.Context, who *caller, a *answer) reason.Reason {
	asked := a.asked
	paged := a.query.Limit > 0 || a.query.Start != ""
	if asked.Shards != nil && paged {
		// kube-apiserver's cache and its reads of etcd count differently what remains after a page of a shard
		// (k8s.io/apiserver, storage: PrepareContinueToken and its callers).
		return reason.NotCanonical
	}
	if why := h.find(ctx, who, a); why != reason.None {
		return why
	}
	envelope := a.snapshot.Envelope
	ignoresShards := asked.Shards != nil && !envelope.Sharded // the API server answers as if there were no such selector
	if ignoresShards || !envelope.CanSelect(asked.Fields) {
		return reason.NotCanonical
	}
	a.after = a.snapshot.Revision
	if a.semantics == policy.After {
		a.after = a.revision
	}
	return reason.None
}

// answer collects what is found out about one list or watch. The request is then answered from memory or forwarded. Only the
// goroutine of the request uses the answer.
type answer struct {
	// asked is the list or watch that the client asks for.
	asked *policy.Request
	// attributes are the attributes of the review.
	attributes auth.Attributes
	// ruling is the result of the review.
	ruling auth.Ruling

	// The fields of this group say which state the request asks for.

	// key is the key of the collection that has the state.
	key snapshot.CollectionKey
	// query selects the objects of the answer in the state.
	query     index.Query
	semantics policy.Semantics
	// revision is the revision that the request names, if the semantics have one.
	revision uint64
	// initial reports whether a watch begins with the state.
	initial bool
	// mustProve reports whether even a small list of the newest state waits for a proof. Otherwise it may be forwarded instead.
	mustProve bool

	// The fields of this group are for a request that is forwarded.

	// provesRight reports whether the caller has the right to the answer if the forwarded request gets a 200.
	provesRight bool
	// unreviewed reports that the request is forwarded without a review, for a reason that only callers with the right to
	// the answer may know.
	unreviewed bool
	// afterForward must be called once the request was forwarded. It may be nil.
	afterForward func()

	// The fields of this group are for an answer from memory.

	entry      cluster.Entry
	collection *snapshot.Collection
	snapshot   snapshot.Snapshot
	// after is the revision whose later changes a watch sends.
	after uint64
	// user is the caller, and impersonated the user whom the caller impersonates, if any. Both are set for the audit log
	// only.
	user, impersonated user.Info
}

// withoutState returns a copy that has only what a forwarded request still needs. With the other fields, the state would stay
// in memory until kube-apiserver has answered.
func (a *answer) withoutState() *answer {
	return &answer{asked: a.asked, attributes: a.attributes, semantics: a.semantics, provesRight: a.provesRight}
}

// attributesFor returns the attributes for the review of a list or watch.
func attributesFor(asked *policy.Request) auth.Attributes {
	attributes := auth.Attributes{
		Verb:      asked.Verb(),
		Group:     asked.Group,
		Version:   asked.Version,
		Resource:  asked.Resource,
		Namespace: asked.Namespace,
		Name:      asked.Name,
	}
	if asked.LabelSelector != "" {
		attributes.LabelSelector = &authorizationv1.LabelSelectorAttributes{RawSelector: asked.LabelSelector}
	}
	if asked.FieldSelector != "" {
		attributes.FieldSelector = &authorizationv1.FieldSelectorAttributes{RawSelector: asked.FieldSelector}
	}
	return attributes
}

// review returns None if the caller has the right to the answer. If a.ruling is not a valid yes, review asks kube-apiserver
// and replaces a.ruling. So a second review of a request usually costs nothing.
func (h *Handler) review(ctx context.Context, who *caller, a *answer) reason.Reason {
	if h.Authorizer.ValidFor(&a.ruling, time.Now()) > 0 {
		return reason.None
	}
	ctx, span := observe.StartStep(ctx, observe.SpanReview)
	defer span.End()
	var err error
	a.ruling, err = h.Authorizer.Review(ctx, &who.Caller, &a.attributes)
	switch {
	case errors.Is(err, auth.ErrNoSeat):
		return reason.UnknownCaller
	case err != nil:
		h.logRateLimited("a caller's right could not be reviewed", err)
		return reason.ReviewFailed
	}
	switch a.ruling.Decision() {
	case auth.Yes, auth.YesByRequest:
		return reason.None
	case auth.Unauthenticated:
		return reason.UnknownCaller
	case auth.Warned:
		return reason.Credentials
	case auth.ImpersonationForbidden:
		return reason.NotPermitted
	}
	return reason.NotAllowed
}

// resourceOf returns the resource of a list or watch.
func resourceOf(asked *policy.Request) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: asked.Group, Version: asked.Version, Resource: asked.Resource}
}

// queryFor returns the query for the objects of the answer.
func queryFor(asked *policy.Request, d policy.Decision, entry cluster.Entry) index.Query {
	q := index.Query{
		Scope:  index.Scope{Namespace: asked.Namespace},
		Start:  d.Start,
		Limit:  d.Limit,
		Labels: asked.Labels,
		Fields: asked.Fields,
		Shards: asked.Shards,
		// A page at resourceVersion=0 looks like a page at exactly the state's revision.
		UsesIndex: d.Semantics == policy.NotOlderThan || d.Semantics == policy.Consistent,
		Indented:  asked.Indented(entry.Custom),
	}
	if namespace, name, single := asked.Single(entry.Namespaced); single {
		q.Scope.Namespace = namespace
		q.Name = name
	}
	return q
}
