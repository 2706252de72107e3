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
	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/auth"
	"github.com/listproxy/listproxy/proxy/cluster"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/index"
)

// decide decides about one request, stage by stage. If it returns a reason other than None, the request must be
// forwarded, and the answer only has what the request asks for, as far as that could be read. While a later stage waits,
// the result of an earlier stage may become wrong, so [mayAnswer] checks everything at the end.
//
// The reasons of the first stage follow from the request and the rule's switches. The reasons of the policy and the
// cluster are only for callers whom kube-apiserver has authenticated, and the reasons of memory only for callers who may
// list the resource. But a list that is forwarded in any case is not reviewed, since kube-apiserver's answer to the list
// costs no more than a review. That answer then shows whether the caller may know the reason ([forwardedList]).
func (h *Handler) decide(r *http.Request, who *caller) (*answer, reason.Reason) {
	asked, why := policy.Parse(r, kubehttp.RequestOf(r).Info, who.Identity.Credentials())
	want := &wanted{
		Evaluation: h.Policy.Evaluate(asked, why),
		watch:      asked.Watch,
		lastProbe:  who.lastProbe,
		seat:       who.seat,
	}
	found := &answer{
		asked:      asked,
		attributes: attributesFor(asked),
		semantics:  want.Semantics,
		initial:    want.Initial,
	}
	switch {
	case want.Reason != reason.None:
		return found, want.Reason
	case who.verdict == auth.Refused, who.verdict == auth.Anonymous:
		return found, reason.UnknownCaller
	case who.verdict == auth.Unasked:
		who.seat.Pause() // many unknown callers may wait for their reviews
		if why := h.review(r.Context(), who, found); why != reason.None {
			return found, why
		}
	}
	if want.NotKept != reason.None {
		return found, want.NotKept
	}
	found.entry, why = h.Cluster.Lookup(resourceOf(asked))
	if why != reason.None {
		return found, why
	}
	found.representation, why = want.Rule.Representation(asked, found.entry.Namespaced, found.entry.Custom)
	if why != reason.None {
		return found, why
	}
	key := snapshot.CollectionKey{
		GroupVersionResource: resourceOf(asked),
		Namespaced:           found.entry.Namespaced,
		Representation:       found.representation,
	}
	found.setQuery(want.Decision)
	want.query = &found.query
	if !asked.Watch {
		found.provesRight = true
		var known bool
		found.right, known = h.Authorizer.Remembered(who.Identity, &found.attributes)
		if !known {
			why, found.whenForwarded = h.forwardsAnyway(key, want)
			if why != reason.None {
				found.unreviewed = true
				return found, why
			}
		}
	}
	if why := h.review(r.Context(), who, found); why != reason.None {
		return found, why
	}
	paged := found.query.Limit > 0 || found.query.Start != ""
	if asked.Shards != nil && paged {
		// kube-apiserver's cache and its reads of etcd count differently what remains after a page of a shard
		// (k8s.io/apiserver, storage: PrepareContinueToken and its callers).
		return found, reason.NotCanonical
	}
	if why := h.find(r.Context(), key, want, found); why != reason.None {
		return found, why
	}
	envelope := found.snapshot.Envelope
	knowsShards := asked.Shards == nil || envelope.Sharded // the API server ignores the selector if it does not know shards
	if !envelope.CanSelect(asked.Fields) || !knowsShards {
		return found, reason.NotCanonical
	}
	found.after = found.snapshot.Revision
	if want.Semantics == policy.After {
		found.after = want.Revision
	}
	return found, reason.None
}

// answer is the answer from memory to a list or watch, with everything that must still be true when it is written. Only
// the goroutine of the request uses it.
type answer struct {
	asked *policy.Request
	// attributes are the attributes of the review.
	attributes auth.Attributes
	semantics  policy.Semantics
	// whenForwarded must be called once the request was forwarded. It may be nil.
	whenForwarded func()
	// provesRight reports whether the caller has the right to the answer if the forwarded request gets a 200.
	provesRight bool
	// unreviewed reports that the request is forwarded without a review, for a reason that only callers with the right to
	// the answer may know.
	unreviewed bool
	// user is the caller, and impersonated the user whom the caller impersonates, if any. Both are set for the audit log
	// only.
	user           user.Info
	impersonated   user.Info
	representation media.Representation
	// initial reports whether a watch begins with the state.
	initial bool
	// after is the revision after which a watch has the changes.
	after    uint64
	snapshot snapshot.Snapshot
	query    index.Query

	entry      cluster.Entry
	collection *snapshot.Collection
	right      auth.Right
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

// review returns None if the caller has the right to the answer. Unless the answer's right is still valid, review asks
// kube-apiserver, and sets it.
func (h *Handler) review(ctx context.Context, who *caller, a *answer) reason.Reason {
	if h.Authorizer.ValidFor(&a.right, time.Now()) > 0 {
		return reason.None
	}
	ctx, span := observe.StartStep(ctx, observe.SpanReview)
	defer span.End()
	var err error
	a.right, err = h.Authorizer.Review(ctx, &who.Caller, &a.attributes)
	switch {
	case errors.Is(err, auth.ErrNoSeat):
		return reason.UnknownCaller
	case err != nil:
		h.logRateLimited("a caller's right could not be reviewed", err)
		return reason.ReviewFailed
	}
	switch a.right.Decision() {
	case auth.Yes, auth.AlreadyDone:
		return reason.None
	case auth.Unauthenticated:
		return reason.UnknownCaller
	case auth.Warned:
		return reason.Credentials
	case auth.NotPermitted:
		return reason.NotPermitted
	}
	return reason.NotAllowed
}

// resourceOf returns the resource of a list or watch.
func resourceOf(asked *policy.Request) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: asked.Group, Version: asked.Version, Resource: asked.Resource}
}

// setQuery sets the query for the objects of the answer.
func (a *answer) setQuery(d policy.Decision) {
	a.query = index.Query{
		Scope:  index.Scope{Namespace: a.asked.Namespace},
		Start:  d.Start,
		Limit:  d.Limit,
		Labels: a.asked.Labels,
		Fields: a.asked.Fields,
		Shards: a.asked.Shards,
		// A page at resourceVersion=0 looks like a page at exactly the state's revision.
		EndsWithIndex: d.Semantics == policy.NotOlderThan || d.Semantics == policy.Consistent,
		Indented:      a.asked.Indented(a.entry.Custom),
	}
	if namespace, name, single := a.asked.Single(a.entry.Namespaced); single {
		a.query.Scope.Namespace, a.query.Name = namespace, name
	}
}
