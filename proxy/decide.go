package proxy

import (
	"context"
	"errors"
	"net/http"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/auth"
	"github.com/listproxy/listproxy/proxy/cluster"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/index"
)

// decide decides whether a request can be answered from memory. It returns the reason to forward the request, or [reason.None].
// In this package, such a reason is called why. Each stage may find one. The reason is sent in Cache-Status, but some reasons
// tell what memory has or the cluster serves, and not every caller may know that:
//
//	stage                    looks at                                        who may learn the reason
//	1 Evaluate               the request, and the rule for its resource      everybody
//	2 checkAccepted          whether kube-apiserver accepts the caller       everybody
//	3 CacheNever             whether the resource may be kept in memory      accepted callers
//	4 lookUp                 the resource, as the cluster serves it          accepted callers
//	5 checkBeforeReview      what memory has, for a list without a review    callers who may list the resource
//	6 review                 whether the caller may list the resource        everybody, as it is about the caller
//	7 setState               what memory has                                 callers who may list the resource
//
// A review asks kube-apiserver whether the caller has a right (SelfSubjectAccessReview). If stage 5 finds a reason, the list is
// forwarded without a review. Then kube-apiserver's answer shows whether the caller may list, and
// [Handler.listAnswerHook] hides the reason from a caller who may not.
//
// What one stage finds may change while a later stage waits, so [lastCheck] checks everything again at the end.
func (h *Handler) decide(r *http.Request) (*decision, reason.Reason) {
	who := callerOf(r)
	asked, parseReason := policy.Parse(r, kubehttp.RequestOf(r).Info, who.Identity.CredentialKind())
	d := &decision{
		caller:     who,
		asked:      asked,
		Evaluation: h.Policy.Evaluate(asked, parseReason),
		attributes: attributesFor(asked),
	}
	if d.Evaluation.Reason != reason.None {
		return d, d.Evaluation.Reason
	}
	if why := h.checkAccepted(r.Context(), d); why != reason.None {
		return d, why
	}
	if d.Rule.Cache == policy.CacheNever {
		return d, reason.NotCached
	}
	if why := h.lookUp(d); why != reason.None {
		return d, why
	}
	d.answerProvesRight = !d.asked.Watch
	if why := h.checkBeforeReview(d); why != reason.None {
		return d, why
	}
	if why := h.review(r.Context(), d); why != reason.None {
		return d, why
	}
	return d, h.setState(r.Context(), d)
}

// decision is what decide finds out about a request. It is kept until the request is answered from memory or forwarded. Only
// the goroutine of the request uses it.
type decision struct {
	caller *caller
	// asked is the list or watch that the client asks for.
	asked *policy.Request
	// Evaluation is what follows from asked and the policy alone, such as the semantics.
	policy.Evaluation

	// attributes are what the review asks about: the verb, the resource, the namespace and so on.
	attributes auth.Attributes
	// ruling is the result of the last review. It expires, and [Handler.review] then asks again.
	ruling auth.Ruling

	// The fields of this group say where the answer is in memory.

	// entry describes the resource, as the cluster serves it.
	entry cluster.Entry
	key   snapshot.CollectionKey
	// query selects the objects of the answer from the state.
	query      index.Query
	collection *snapshot.Collection
	state      snapshot.Snapshot

	// The fields of this group are for a request that is forwarded.

	// answerProvesRight reports that a 200 from kube-apiserver proves the caller's right to list ([Handler.listAnswerHook]). It
	// is false for watches, and for lists that one of the stages 1 to 4 forwards.
	answerProvesRight bool
	// unreviewed reports that the reason to forward the request was found before the caller's right was known. Only callers
	// with the right may learn this reason.
	unreviewed bool
	// releaseSmallForward must be called after the request was forwarded. It is nil unless [reserveSmallForward] has set it.
	releaseSmallForward func()
}

// dropState drops the state, so that it does not stay in memory while kube-apiserver answers or the client reads.
func (d *decision) dropState() {
	d.collection = nil
	d.state = snapshot.Snapshot{}
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

// checkAccepted returns None if kube-apiserver accepts the caller's credentials. If it has not judged them yet, a review shows
// whether it accepts them.
func (h *Handler) checkAccepted(ctx context.Context, d *decision) reason.Reason {
	switch d.caller.verdict {
	case auth.Refused, auth.NoToken:
		return reason.UnknownCaller
	case auth.Unjudged:
		d.caller.seat.Pause() // many unknown callers may wait for their reviews at the same time
		return h.review(ctx, d)
	}
	return reason.None
}

// lookUp sets the resource's entry, the collection's key and the query in d, or returns the reason to forward the request.
func (h *Handler) lookUp(d *decision) reason.Reason {
	resource := resourceOf(d.asked)
	entry, why := h.Cluster.Lookup(resource)
	if why != reason.None {
		return why
	}
	representation, why := d.Rule.Representation(d.asked, entry.Namespaced, entry.Custom)
	if why != reason.None {
		return why
	}
	d.entry = entry
	d.key = snapshot.CollectionKey{
		GroupVersionResource: resource, Namespaced: entry.Namespaced, Representation: representation,
	}
	d.query = queryFor(d)
	return reason.None
}

// resourceOf returns the resource of a list or watch.
func resourceOf(asked *policy.Request) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: asked.Group, Version: asked.Version, Resource: asked.Resource}
}

// queryFor returns the query for the objects of the answer.
func queryFor(d *decision) index.Query {
	asked := d.asked
	q := index.Query{
		Scope:  index.Scope{Namespace: asked.Namespace},
		Start:  d.Start,
		Limit:  d.Limit,
		Labels: asked.Labels,
		Fields: asked.Fields,
		Shards: asked.Shards,
		// At kube-apiserver, pages of these two semantics end with the cache's index. It has pages of Any (resourceVersion=0)
		// only where it does not cache the resource, and so has no index.
		EndsWithIndex: d.Semantics == policy.NotOlderThan || d.Semantics == policy.Consistent,
		Indented:      asked.Indented(d.entry.Custom),
	}
	if namespace, name, single := asked.Single(d.entry.Namespaced); single {
		q.Scope.Namespace = namespace
		q.Name = name
	}
	return q
}

// review returns None if the caller has the right to the answer. It asks kube-apiserver unless d.ruling is a yes that is still
// valid. So a second call for the same request usually costs nothing.
func (h *Handler) review(ctx context.Context, d *decision) reason.Reason {
	if h.Authorizer.ValidFor(&d.ruling, time.Now()) > 0 {
		return reason.None
	}
	ctx, span := observe.StartStep(ctx, observe.SpanReview)
	defer span.End()
	var err error
	d.ruling, err = h.Authorizer.Review(ctx, &d.caller.Caller, &d.attributes)
	switch {
	case errors.Is(err, auth.ErrNoSeat): // too many reviews of callers who are not accepted yet
		return reason.UnknownCaller
	case err != nil:
		h.logRateLimited("a caller's right could not be reviewed", err)
		return reason.ReviewFailed
	}
	switch d.ruling.Decision() {
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

// setState waits for the state that the request asks for, if necessary, and sets d.collection and d.state. It returns the
// reason to forward the request if there is no such state, or if memory cannot answer the request from it.
func (h *Handler) setState(ctx context.Context, d *decision) reason.Reason {
	asked := d.asked
	paged := d.query.Limit > 0 || d.query.Start != ""
	if asked.Shards != nil && paged {
		// A shard has the objects whose hash is in a range. For a page of a shard, remainingItemCount depends on whether
		// kube-apiserver reads its cache or etcd (k8s.io/apiserver, storage: PrepareContinueToken and its callers).
		return reason.NotCanonical
	}
	if why := h.findState(ctx, d); why != reason.None {
		return why
	}
	envelope := d.state.Envelope
	ignoresShards := asked.Shards != nil && !envelope.Sharded // this API server would answer with the objects of all shards
	if ignoresShards || !envelope.CanSelect(asked.Fields) {
		return reason.NotCanonical
	}
	return reason.None
}
