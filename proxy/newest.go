package proxy

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/index"
)

// getsAny says whether a list asks for the newest state, and the policy has this caller get any
// instead; and who the caller is, if that was found out. The upstream is asked only where it
// matters, and only of callers whom it has accepted. If it does not say, the caller gets what it
// has asked for.
func (h *Handler) getsAny(ctx context.Context, who caller, rule policy.Rule, list policy.Request, asked policy.Semantics) (user.Info, bool) {
	// A page of the newest state that follows another one is not any.
	if len(rule.NewestAsAny) == 0 || asked != policy.MostRecent || list.Options.Continue != "" || !who.accepted {
		return nil, false
	}
	known, err := h.WhoAmI.Recognise(ctx, who.identity, who.share)
	if err != nil {
		h.rarely("a caller could not be recognised, for whom the policy may have a rule (newestAsAny)", err)
		return nil, false
	}
	return known, rule.GetsAny(known)
}

// proven finds the newest state, and waits until it is proven that it holds all that was written
// before the list came.
func (h *Handler) proven(ctx context.Context, resource snapshot.Resource) (*snapshot.Collection, snapshot.Snapshot, reason.Reason) {
	ctx, span := observe.RecordOf(ctx).Step(ctx, observe.SpanProof)
	defer span.End()
	collection, absence := h.Collections.Use(resource)
	if absence != reason.None {
		return nil, snapshot.Snapshot{}, absence
	}
	begun := time.Now()
	snap, absence := collection.Fresh(ctx, h.ConsistentWait)
	h.Observer.Proof(ctx, begun, absence)
	if absence == reason.None {
		span.SetAttributes(observe.Proof(snap.Heard.Sub(begun), snap.Answered.Sub(snap.Heard))...)
	}
	return collection, snap, absence
}

// forwardedNewest takes in that kube-apiserver has answered a list of the newest state, which was
// forwarded for a reason, and how long that took. It waits for nothing: the end of that answer is
// still to be sent.
func (h *Handler) forwardedNewest(list policy.Request, why reason.Reason, took time.Duration) {
	resource, q, known := h.newest(list)
	if !known {
		return
	}
	// Indented lists cost more, and do not tell what others do.
	if !list.Indented(true) && !list.Indented(false) {
		h.Collections.Forwarded(resource, q, took)
	}
	if why == reason.MostRecent {
		h.estimate(list, resource, q)
	}
	if list.Options.Limit > 0 {
		// The next page is of the state as it is now, and on a quiet resource the feed may not know
		// yet that it has reached that.
		h.Collections.WantNext(resource, q)
	}
}

// estimate counts what --consistent-lists would have done with a list of the newest state that was
// forwarded because it is off. kube-apiserver has answered it, so the caller may list the resource;
// nobody but operators is told.
func (h *Handler) estimate(list policy.Request, resource snapshot.Resource, q index.Query) {
	if !h.Policy.For(list.Group, list.Version, list.Resource).Keeps(resource.Representation) {
		h.Observer.Estimate(reason.NotCached)
		return
	}
	why := reason.Warming // it would have been begun
	if collection, absence := h.Collections.Peek(resource); collection != nil {
		why = collection.NoFresh(q, h.ConsistentWait, false)
	} else if absence != reason.None {
		why = absence
	}
	h.Observer.Estimate(why)
}

// newest says which collection a list of the newest state is of, and what it asks of it.
func (h *Handler) newest(list policy.Request) (snapshot.Resource, index.Query, bool) {
	entry, known := h.Catalog.Known(list.Group, list.Version, list.Resource)
	if !known || list.Options.Continue != "" {
		return snapshot.Resource{}, index.Query{}, false
	}
	representation, why := list.Accept.Representation(entry.Custom)
	if why != "" {
		return snapshot.Resource{}, index.Query{}, false
	}
	q := query(list, entry, policy.Decision{Semantics: policy.MostRecent, Limit: list.Options.Limit})
	return collectionOf(list, entry, representation), q, true
}

// timedWriter measures how long it takes to write an answer.
type timedWriter struct {
	http.ResponseWriter
	writing time.Duration
}

// Write implements [http.ResponseWriter].
func (w *timedWriter) Write(p []byte) (int, error) {
	begun := time.Now()
	defer func() { w.writing += time.Since(begun) }()
	return w.ResponseWriter.Write(p)
}

// Unwrap lets [http.ResponseController] find what else the writer can do.
func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
