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
	"github.com/listproxy/listproxy/proxy/limits"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/index"
)

// decide decides about one request, stage by stage. If it returns a reason, the request must be forwarded, and the
// answer only tells what the request asks for, as far as that could be read. While a later stage waits, the result of
// an earlier one may become wrong, so [mayAnswer] checks everything last.
//
// The reasons of the first stage follow from the request and the rule's switches. Those of the policy
// and the cluster are told only to callers whom kube-apiserver has accepted, and those of memory only
// to callers who may list the resource. A list that is forwarded in any case is not reviewed, since it costs
// kube-apiserver no more than a review. Then only its answer shows whether the caller may know the reason
// ([forwardedList]).
func (h *Handler) decide(r *http.Request, who *caller) (*answer, reason.Reason) {
	asked, why := policy.Parse(r, kubehttp.RequestOf(r).Info, who.Identity.Credentials())
	want := &wanted{
		Evaluation: h.Policy.Evaluate(asked, why), watch: asked.Watch, lastProbe: who.lastProbe, seat: who.seat,
	}
	found := &answer{
		asked: asked, semantics: want.Semantics, initial: want.Initial, attributes: attributesFor(asked),
	}
	switch {
	case want.Reason != reason.None:
		return found, want.Reason
	case who.verdict == auth.Refused, who.verdict == auth.Anonymous:
		return found, reason.UnknownCaller
	case who.verdict == auth.Unasked:
		who.seat.Pause()
		if why := h.review(r.Context(), who, found); why != reason.None {
			return found, why
		}
	}
	if want.NotKept != reason.None {
		return found, want.NotKept
	}
	if found.entry, why = h.Cluster.Lookup(resourceOf(asked)); why != reason.None {
		return found, why
	}
	found.representation, why = want.Rule.Representation(asked, found.entry.Namespaced, found.entry.Custom)
	if why != reason.None {
		return found, why
	}
	resource := snapshot.CollectionKey{
		GroupVersionResource: resourceOf(asked),
		Namespaced:           found.entry.Namespaced,
		Representation:       found.representation,
	}
	found.setQuery(want.Decision)
	want.query = &found.query
	found.provesRight = !asked.Watch
	if found.provesRight {
		var known bool
		if found.right, known = h.Authorizer.Remembered(who.Identity, &found.attributes); !known {
			if why, found.whenForwarded = h.forwardsAnyway(resource, want); why != reason.None {
				found.unreviewed = true
				return found, why
			}
		}
	}
	if why := h.review(r.Context(), who, found); why != reason.None {
		return found, why
	}
	if asked.Shards != nil && (found.query.Limit > 0 || found.query.Start != "") {
		// kube-apiserver counts what remains after a page of a shard in one way in its cache, and in another
		// in etcd (k8s.io/apiserver, storage: PrepareContinueToken and its callers).
		return found, reason.NotCanonical
	}
	if why := h.find(r.Context(), resource, want, found); why != reason.None {
		return found, why
	}
	if envelope := found.snapshot.Envelope; !envelope.CanSelect(asked.Fields) || asked.Shards != nil && !envelope.Sharded {
		return found, reason.NotCanonical
	}
	found.after = found.snapshot.Revision
	if want.Semantics == policy.After {
		found.after = want.Revision
	}
	return found, reason.None
}

// answer is the answer from memory to a list or watch, with all that must still be true when it is written. It belongs
// to the request's goroutine.
type answer struct {
	asked *policy.Request
	// attributes are those of the review.
	attributes auth.Attributes
	semantics  policy.Semantics
	// whenForwarded is called when the request was forwarded, unless it is nil.
	whenForwarded func()
	// provesRight reports whether a 200 to the forwarded request proves the right that a review asks for.
	provesRight bool
	// unreviewed reports whether the request is forwarded without a review, for a reason that only callers with that
	// right may know.
	unreviewed bool
	// user is the caller, and impersonated the user whom the caller impersonates. Only the audit log needs them.
	user           user.Info
	impersonated   user.Info
	representation media.Representation
	// initial reports whether a watch begins with the state. It tells the changes after the revision after.
	initial  bool
	after    uint64
	snapshot snapshot.Snapshot
	query    index.Query

	entry      cluster.Entry
	collection *snapshot.Collection
	right      auth.Right
}

// attributesFor returns the attributes that the review of a list or watch must have.
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

// review returns None if the caller has the right to the answer. It asks kube-apiserver, unless the right in the answer
// is still valid.
func (h *Handler) review(ctx context.Context, who *caller, a *answer) (why reason.Reason) {
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

// setQuery sets the query by which the page's objects are found.
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

// wanted says which state a list or watch asks for, and how long it may wait.
type wanted struct {
	policy.Evaluation
	query *index.Query
	watch bool
	// lastProbe is the last probe that was sent before the request came.
	lastProbe uint64
	// seat is paused while the request waits.
	seat *limits.Grant
}

// streamingList reports whether it is a watch that begins with the state.
func (w *wanted) streamingList() bool { return w.watch && w.Initial }

// mustProve reports whether the newest state is proven even for a small list.
func (w *wanted) mustProve() bool {
	return w.watch || w.Rule.ConsistentLists == policy.ConsistentAlways
}

// patience returns the longest time for which the request waits for its state.
func (w *wanted) patience() time.Duration {
	if w.watch {
		return longestStreamWait
	}
	return longestWait
}

// waitsForLoad reports whether the request may wait for a load: its end gives the state that the request asks for, and
// the upstream would answer the request only at some cost.
func (w *wanted) waitsForLoad() bool {
	costly := w.streamingList() || !w.watch && w.query.Name == ""
	return costly && (w.Semantics == policy.Any || w.Semantics == policy.NotOlderThan || w.Semantics == policy.Consistent)
}

// loadWait returns the longest time for which the request waits until a collection is loaded that was just begun or has
// just lost its state.
func (w *wanted) loadWait(collection *snapshot.Collection) time.Duration {
	if !w.waitsForLoad() {
		return 0
	}
	return collection.LoadTimeLeft(w.patience(), w.Semantics == policy.Consistent)
}

// find sets the collection in found, and the state that the request asks for. It waits for a load or a proof if that is
// likely to come soon.
func (h *Handler) find(ctx context.Context, resource snapshot.CollectionKey, want *wanted, found *answer) (why reason.Reason) {
	deadline := time.Now().Add(want.patience()) // the load and the proof take no longer together
	collection, why := h.Collections.Use(resource)
	for why == reason.Warming && want.waitsForLoad() && time.Now().Before(deadline) && ctx.Err() == nil {
		want.seat.Pause()
		time.Sleep(startPause) // many collections are begun at the same time
		collection, why = h.Collections.Use(resource)
	}
	if why != reason.None {
		return why
	}
	found.collection = collection
	if want.streamingList() {
		var stop context.CancelFunc
		ctx, stop = context.WithDeadline(ctx, deadline)
		defer stop()
	}
	for {
		if left := min(want.loadWait(collection), time.Until(deadline)); left > 0 {
			// A few lists are not worth a wait. A streaming list would be the upstream's for minutes.
			if !want.watch && collection.TakeForwardSlot() {
				return reason.Warming
			}
			want.seat.Pause()
			_, span := observe.StartStep(ctx, observe.SpanSnapshot)
			why = collection.AwaitLoad(ctx, left, want.Semantics == policy.Consistent)
			span.End()
			if why != reason.None {
				return why
			}
		}
		why = h.findState(ctx, want, found)
		lost := why == reason.Warming || why == reason.NotProven // meanwhile, or the state is loaded anew
		if !lost || want.loadWait(collection) == 0 || !time.Now().Before(deadline) {
			return why
		}
	}
}

// forwardsAnyway returns the reason why a list would be forwarded whatever a review says, as far as is known without
// waiting. whenForwarded is to be called when the list was forwarded, unless it is nil.
func (h *Handler) forwardsAnyway(
	resource snapshot.CollectionKey, want *wanted,
) (why reason.Reason, whenForwarded func()) {
	collection, why := h.Collections.Find(resource)
	switch {
	case collection == nil:
		return why, nil
	case want.loadWait(collection) > 0:
		return reason.None, nil
	}
	why, whenForwarded = h.forwardsAtOnce(collection, want)
	if why != reason.None || want.Semantics == policy.Consistent {
		return why, whenForwarded
	}
	exact := want.Semantics == policy.Exact || want.Semantics == policy.Continue
	return collection.StateUnavailable(want.Revision, exact), nil
}

// forwardsAtOnce returns the reason why a list of the newest state, or a page after the first, is forwarded rather than
// waited for. whenForwarded is to be called when it was forwarded, unless it is nil. forwardsAtOnce does not wait.
func (h *Handler) forwardsAtOnce(
	collection *snapshot.Collection, want *wanted,
) (why reason.Reason, whenForwarded func()) {
	switch want.Semantics {
	case policy.Consistent:
		why = collection.ConsistentUnavailable(*want.query, want.lastProbe, h.proofWait(want))
		if why != reason.None || want.mustProve() {
			return why, nil
		}
		if whenForwarded, small := collection.ForwardSmall(*want.query, want.lastProbe); small {
			return reason.Consistent, whenForwarded
		}
	case policy.Continue:
		if whenForwarded, rest := collection.ForwardRest(*want.query, want.Revision); rest {
			return reason.NotProven, whenForwarded
		}
	}
	return reason.None, nil
}

// findState sets the state that the request asks for in found.
func (h *Handler) findState(ctx context.Context, want *wanted, found *answer) (why reason.Reason) {
	collection := found.collection
	if why, found.whenForwarded = h.forwardsAtOnce(collection, want); why != reason.None {
		return why
	}
	if want.Semantics == policy.Consistent {
		found.snapshot, why = h.proven(ctx, collection, want)
		return why
	}
	ctx, span := observe.StartStep(ctx, observe.SpanSnapshot)
	defer span.End()
	switch {
	case want.watch:
		found.snapshot, why = collection.Follow(ctx, want.Revision, want.Semantics == policy.After, watchWait)
	case want.Semantics == policy.Any, want.Semantics == policy.NotOlderThan:
		found.snapshot, why = collection.NotOlderThan(ctx, want.Revision)
	default:
		found.snapshot, why = collection.Exact(ctx, want.Revision)
	}
	return why
}
