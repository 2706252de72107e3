package proxy

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/telemetry"
)

// Handler is a request's way, for both doors:
//
//	caller ► admission ► parse ► policy ► catalog ► representation, selectors ► review ► snapshot ► page
//
// Any "no" on the way forwards the request, and the upstream's word comes back unchanged.
type Handler struct {
	Forward *Forwarder
	// Policy says what is kept. It must not be nil.
	Policy     *policy.Config
	Catalog    *Catalog
	Schemas    *Schemas
	Identifier *Identifier
	Reviewer   *Reviewer
	// Impersonator is nil if no user is stated.
	Impersonator *Impersonator
	Collections  *snapshot.Collections
	Admission    *Admission
	Compressor   *snapshot.Compressor
	// Auditor is nil if there is no audit log.
	Auditor *Auditor
	// Observer is nil if nobody wants to know.
	Observer *Observer
	Log      *slog.Logger

	// seldom is for what callers can make the log say.
	seldom  seldom
	writers writerPool
}

var _ http.Handler = (*Handler)(nil)

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	seen := h.Observer.begin(w, r)
	defer seen.end() // a forward that breaks off ends in a panic (see Forwarder)
	if h.Log.Enabled(r.Context(), telemetry.LevelAccess) {
		defer h.logAccess(seen)
	}
	h.handle(seen, seen.request)
	seen.whole = true
}

// handle answers a request that is seen.
func (h *Handler) handle(w *observation, r *http.Request) {
	caller, refusal := h.Identifier.Identify(r)
	accepted := refusal == nil && h.Forward.Accepted(caller)
	w.trace(accepted)
	r = w.request // with the span
	if refusal != nil {
		w.refused(reasonIdentity)
		refusal.write(w, r)
		return
	}
	long := longRunning(r)
	w.long = long
	share := shareKey(caller, accepted, r.RemoteAddr)
	place, err := h.Admission.Admit(r.Context(), share, accepted, long)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	defer place.Release()
	leave := func() {}
	defer func() { leave() }()
	known := func() {
		leave = useConnection(r.Context())
		uploadOfKnown(r, long)
	}
	if accepted {
		known()
	} else {
		r = withAcceptance(r, func() {
			known()
			h.Admission.Accept(&place, shareKey(caller, caller.bringsToken(), r.RemoteAddr))
		})
		w.request = r
	}

	list, answer, reason := h.answer(w, r, caller)
	var audit *AuditEntry
	if reason == "" && h.Auditor != nil {
		if audit, err = h.Auditor.begin(r, caller, list, w.begun); err != nil {
			h.rarely("an answer from memory could not be audited", err)
			reason = policy.ReasonAudit
		}
	}
	w.decided(list, answer, reason, h.Catalog.Known)
	status := hit(answer.semantics)
	if reason != "" {
		status = forwarded(reason)
	}
	w.cacheStatus = status
	switch {
	case reason == policy.ReasonMostRecent && list.Options.Limit > 0:
		w.Header().Set(cacheStatusHeader, status)
		h.forward(w, caller)
		if w.labels.code == http.StatusOK {
			h.expectNext(list)
		}
	case reason != "":
		w.Header().Set(cacheStatusHeader, status)
		h.forward(w, caller)
	default:
		h.serve(w, r, share, list, answer, audit)
	}
}

// forward sends the request on.
func (h *Handler) forward(w *observation, caller Identity) {
	r, span := w.forward()
	defer w.forwarded(span)
	h.Forward.ServeAs(w, r, caller)
}

// refuse answers what could not be let in.
func (h *Handler) refuse(w *observation, r *http.Request, err error) {
	if r.Context().Err() != nil {
		// The caller has gone, or has only ended its half of the connection: then it would read an
		// empty 200 where nothing is written.
		panic(http.ErrAbortHandler)
	}
	h.rarely("too much is in flight", err)
	w.refused(refusalReason(err))
	WriteTooManyRequests(w, r)
}

// rarely logs what callers can cause.
func (h *Handler) rarely(message string, err error) {
	h.seldom.do(func() { h.Log.Info(message, "error", err) })
}

// serve answers from memory. The entry of the audit log is nil if there is none.
func (h *Handler) serve(w *observation, r *http.Request, share callerKey, list policy.Request, a answer, audit *AuditEntry) {
	if audit != nil {
		defer audit.Abandon()
	}
	page, room, err := h.admitBody(r.Context(), share, a)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	defer room.Release()
	defer page.release()
	// What is written may take its client minutes. Until then it holds its objects, which are counted, and
	// not the rest of the state that they are from.
	revision := a.snapshot.Revision
	a.snapshot = snapshot.Snapshot{}
	w.serving(page)
	_, span := w.step(spanWrite)
	defer span.End()
	w.Header().Set(cacheStatusHeader, hit(a.semantics))
	if audit == nil {
		h.writePage(w, r, list, page)
		return
	}
	counted := &auditedWriter{ResponseWriter: w}
	defer func() {
		audit.Complete(AuditedAnswer{
			ID: w.Header().Get("Audit-Id"), Semantics: a.semantics, Representation: a.representation,
			Revision: revision, Items: len(page.objects),
			Bytes: counted.bytes, Broken: counted.broken || r.Context().Err() != nil,
		})
	}()
	h.writePage(counted, r, list, page)
}

// admitBody makes the body of an answer, when there is room for it. While it waits for that it holds nothing
// of it: the same snapshot gives the same body again.
func (h *Handler) admitBody(ctx context.Context, share callerKey, a answer) (*body, Grant[callerKey], error) {
	page := newBody(a)
	if room, ok := h.Admission.TryAdmitBody(share, page.size); ok {
		return page, room, nil
	}
	size := page.size
	page.release()
	room, err := h.Admission.AdmitBody(ctx, share, size)
	if err != nil {
		return nil, room, err
	}
	return newBody(a), room, nil
}

// answer is what is written for a list that can be answered from memory.
type answer struct {
	semantics      policy.Semantics
	representation policy.Representation
	snapshot       snapshot.Snapshot
	query          snapshot.Query
}

// answer decides about one request, and gives the reason if it is to be forwarded. Of the answer there
// are only the semantics then, as far as they are known.
func (h *Handler) answer(w *observation, r *http.Request, caller Identity) (policy.Request, answer, policy.Reason) {
	list, reason := policy.Parse(r, caller.credentials())
	if reason != "" {
		return list, answer{}, reason
	}
	rule := h.Policy.For(list.Group, list.Version, list.Resource)
	decision := policy.DecideFor(list.Options, rule.LimitAtZero)
	found := answer{semantics: decision.Semantics}
	if decision.Reason == policy.ReasonMostRecent {
		found.semantics = policy.MostRecent
	}
	if !decision.Serve {
		return list, found, decision.Reason
	}
	if rule.Cache == policy.CacheNever {
		return list, found, policy.ReasonNotCached
	}
	entry, reason := h.Catalog.Lookup(r.Context(), list.Group, list.Version, list.Resource)
	if reason != "" {
		return list, found, reason
	}
	representation, reason := h.form(list, rule, entry)
	if reason != "" {
		return list, found, reason
	}
	if reason := h.review(w, caller, list); reason != "" {
		return list, found, reason
	}
	collection, snap, reason := h.snapshot(w, collectionOf(list, entry, representation), decision)
	if reason != "" {
		return list, found, reason
	}
	if !snap.Frame.Selects(list.Fields) {
		return list, found, policy.ReasonSelector
	}
	// What was true before may have ended on the way here.
	if entry.Custom && !h.Schemas.Vouch() {
		return list, found, policy.ReasonSchema
	}
	if now, reason := h.Catalog.Lookup(r.Context(), list.Group, list.Version, list.Resource); reason != "" || now != entry {
		return list, found, cmp.Or(reason, policy.ReasonWarming)
	}
	if why := collection.Retired(); why != snapshot.Known {
		return list, found, policy.Reason(why)
	}
	found.representation, found.snapshot, found.query = representation, snap, query(list, entry, decision)
	return list, found, ""
}

// form says in which representation to answer, now that the kind of resource is known, or why not.
func (h *Handler) form(list policy.Request, rule policy.Rule, entry Entry) (policy.Representation, policy.Reason) {
	if list.Namespace != "" && !entry.Namespaced {
		return "", policy.ReasonUnknownResource
	}
	representation, reason := list.Accept.Representation(entry.Custom)
	switch {
	case reason != "":
		return "", reason
	case !rule.Keeps(representation):
		return "", policy.ReasonNotCached
	}
	if reason := h.Schemas.Check(schema.GroupResource{Group: list.Group, Resource: list.Resource}, entry); reason != "" {
		return "", reason // nor is a feed begun that could not be used
	}
	return representation, list.CheckSelectorsFor(entry.Namespaced, rule.LimitAtZero)
}

// query says what the page is to hold.
func query(list policy.Request, entry Entry, d policy.Decision) snapshot.Query {
	q := snapshot.Query{
		Scope:  snapshot.Scope{Namespace: list.Namespace},
		Start:  d.Start,
		Limit:  d.Limit,
		Labels: list.Labels,
		Fields: list.Fields,
		// A page at resourceVersion=0 is as it would be at that very revision.
		Newest: d.Semantics == policy.NotOlderThan,
	}
	if namespace, name, single := list.Single(entry.Namespaced); single {
		q.Scope.Namespace, q.Name = namespace, name
	}
	return q
}

// expectNext prepares for the page after one that the upstream has served just now, if there is one: it is of
// the state as it is now, and on a quiet resource the feed may not know yet that it has reached
// that. It does not wait for anything: the end of that answer is still to be sent.
func (h *Handler) expectNext(list policy.Request) {
	entry, known := h.Catalog.Known(list.Group, list.Version, list.Resource)
	if !known {
		return
	}
	if representation, reason := list.Accept.Representation(entry.Custom); reason == "" {
		page := query(list, entry, policy.Decision{Semantics: policy.NotOlderThan, Limit: list.Options.Limit})
		h.Collections.WantNext(collectionOf(list, entry, representation), page)
	}
}

// collectionOf names the collection that a list is of.
func collectionOf(list policy.Request, entry Entry, representation policy.Representation) snapshot.Resource {
	return snapshot.Resource{
		GroupVersionResource: schema.GroupVersionResource{Group: list.Group, Version: list.Version, Resource: list.Resource},
		Namespaced:           entry.Namespaced,
		Representation:       snapshot.Representation(representation),
	}
}

// review asks whether the caller may do what the request says.
func (h *Handler) review(w *observation, caller Identity, list policy.Request) policy.Reason {
	ctx, span := w.step(spanReview)
	defer span.End()
	asked := Attributes{
		Verb:          "list",
		Group:         list.Group,
		Version:       list.Version,
		Resource:      list.Resource,
		Namespace:     list.Namespace,
		Name:          list.Name,
		LabelSelector: list.LabelSelector,
		FieldSelector: list.FieldSelector,
	}
	allowed, err := h.Reviewer.Allowed(ctx, caller, asked)
	switch {
	case err != nil:
		h.rarely("a caller's right could not be reviewed", err)
		return policy.ReasonReviewFailed
	case !allowed:
		return policy.ReasonNotAllowed
	}
	return h.lends(ctx, caller, asked)
}

// snapshot finds the state that the request asks for.
func (h *Handler) snapshot(w *observation, resource snapshot.Resource, d policy.Decision) (*snapshot.Collection, snapshot.Snapshot, policy.Reason) {
	ctx, span := w.step(spanSnapshot)
	defer span.End()
	collection, absence := h.Collections.Use(resource)
	if absence != snapshot.Known {
		return nil, snapshot.Snapshot{}, policy.Reason(absence)
	}
	var snap snapshot.Snapshot
	switch d.Semantics {
	case policy.Any, policy.NotOlderThan:
		snap, absence = collection.Latest(ctx, d.Revision)
	default:
		snap, absence = collection.Exact(ctx, d.Revision)
	}
	return collection, snap, policy.Reason(absence)
}
