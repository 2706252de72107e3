package proxy

import (
	"context"
	"errors"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/authz"
	"github.com/listproxy/listproxy/proxy/cluster"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/limits"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/index"
)

// decide decides about one request, stage by stage. It returns what was asked for, as far as it could be
// read, and what was found. With a reason the request must be forwarded; then only the answer's semantics
// count. While a later stage waits, the result of an earlier one may become wrong, so [mayAnswer] checks
// everything last.
//
// The reasons of the first stage follow from the request and the rule's switches. Those of the policy
// and the cluster are told only to callers whom kube-apiserver has accepted, and those of memory only
// to callers who may list the resource. What is forwarded in any case is not reviewed: a list costs kube-apiserver
// no more than a review. Then only the answer shows whether the caller may know the reason ([forwardedList]).
func (h *Handler) decide(r *http.Request, who caller) (policy.Request, answer, reason.Reason) {
	asked, why := policy.Parse(r, kubehttp.Of(r).Info, who.identity.Credentials())
	evaluation := h.Policy.Evaluate(asked, why)
	found := answer{semantics: evaluation.Semantics, watch: asked.Watch, initial: evaluation.Initial}
	attributes := attributesFor(asked)
	switch {
	case evaluation.Reason != reason.None:
		return asked, found, evaluation.Reason
	case who.verdict == upstream.Refused, who.verdict == upstream.Anonymous:
		return asked, found, reason.UnknownCaller
	case who.verdict == upstream.Unasked:
		who.seat.Pause()
		if found.right, why = h.review(r.Context(), who, attributes, found.right); why != reason.None {
			return asked, found, why
		}
	}
	if evaluation.NotKept != reason.None {
		return asked, found, evaluation.NotKept
	}
	entry, why := h.Cluster.Lookup(resourceOf(asked))
	if why != reason.None {
		return asked, found, why
	}
	representation, why := evaluation.Rule.Representation(asked, entry.Namespaced, entry.Custom)
	if why != reason.None {
		return asked, found, why
	}
	resource := collectionOf(asked, entry, representation)
	want := wanted{
		Evaluation: evaluation, query: queryOf(asked, entry, evaluation.Decision), watch: asked.Watch,
		lastProbe: who.lastProbe, seat: who.seat,
	}
	found.provesRight = !asked.Watch
	if found.provesRight && !h.Authorizer.Remembers(who.identity, attributes) {
		if why, over := h.forwardsAnyway(resource, want); why != reason.None {
			found.unreviewed, found.whenForwarded = true, over
			return asked, found, why
		}
	}
	if found.right, why = h.review(r.Context(), who, attributes, found.right); why != reason.None {
		return asked, found, why
	}
	if asked.Shards != nil && (want.query.Limit > 0 || want.query.Start != "") {
		// kube-apiserver counts what remains after a page of a shard in one way in its cache, and in another
		// in etcd (k8s.io/apiserver, storage: PrepareContinueToken and its callers).
		return asked, found, reason.NotCanonical
	}
	collection, state, why := h.find(r.Context(), resource, want)
	found.whenForwarded = state.whenForwarded
	if why != reason.None {
		return asked, found, why
	}
	snap := state.snapshot
	if !snap.Envelope.Selects(asked.Fields) || asked.Shards != nil && !snap.Envelope.Sharded {
		return asked, found, reason.NotCanonical
	}
	found.representation, found.query = representation, want.query
	found.entry, found.collection = entry, collection
	found.snapshot, found.after = snap, snap.Revision
	if want.Semantics == policy.After {
		found.after = want.Revision
	}
	return asked, found, reason.None
}

// answer is what is written for a list or watch that can be answered from memory, and everything that must
// still be true then.
type answer struct {
	// semantics are those of the request.
	semantics policy.Semantics
	// whenForwarded is called when the request was forwarded, unless it is nil.
	whenForwarded func()
	// provesRight reports whether a 200 to the forwarded request shows that its caller has the right that a review asks for.
	provesRight bool
	// unreviewed reports whether it is forwarded without a review, for a reason that only those may know who have that right.
	unreviewed bool
	// user is who asks, and impersonated in whose name, for the audit log; nil if there is none.
	user           user.Info
	impersonated   user.Info
	representation media.Representation
	// watch reports whether it is a watch, of the changes after a revision (after), and initial whether that begins with the state.
	watch, initial bool
	after          uint64
	snapshot       snapshot.Snapshot
	query          index.Query

	entry      cluster.Entry
	collection *snapshot.Collection
	right      authz.Right
}

// attributesFor returns what a review must ask about a list or watch.
func attributesFor(asked policy.Request) authz.Attributes {
	return authz.Attributes{
		Verb:          asked.Verb(),
		Group:         asked.Group,
		Version:       asked.Version,
		Resource:      asked.Resource,
		Namespace:     asked.Namespace,
		Name:          asked.Name,
		LabelSelector: asked.LabelSelector,
		FieldSelector: asked.FieldSelector,
	}
}

// review returns the right that an answer needs: the one that it had, if it is still valid; else
// kube-apiserver is asked whether it would answer this request.
func (h *Handler) review(ctx context.Context, who caller, attributes authz.Attributes, had authz.Right) (authz.Right, reason.Reason) {
	if h.Authorizer.Left(had, time.Now()) > 0 {
		return had, reason.None
	}
	ctx, span := observe.Step(ctx, observe.SpanReview)
	defer span.End()
	right, err := h.Authorizer.Review(ctx, who.subject(), attributes)
	switch {
	case errors.Is(err, authz.ErrNoSeat):
		return right, reason.UnknownCaller
	case err != nil:
		h.logRateLimited("a caller's right could not be reviewed", err)
		return right, reason.ReviewFailed
	}
	switch right.Decision() {
	case authz.Yes, authz.Done:
		return right, reason.None
	case authz.Unauthenticated:
		return right, reason.UnknownCaller
	case authz.Warned:
		return right, reason.Credentials
	case authz.NotPermitted:
		return right, reason.NotPermitted
	}
	return right, reason.NotAllowed
}

// resourceOf names the resource that a list or watch is of.
func resourceOf(asked policy.Request) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: asked.Group, Version: asked.Version, Resource: asked.Resource}
}

// collectionOf names the collection that has its objects.
func collectionOf(asked policy.Request, entry cluster.Entry, representation media.Representation) snapshot.CollectionKey {
	return snapshot.CollectionKey{
		GroupVersionResource: resourceOf(asked),
		Namespaced:           entry.Namespaced,
		Representation:       representation,
	}
}

// queryOf returns what the page is to hold.
func queryOf(asked policy.Request, entry cluster.Entry, d policy.Decision) index.Query {
	q := index.Query{
		Scope:  index.Scope{Namespace: asked.Namespace},
		Start:  d.Start,
		Limit:  d.Limit,
		Labels: asked.Labels,
		Fields: asked.Fields,
		Shards: asked.Shards,
		// A page at resourceVersion=0 looks like a page at exactly the state's revision.
		Newest:   d.Semantics == policy.NotOlderThan || d.Semantics == policy.Consistent,
		Indented: asked.Indented(entry.Custom),
	}
	if namespace, name, single := asked.Single(entry.Namespaced); single {
		q.Scope.Namespace, q.Name = namespace, name
	}
	return q
}

// wanted is what a list or watch asks of memory.
type wanted struct {
	policy.Evaluation
	query index.Query
	watch bool
	// lastProbe is the last probe that was sent before the request came.
	lastProbe uint64
	// seat is paused while the request waits.
	seat *limits.Grant
}

// stateFound is a state in memory that answers a request, or what must be done because there is none.
type stateFound struct {
	snapshot snapshot.Snapshot
	// whenForwarded is called when the request was forwarded, unless it is nil.
	whenForwarded func()
}

// streamingList reports whether it is a watch that begins with the state.
func (w wanted) streamingList() bool { return w.watch && w.Initial }

// mustProve reports whether the newest state is proven even for a list that is small.
func (w wanted) mustProve() bool { return w.watch || w.Rule.ConsistentLists == policy.ConsistentAlways }

// patience is the time for which a request waits, at most, for what memory does not have yet.
func (w wanted) patience() time.Duration {
	if w.watch {
		return longestStreamWait
	}
	return longestWait
}

// waitsForLoad reports whether the state that is being loaded is what the request asks for, and would cost the upstream
// something.
func (w wanted) waitsForLoad() bool {
	costly := w.streamingList() || !w.watch && w.query.Name == ""
	return costly && (w.Semantics == policy.Any || w.Semantics == policy.NotOlderThan || w.Semantics == policy.Consistent)
}

// loadWait is the time for which a request waits, at most, until a collection is loaded that was just begun or
// has just lost its state.
func (w wanted) loadWait(of *snapshot.Collection) time.Duration {
	if !w.waitsForLoad() {
		return 0
	}
	return of.LoadTimeLeft(w.patience(), w.Semantics == policy.Consistent)
}

// find returns the collection, and from it the state that the request asks for. It waits for a load or a
// proof if that is likely to come soon.
func (h *Handler) find(
	ctx context.Context, resource snapshot.CollectionKey, want wanted,
) (*snapshot.Collection, stateFound, reason.Reason) {
	deadline := time.Now().Add(want.patience()) // the load and the proof take no longer together
	collection, why := h.Collections.Use(resource)
	for why == reason.Warming && want.waitsForLoad() && time.Now().Before(deadline) && ctx.Err() == nil {
		want.seat.Pause()
		time.Sleep(startPause) // many collections are begun at the same time
		collection, why = h.Collections.Use(resource)
	}
	if why != reason.None {
		return nil, stateFound{}, why
	}
	if want.streamingList() {
		var stop context.CancelFunc
		ctx, stop = context.WithDeadline(ctx, deadline)
		defer stop()
	}
	for {
		if left := min(want.loadWait(collection), time.Until(deadline)); left > 0 {
			// A few lists are not worth a wait. A streaming list would be the upstream's for minutes.
			if !want.watch && collection.TakeForwardSlot() {
				return nil, stateFound{}, reason.Warming
			}
			want.seat.Pause()
			_, span := observe.Step(ctx, observe.SpanSnapshot)
			why = collection.AwaitLoad(ctx, left, want.Semantics == policy.Consistent)
			span.End()
			if why != reason.None {
				return nil, stateFound{}, why
			}
		}
		state, why := h.state(ctx, collection, want)
		if why != reason.Warming && why != reason.NotProven || want.loadWait(collection) == 0 || !time.Now().Before(deadline) {
			return collection, state, why
		} // else the state was lost meanwhile, or is loaded anew
	}
}

// forwardsAnyway returns the reason why a list would be forwarded whatever a review says, as far as is known without waiting,
// and what is to be called when it was; nil: nothing.
func (h *Handler) forwardsAnyway(resource snapshot.CollectionKey, want wanted) (why reason.Reason, whenForwarded func()) {
	collection, why := h.Collections.Find(resource)
	switch {
	case collection == nil:
		return why, nil
	case want.loadWait(collection) > 0:
		return reason.None, nil
	case want.Semantics == policy.Consistent:
		return h.forwardsNewest(collection, want)
	}
	return collection.StateUnavailable(want.Revision, want.Semantics == policy.Exact || want.Semantics == policy.Continue), nil
}

// forwardsNewest returns the reason why a list of the newest state is forwarded rather than proven, and what is to be called
// when it was. It does not wait.
func (h *Handler) forwardsNewest(collection *snapshot.Collection, want wanted) (why reason.Reason, whenForwarded func()) {
	if why := collection.ConsistentUnavailable(want.query, want.lastProbe, h.proofWait(want)); why != reason.None || want.mustProve() {
		return why, nil
	}
	if over, forward := collection.ForwardSmall(want.query, want.lastProbe); forward {
		return reason.Consistent, over
	}
	return reason.None, nil
}

// state finds the state that the request asks for in a collection.
func (h *Handler) state(
	ctx context.Context, collection *snapshot.Collection, want wanted,
) (found stateFound, why reason.Reason) {
	if want.Semantics == policy.Consistent {
		if why, found.whenForwarded = h.forwardsNewest(collection, want); why == reason.None {
			found.snapshot, why = h.proven(ctx, collection, want)
		}
		return found, why
	}
	ctx, span := observe.Step(ctx, observe.SpanSnapshot)
	defer span.End()
	switch {
	case want.watch:
		found.snapshot, why = collection.Follow(ctx, want.Revision, want.Semantics == policy.After, watchWait)
	case want.Semantics == policy.Any, want.Semantics == policy.NotOlderThan:
		found.snapshot, why = collection.NotOlderThan(ctx, want.Revision)
	default:
		found.snapshot, why = collection.Exact(ctx, want.Revision)
	}
	return found, why
}
