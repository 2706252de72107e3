package proxy

import (
	"log/slog"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/snapshot"
)

// Handler is a request's way, for both doors:
//
//	parse ► policy ► catalog ► review ► snapshot ► page
//
// Any "no" on the way forwards the request, and the upstream's word comes back unchanged.
type Handler struct {
	Forward     http.Handler
	Catalog     *Catalog
	Schemas     *Schemas
	Identifier  *Identifier
	Reviewer    *Reviewer
	Collections *snapshot.Collections
	Log         *slog.Logger
}

var _ http.Handler = (*Handler)(nil)

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begun := time.Now()
	list, answer, reason := h.answer(r)
	status := hit(answer.semantics)
	if reason != "" {
		status = forwarded(reason)
	}
	// Deferred, since a forward that breaks off ends in a panic (see Forwarder). The query is
	// left out: it may hold what somebody typed (exec).
	defer func() {
		h.Log.Debug("request", "method", r.Method, "path", r.URL.Path, "cacheStatus", status,
			"revision", answer.snapshot.Revision, "duration", time.Since(begun))
	}()
	w.Header().Set(cacheStatusHeader, status)
	if reason != "" {
		h.Forward.ServeHTTP(w, r)
		return
	}
	writePage(w, r, list, answer)
}

// answer is what is written for a list that can be answered from memory.
type answer struct {
	semantics policy.Semantics
	snapshot  snapshot.Snapshot
	start     string
	limit     int64
}

// answer decides about one request, and gives the reason if it is to be forwarded.
func (h *Handler) answer(r *http.Request) (policy.Request, answer, policy.Reason) {
	list, reason := policy.Parse(r)
	if reason != "" {
		return list, answer{}, reason
	}
	decision := policy.Decide(list.Options)
	if !decision.Serve {
		return list, answer{}, decision.Reason
	}
	if !policy.CachedByDefault(list.Group, list.Resource) {
		return list, answer{}, policy.ReasonNotCached
	}
	if !h.Schemas.Ready() {
		return list, answer{}, policy.ReasonWarming
	}
	entry, reason := h.Catalog.Lookup(r.Context(), list.Group, list.Version, list.Resource)
	if reason != "" {
		return list, answer{}, reason
	}
	if list.Namespace != "" && !entry.Namespaced {
		return list, answer{}, policy.ReasonUnknownResource
	}
	if reason := h.review(r, list); reason != "" {
		return list, answer{}, reason
	}
	snap, reason := h.snapshot(r, list, entry, decision)
	if reason != "" {
		return list, answer{}, reason
	}
	// What was true before may have ended on the way here.
	if snap.Frame.Custom() && !h.Schemas.Vouch() {
		return list, answer{}, policy.ReasonSchema
	}
	if _, reason := h.Catalog.Lookup(r.Context(), list.Group, list.Version, list.Resource); reason != "" {
		return list, answer{}, reason
	}
	return list, answer{
		semantics: decision.Semantics,
		snapshot:  snap,
		start:     decision.Start,
		limit:     decision.Limit,
	}, ""
}

// review asks whether the caller may do what the request says.
func (h *Handler) review(r *http.Request, list policy.Request) policy.Reason {
	allowed, err := h.Reviewer.Allowed(r.Context(), h.Identifier.Identify(r), Attributes{
		Verb:          "list",
		Group:         list.Group,
		Version:       list.Version,
		Resource:      list.Resource,
		Namespace:     list.Namespace,
		LabelSelector: list.LabelSelector,
		FieldSelector: list.FieldSelector,
	})
	switch {
	case err != nil:
		h.Log.Info("a caller's right could not be reviewed", "error", err)
		return policy.ReasonReviewFailed
	case !allowed:
		return policy.ReasonNotAllowed
	}
	return ""
}

// snapshot finds the state that the request asks for.
func (h *Handler) snapshot(r *http.Request, list policy.Request, entry Entry, d policy.Decision) (snapshot.Snapshot, policy.Reason) {
	collection, absence := h.Collections.Use(snapshot.Resource{
		GroupVersionResource: schema.GroupVersionResource{Group: list.Group, Version: list.Version, Resource: list.Resource},
		Namespaced:           entry.Namespaced,
		Accept:               snapshot.JSON,
	})
	if absence != snapshot.Known {
		return snapshot.Snapshot{}, policy.Reason(absence)
	}
	var snap snapshot.Snapshot
	switch d.Semantics {
	case policy.Any, policy.NotOlderThan:
		snap, absence = collection.Latest(r.Context(), d.Revision)
	default:
		snap, absence = collection.Exact(r.Context(), d.Revision)
	}
	return snap, policy.Reason(absence)
}
