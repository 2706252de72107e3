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
	"github.com/listproxy/listproxy/proxy/discovery"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/index"
)

// decide decides about one request, stage by stage. If the request must be forwarded, decide
// returns the reason; the answer then has only the semantics, as far as they are known, and whether
// the caller was reviewed. While a later stage waits, the result of an earlier one may become
// wrong, so [mayAnswer] checks everything last.
func (h *Handler) decide(r *http.Request, who caller) (policy.Request, answer, reason.Reason) {
	list, why := policy.Parse(r, kubehttp.Of(r).Info, who.identity.Credentials())
	outline := h.Policy.Outline(list, why)
	found := answer{semantics: outline.Semantics, watch: list.Watch, initial: outline.Initial}
	if found.user, found.asAny = h.getsAny(r.Context(), who, outline); found.asAny {
		outline.GiveAny(list)
	}
	if outline.Reason != reason.None {
		return list, found, outline.Reason
	}
	// The reasons up to here follow from the request and the rule's switches. Those below reveal
	// something about the cluster, the policy or memory.
	if !who.accepted {
		return list, found, reason.UnknownCaller
	}
	if outline.NotKept != reason.None {
		return list, found, outline.NotKept
	}
	entry, why := h.Catalog.Lookup(r.Context(), list.Group, list.Version, list.Resource)
	if why != reason.None {
		return list, found, why
	}
	representation, why := h.form(list, outline.Rule, entry)
	if why != reason.None {
		return list, found, why
	}
	resource, asked := collectionOf(list, entry, representation), attributesFor(list)
	want := wanted{outline, query(list, entry, outline.Decision, found.semantics), list.Watch, who.lastProbe}
	// A request that is answered sooner when it is forwarded is forwarded before a review is sent.
	if want.Semantics == policy.MostRecent || !h.Authorizer.Remembers(who.identity, asked) {
		if collection, why := h.hopeless(resource, want); why != reason.None {
			found.collection, found.unreviewed = collection, true
			return list, found, why
		}
	}
	may, why := h.review(r.Context(), who, asked, list.Watch)
	if why != reason.None {
		return list, found, why
	}
	collection, snap, why := h.snapshot(r.Context(), resource, want)
	if why != reason.None {
		return list, found, why
	}
	if !snap.Frame.Selects(list.Fields) {
		return list, found, reason.Selector
	}
	found.representation = representation
	found.snapshot, found.query = snap, want.query
	if found.after = snap.Revision; want.Semantics == policy.After {
		found.after = want.Revision
	}
	found.entry, found.collection, found.rights = entry, collection, may
	return list, found, reason.None
}

// wanted is what a list asks of memory.
type wanted struct {
	policy.Outline
	query index.Query
	watch bool
	// lastProbe is the last probe that was sent before the request came.
	lastProbe uint64
}

// anyway: the newest state is proven even where the list would be forwarded sooner.
func (w wanted) anyway() bool { return w.watch || w.Rule.ConsistentLists == policy.ConsistentAlways }

// streamingList says that it is a watch that begins with the state. It would be the upstream's for
// minutes if it were forwarded, so it waits for WatchProofWait.
func (w wanted) streamingList() bool { return w.watch && w.Initial }

// loading is how long a request waits, at most, until a collection is loaded: a streaming list
// does, if the collection was just begun or has just lost its state.
func (w wanted) loading(of *snapshot.Collection) time.Duration {
	if !w.streamingList() {
		return 0
	}
	return of.Loading(WatchProofWait)
}

// answer is what is written for a list that can be answered from memory, and everything that must
// still be true then.
type answer struct {
	// semantics are those of the request.
	semantics policy.Semantics
	// user is who asks; nil if nobody had to find out.
	user user.Info
	// asAny: the newest state was asked for, but the policy gives this caller any state (newestAsAny).
	asAny          bool
	representation media.Representation
	// watch: it is a watch, of the changes after a revision. initial: the watch begins with the state.
	watch, initial bool
	after          uint64
	snapshot       snapshot.Snapshot
	query          index.Query
	// indentedSize is how many bytes an indented list has; 0 until it was measured, which takes about as
	// long as to write it.
	indentedSize int

	entry      discovery.Entry
	collection *snapshot.Collection
	rights     rights
	// unreviewed: the list is forwarded without a review, because memory could not answer it.
	// collection is then the one that gave the reason; nil if there is none.
	unreviewed bool
}

// given returns the semantics of the answer, which asAny changes.
func (a answer) given() policy.Semantics {
	if a.asAny {
		return policy.Any
	}
	return a.semantics
}

// form returns the representation to answer in, which depends on the kind of resource, or the
// reason why there is none.
func (h *Handler) form(list policy.Request, rule policy.Rule, entry discovery.Entry) (media.Representation, reason.Reason) {
	representation, why := rule.Form(list, entry.Namespaced, entry.Custom)
	if why == reason.None { // nor is a feed begun that could not be used
		why = h.Schemas.Check(schema.GroupResource{Group: list.Group, Resource: list.Resource}, entry)
	}
	return representation, why
}

// query says what the page is to hold. asked are the semantics that the client asks for.
func query(list policy.Request, entry discovery.Entry, d policy.Decision, asked policy.Semantics) index.Query {
	q := index.Query{
		Scope:  index.Scope{Namespace: list.Namespace},
		Start:  d.Start,
		Limit:  d.Limit,
		Labels: list.Labels,
		Fields: list.Fields,
		// A page at resourceVersion=0 looks like a page at exactly the state's revision.
		Newest:   asked == policy.NotOlderThan || asked == policy.MostRecent,
		Indented: list.Indented(entry.Custom),
	}
	if namespace, name, single := list.Single(entry.Namespaced); single {
		q.Scope.Namespace, q.Name = namespace, name
	}
	return q
}

// collectionOf names the collection that has the objects of a list.
func collectionOf(list policy.Request, entry discovery.Entry, representation media.Representation) snapshot.Resource {
	return snapshot.Resource{
		GroupVersionResource: schema.GroupVersionResource{Group: list.Group, Version: list.Version, Resource: list.Resource},
		Namespaced:           entry.Namespaced,
		Representation:       representation,
	}
}

// attributesFor returns what a review must ask about a list.
func attributesFor(list policy.Request) authz.Attributes {
	return authz.Attributes{
		Verb:          list.Verb(),
		Group:         list.Group,
		Version:       list.Version,
		Resource:      list.Resource,
		Namespace:     list.Namespace,
		Name:          list.Name,
		LabelSelector: list.LabelSelector,
		FieldSelector: list.FieldSelector,
	}
}

// review asks kube-apiserver whether the caller may make this request and, for a user who is
// impersonated, whether listproxy may forward it. A watch first waits for its turn
// ([authz.Authorizer.WatchTurn]).
func (h *Handler) review(ctx context.Context, who caller, asked authz.Attributes, watch bool) (rights, reason.Reason) {
	ctx, span := observe.RecordOf(ctx).Step(ctx, observe.SpanReview)
	defer span.End()
	if watch {
		turn, err := h.Authorizer.WatchTurn(ctx, who.share)
		if err != nil {
			h.rarely("a caller's right could not be reviewed", err)
			return rights{}, reason.ReviewFailed
		}
		defer turn.Release()
	}
	yes, err := h.Authorizer.Review(ctx, who.identity, who.share, asked)
	switch {
	case errors.Is(err, authz.ErrWarned):
		return rights{}, reason.Warned
	case err != nil:
		h.rarely("a caller's right could not be reviewed", err)
		return rights{}, reason.ReviewFailed
	case !yes.Allowed():
		return rights{}, reason.NotAllowed
	}
	lent, why := h.lends(ctx, who, asked)
	return rights{yes, lent}, why
}

// reviewAgain reviews the caller again if its rights do not count any more: the proof of the newest
// state, and room for the answer's bytes, may take longer than a yes counts.
func (h *Handler) reviewAgain(ctx context.Context, who caller, list policy.Request, a *answer) (why reason.Reason) {
	if h.left(a.rights, time.Now()) == 0 {
		a.rights, why = h.review(ctx, who, attributesFor(list), list.Watch)
	}
	return why
}

// hopeless returns the reason if memory could not answer even after a review that says yes: then no
// review is needed. It starts no collection, since only callers with a right to a resource may
// cause that.
func (h *Handler) hopeless(resource snapshot.Resource, want wanted) (*snapshot.Collection, reason.Reason) {
	collection, why := h.Collections.Peek(resource)
	switch {
	case collection == nil:
	case want.loading(collection) > 0: // it is waited for
	case want.Semantics == policy.MostRecent:
		why = collection.NoFresh(want.query, want.lastProbe, h.proofWait(want), want.anyway())
	case want.watch:
		why = collection.NoFollow(want.Revision, want.Semantics == policy.After)
	case want.Semantics == policy.Any, want.Semantics == policy.NotOlderThan:
		why = collection.NoLatest(want.Revision)
	default:
		why = collection.NoExact(want.Revision)
	}
	return collection, why
}

// snapshot finds the state that the request asks for.
func (h *Handler) snapshot(
	ctx context.Context, resource snapshot.Resource, want wanted,
) (*snapshot.Collection, snapshot.Snapshot, reason.Reason) {
	collection, why := h.Collections.Use(resource)
	if why != reason.None {
		return nil, snapshot.Snapshot{}, why
	}
	if want.streamingList() { // the load and the proof take no longer together
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, WatchProofWait)
		defer stop()
	}
	for {
		if left := want.loading(collection); left > 0 {
			_, span := observe.RecordOf(ctx).Step(ctx, observe.SpanSnapshot)
			why = collection.AwaitFirst(ctx, left)
			span.End()
			if why != reason.None {
				return nil, snapshot.Snapshot{}, why
			}
		}
		snap, why := h.state(ctx, collection, want)
		if why != reason.Warming || want.loading(collection) == 0 {
			return collection, snap, why
		} // else the state was lost meanwhile
	}
}

// state finds the state that the request asks for in a collection.
func (h *Handler) state(
	ctx context.Context, collection *snapshot.Collection, want wanted,
) (snap snapshot.Snapshot, why reason.Reason) {
	if want.Semantics == policy.MostRecent {
		return h.proven(ctx, collection, want)
	}
	ctx, span := observe.RecordOf(ctx).Step(ctx, observe.SpanSnapshot)
	defer span.End()
	switch {
	case want.watch:
		return collection.Follow(ctx, want.Revision, want.Semantics == policy.After, watchWait)
	case want.Semantics == policy.Any, want.Semantics == policy.NotOlderThan:
		return collection.Latest(ctx, want.Revision)
	}
	return collection.Exact(ctx, want.Revision)
}

// rights are needed for an answer from memory: the caller's right to list and, for a user whom
// listproxy has verified itself, the right of listproxy's own account to send the request as this
// user.
type rights struct {
	callers authz.Right
	lent    *authz.Right // nil: the caller brings its own credentials
}

// left is for how long the rights are still valid.
func (h *Handler) left(r rights, now time.Time) time.Duration {
	left := h.Authorizer.Left(r.callers, now)
	if r.lent != nil {
		left = min(left, h.Impersonator.Left(*r.lent, now))
	}
	return left
}

// lends asks whether listproxy's account could forward this request as the caller; the caller's own
// review has allowed it already.
func (h *Handler) lends(ctx context.Context, who caller, a authz.Attributes) (*authz.Right, reason.Reason) {
	lent, err := h.Impersonator.Lends(ctx, who.identity, who.share, a)
	switch {
	case err != nil:
		h.rarely("listproxy's own right to impersonate could not be reviewed", err)
		return nil, reason.ReviewFailed
	case lent != nil && !lent.Allowed():
		return nil, reason.NotLent
	}
	return lent, reason.None
}
