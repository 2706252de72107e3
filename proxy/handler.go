package proxy

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/audit"
	"github.com/listproxy/listproxy/proxy/discovery"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/snapshot"
)

// Handler is a request's way, for both doors:
//
//	caller ► admission ► parse ► decide ► accepted? ► policy's rule ► catalog
//	       ► representation, selectors ► memory, at a glance ► review ► snapshot ► audit, room ► last word ► page
//
// Any "no" on the way forwards the request, and the upstream's word comes back unchanged.
type Handler struct {
	Forward *Forwarder
	// Policy says what is kept. It must not be nil.
	Policy     *policy.Config
	Catalog    *discovery.Catalog
	Schemas    *discovery.Schemas
	Identifier *Identifier
	Reviewer   *Reviewer
	// Impersonator is nil if no user is stated.
	Impersonator *Impersonator
	Collections  *snapshot.Collections
	Admission    *Admission
	Compressor   *snapshot.Compressor
	// Auditor is nil if there is no audit log.
	Auditor *Auditor
	Log     *slog.Logger

	// seldom is for what callers can make the log say.
	seldom  seldom
	writers writerPool
}

var _ http.Handler = (*Handler)(nil)

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	record := RecordOf(r.Context())
	caller, refusal := h.Identifier.Identify(r)
	accepted := refusal == nil && h.Forward.Accepted(caller)
	r = record.Trace(r, accepted)
	if refusal != nil {
		record.Refused(w.Header(), reasonIdentity)
		refusal.write(w, r)
		return
	}
	long := kubehttp.Of(r).LongRunning
	record.LongRunning(long)
	who := admitted{identity: caller, accepted: accepted, share: h.Forward.share(caller, accepted, r.RemoteAddr)}
	place, err := h.Admission.Admit(r.Context(), who.share, accepted, long)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	defer place.Release()
	leave := func() {}
	defer func() { leave() }()
	known := func(share callerKey) {
		leave = useConnection(r.Context(), share)
		callerKnown(r.Context(), long)
	}
	if accepted {
		known(who.share)
	} else {
		r = withAcceptance(r, func() {
			share := h.Forward.share(caller, caller.bringsToken(), r.RemoteAddr)
			known(share)
			h.Admission.Accept(&place, share)
		})
	}
	h.respond(w, r, who)
}

// admitted is who sends a request that was let in.
type admitted struct {
	identity Identity
	// accepted: kube-apiserver is known to know the caller ([Upstream.Accepted]).
	accepted bool
	share    callerKey
}

// respond answers a request from memory, or forwards it.
func (h *Handler) respond(w http.ResponseWriter, r *http.Request, who admitted) {
	record := RecordOf(r.Context())
	list, found, why := h.answer(r, who)
	record.Decided(list, found.semantics, why)
	if why == "" {
		if why = h.serve(w, r, who, list, &found); why == "" {
			return
		}
		found = answer{semantics: found.semantics}
		record.Decided(list, found.semantics, why)
	}
	record.SetCacheStatus(w.Header(), forwarded(why))
	if found.unreviewed {
		w = &unreviewedWriter{ResponseWriter: w, record: record, reason: why}
	}
	out, end := record.Forwarding(r)
	defer end()
	code := h.Forward.ServeAs(w, out, who.identity)
	switch {
	case found.unreviewed && found.collection != nil && code == http.StatusOK:
		found.collection.Touch() // the caller may list it, so it is in use
	case why == reason.MostRecent && list.Options.Limit > 0 && code == http.StatusOK:
		h.expectNext(list)
	}
}

// refuse answers what could not be let in.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		// The caller has gone, or has only ended its half of the connection: then it would read an
		// empty 200 where nothing is written.
		panic(http.ErrAbortHandler)
	}
	h.rarely("too much is in flight", err)
	RecordOf(r.Context()).Refused(w.Header(), refusalReason(err))
	kubehttp.WriteTooManyRequests(w, r)
}

// rarely logs what callers can cause.
func (h *Handler) rarely(message string, err error) {
	h.seldom.do(func() { h.Log.Info(message, "error", err) })
}

// serve answers from memory. With a reason it has not, and nothing was written.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, who admitted, list policy.Request, a *answer) reason.Reason {
	var entry *audit.Entry
	if h.Auditor != nil {
		var err error
		if entry, err = h.Auditor.begin(r, who, list, RecordOf(r.Context()).Begun()); err != nil {
			h.rarely("an answer from memory could not be audited", err)
			return reason.Audit
		}
		defer entry.Abandon()
	}
	page, room, err := h.admitBody(r.Context(), who.share, *a)
	if err != nil {
		h.refuse(w, r, err)
		return ""
	}
	defer room.Release()
	defer page.release()
	if reason := mayAnswer(a.entry, a.snapshot, h.ground(list, *a)); reason != "" {
		return reason
	}
	// What is written may take its client minutes. Until then it holds its objects, which are counted, and
	// not the rest of the state that they are from.
	revision := a.snapshot.Revision
	a.snapshot, a.collection = snapshot.Snapshot{}, nil
	record := RecordOf(r.Context())
	record.Serving(Served{Representation: a.representation, Revision: revision, Items: len(page.objects), Bytes: page.size})
	record.SetCacheStatus(w.Header(), hit(a.semantics))
	_, span := record.Step(r.Context(), spanWrite)
	defer span.End()
	if entry == nil {
		h.writePage(w, r, list, page)
		return ""
	}
	counted := &countingWriter{ResponseWriter: w}
	defer func() {
		entry.Complete(audit.Answer{
			ID: w.Header().Get("Audit-Id"), Semantics: a.semantics, Representation: a.representation,
			Revision: revision, Items: len(page.objects),
			Bytes: counted.bytes, Broken: counted.broken || r.Context().Err() != nil,
		})
	}()
	h.writePage(counted, r, list, page)
	return ""
}

// ground is what an answer stands on now. It waits for nothing.
func (h *Handler) ground(list policy.Request, a answer) ground {
	now := time.Now()
	on := ground{
		at:      now,
		schema:  h.Schemas.Check(schema.GroupResource{Group: list.Group, Resource: list.Resource}, a.entry),
		memory:  a.collection.Standing(),
		allowed: h.holds(a.rights, now),
	}
	on.entry, on.known = h.Catalog.Known(list.Group, list.Version, list.Resource)
	return on
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

// answer is what is written for a list that can be answered from memory, and what it stands on.
type answer struct {
	semantics      policy.Semantics
	representation media.Representation
	snapshot       snapshot.Snapshot
	query          snapshot.Query

	entry      discovery.Entry
	collection *snapshot.Collection
	rights     rights
	// unreviewed: the list is forwarded for a reason of memory's own, and without a review. The collection
	// is the one that has given the reason, if it is there.
	unreviewed bool
}

// answer decides about one request, and gives the reason if it is to be forwarded. Of the answer there
// are only the semantics then, as far as they are known, and whether it was reviewed. What is found here may end
// while something else is waited for, so [mayAnswer] has the last word.
func (h *Handler) answer(r *http.Request, who admitted) (policy.Request, answer, reason.Reason) {
	list, why := policy.Parse(r, kubehttp.Of(r).Info, who.identity.credentials())
	if why != "" {
		return list, answer{}, why
	}
	rule := h.Policy.For(list.Group, list.Version, list.Resource)
	decision := policy.DecideFor(list.Options, rule.LimitAtZero)
	found := answer{semantics: decision.Semantics}
	if decision.Reason == reason.MostRecent {
		found.semantics = policy.MostRecent
	}
	if !decision.Serve {
		return list, found, decision.Reason
	}
	// The reasons up to here are the request's own, whatever the rule says. Those that follow tell of the
	// cluster, of the policy and of memory.
	if !who.accepted {
		return list, found, reason.UnknownCaller
	}
	if rule.Cache == policy.CacheNever {
		return list, found, reason.NotCached
	}
	entry, why := h.Catalog.Lookup(r.Context(), list.Group, list.Version, list.Resource)
	if why != "" {
		return list, found, why
	}
	representation, why := h.form(list, rule, entry)
	if why != "" {
		return list, found, why
	}
	resource, asked := collectionOf(list, entry, representation), attributesFor(list)
	if !h.Reviewer.Remembers(who.identity, asked) {
		if collection, why := h.hopeless(resource, decision); why != "" {
			found.collection, found.unreviewed = collection, true
			return list, found, why
		}
	}
	may, why := h.review(r.Context(), who, asked)
	if why != "" {
		return list, found, why
	}
	collection, snap, why := h.snapshot(r.Context(), resource, decision)
	if why != "" {
		return list, found, why
	}
	if !snap.Frame.Selects(list.Fields) {
		return list, found, reason.Selector
	}
	found.representation, found.snapshot, found.query = representation, snap, query(list, entry, decision)
	found.entry, found.collection, found.rights = entry, collection, may
	return list, found, ""
}

// form says in which representation to answer, now that the kind of resource is known, or why not.
func (h *Handler) form(list policy.Request, rule policy.Rule, entry discovery.Entry) (media.Representation, reason.Reason) {
	if list.Namespace != "" && !entry.Namespaced {
		return "", reason.UnknownResource
	}
	representation, why := list.Accept.Representation(entry.Custom)
	switch {
	case why != "":
		return "", why
	case !rule.Keeps(representation):
		return "", reason.NotCached
	}
	if reason := h.Schemas.Check(schema.GroupResource{Group: list.Group, Resource: list.Resource}, entry); reason != "" {
		return "", reason // nor is a feed begun that could not be used
	}
	return representation, list.CheckSelectorsFor(entry.Namespaced, rule.LimitAtZero)
}

// query says what the page is to hold.
func query(list policy.Request, entry discovery.Entry, d policy.Decision) snapshot.Query {
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
func collectionOf(list policy.Request, entry discovery.Entry, representation media.Representation) snapshot.Resource {
	return snapshot.Resource{
		GroupVersionResource: schema.GroupVersionResource{Group: list.Group, Version: list.Version, Resource: list.Resource},
		Namespaced:           entry.Namespaced,
		Representation:       representation,
	}
}

// attributesFor is what a list is reviewed for.
func attributesFor(list policy.Request) Attributes {
	return Attributes{
		Verb:          "list",
		Group:         list.Group,
		Version:       list.Version,
		Resource:      list.Resource,
		Namespace:     list.Namespace,
		Name:          list.Name,
		LabelSelector: list.LabelSelector,
		FieldSelector: list.FieldSelector,
	}
}

// review asks whether the caller may do what is asked for, and whether it could be forwarded.
func (h *Handler) review(ctx context.Context, who admitted, asked Attributes) (rights, reason.Reason) {
	ctx, span := RecordOf(ctx).Step(ctx, spanReview)
	defer span.End()
	yes, err := h.Reviewer.Review(ctx, who.identity, who.share, asked)
	switch {
	case err != nil:
		h.rarely("a caller's right could not be reviewed", err)
		return rights{}, reason.ReviewFailed
	case !yes.allowed:
		return rights{}, reason.NotAllowed
	}
	lent, reason := h.lends(ctx, who, asked)
	return rights{yes, lent}, reason
}

// hopeless gives the reason if memory could not answer whatever a review said: then there is no need
// for one. It starts no collection, which is for callers who have a right to it.
func (h *Handler) hopeless(resource snapshot.Resource, d policy.Decision) (*snapshot.Collection, reason.Reason) {
	collection, absence := h.Collections.Peek(resource)
	switch {
	case collection == nil:
	case d.Semantics == policy.Any, d.Semantics == policy.NotOlderThan:
		absence = collection.NoLatest(d.Revision)
	default:
		absence = collection.NoExact(d.Revision)
	}
	return collection, absence
}

// snapshot finds the state that the request asks for.
func (h *Handler) snapshot(ctx context.Context, resource snapshot.Resource, d policy.Decision) (*snapshot.Collection, snapshot.Snapshot, reason.Reason) {
	ctx, span := RecordOf(ctx).Step(ctx, spanSnapshot)
	defer span.End()
	collection, absence := h.Collections.Use(resource)
	if absence != reason.None {
		return nil, snapshot.Snapshot{}, absence
	}
	var snap snapshot.Snapshot
	switch d.Semantics {
	case policy.Any, policy.NotOlderThan:
		snap, absence = collection.Latest(ctx, d.Revision)
	default:
		snap, absence = collection.Exact(ctx, d.Revision)
	}
	return collection, snap, absence
}
