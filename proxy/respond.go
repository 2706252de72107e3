package proxy

import (
	"context"
	"net/http"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/forward"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/proxy/serve"
	"github.com/listproxy/listproxy/snapshot"
)

// stallTime is the time after which a client that reads nothing of its answer is cut off, since the unread bytes are
// held in memory. Forwarded streams are not cut.
const stallTime = time.Minute

// respond is the last handler of the chain.
func (h *Handler) respond(w http.ResponseWriter, r *http.Request) {
	if watch := h.handle(w, r); watch != nil {
		watch.serve()
	}
}

// handle decides, and answers from memory or forwards. It only begins a watch from memory, which must then be served.
func (h *Handler) handle(w http.ResponseWriter, r *http.Request) *watchStream {
	record, who := observe.RecordOf(r.Context()), callerOf(r.Context())
	found, why := h.decide(r, who)
	if found.whenForwarded != nil {
		defer found.whenForwarded()
	}
	record.SetDecision(found.asked, found.semantics, why)
	if err := who.seat.Resume(r.Context()); err != nil {
		h.refuse(w, r, err)
		return nil
	}
	if why == reason.None {
		var watch *watchStream
		if watch, why = h.fromMemory(w, r, who, found); why == reason.None {
			return watch
		}
		found = &answer{ // without the state
			asked: found.asked, attributes: found.attributes, semantics: found.semantics,
			provesRight: found.provesRight,
		}
		record.SetDecision(found.asked, found.semantics, why)
	}
	kubehttp.SetCacheForwarded(w.Header(), why)
	if found.provesRight {
		w = &forwardedList{ResponseWriter: w, answered: h.onListAnswer(r, who, found)}
	}
	if !kubehttp.RequestOf(r).LongRunning {
		short := serve.NewAnswerWriter(w, r, stallTime, h.Log)
		defer short.Finish()
		w = short
	}
	h.Forward.ServeAs(w, r, who.Identity, h.bodyRoom(r, who))
	return nil
}

// bodyRoom returns a function that reserves room for the body of a request, so that it can be sent again. It returns nil
// for a stream, which has no whole body, and for a caller who is not accepted: its requests go over HTTP/1.1, where no
// other request ends their connection.
func (h *Handler) bodyRoom(r *http.Request, who *caller) forward.Keep {
	if !who.Accepted || kubehttp.RequestOf(r).LongRunning {
		return nil
	}
	return func(bytes int64) (free func(), ok bool) {
		room, ok := h.Limits.Body(who.Flow, bytes)
		return room.Release, ok
	}
}

// fromMemory answers from memory: it writes a list, or begins a watch, which must be served. If it returns a reason, it
// has written nothing, and the request is to be forwarded. If it returns neither a watch nor a reason, the request was
// answered or refused.
func (h *Handler) fromMemory(
	w http.ResponseWriter, r *http.Request, who *caller, a *answer,
) (*watchStream, reason.Reason) {
	if a.asked.Watch {
		if why := h.watchable(a); why != reason.None {
			return nil, why
		}
	}
	page := newBody(a)
	page.auditID = kubehttp.AuditID(r)
	if page.unindentable {
		page.release()
		return nil, reason.Representation
	}
	var err error
	if page.room, err = h.Limits.Answer(r.Context(), who.Flow, page.size); err != nil {
		page.release()
		h.refuse(w, r, err)
		return nil, reason.None
	}
	// The right may have become invalid while the request waited for the state and for room.
	why := h.review(r.Context(), who, a)
	if why == reason.None {
		why = h.audit(r, who, a, page)
	}
	if why != reason.None {
		page.release()
		return nil, why
	}
	writer := serve.NewAnswerWriter(w, r, stallTime, h.Log)
	if a.asked.Watch {
		return h.beginWatch(writer, r, a, page)
	}
	defer page.release()
	return nil, h.serveList(writer, r, a, page)
}

// serveList writes a list. If it returns a reason, it has written nothing.
func (h *Handler) serveList(w *serve.AnswerWriter, r *http.Request, a *answer, page *body) reason.Reason {
	if why := mayAnswer(a, h.conditions(a)); why != reason.None {
		return why
	}
	// The client may take minutes to read the answer. Meanwhile the body keeps its own objects in
	// memory, which are counted, but not the rest of the state.
	revision := a.snapshot.Revision
	a.snapshot, a.collection = snapshot.Snapshot{}, nil
	record := observe.RecordOf(r.Context())
	record.SetMemoryAnswer(observe.MemoryAnswer{
		Representation: a.representation, Revision: revision, Items: len(page.objects), Bytes: page.size,
	})
	kubehttp.SetCacheHit(w.Header(), a.semantics, h.Unreachable())
	defer w.Finish()
	_, span := observe.StartStep(r.Context(), observe.SpanWrite)
	defer span.End()
	h.writePage(w, a.asked, page)
	return reason.None
}

// audit records an answer from memory in the audit log, if there is one. If it returns a reason, the request must be
// forwarded. It checks the conditions first, so that the log has no request that is forwarded in the end. They are
// checked once more after it, since it may wait.
func (h *Handler) audit(r *http.Request, who *caller, a *answer, page *body) reason.Reason {
	if h.AuditLog == nil {
		return reason.None
	}
	err := h.findUsers(r.Context(), who, a)
	if err == nil {
		if why := mayAnswer(a, h.conditions(a)); why != reason.None {
			return why
		}
		err = h.AuditLog.Write(r, a.asked, a.user, observe.RecordOf(r.Context()).ReceivedAt(), observe.AuditedAnswer{
			ID: page.auditID, Semantics: a.semantics, Representation: a.representation,
			Revision: a.snapshot.Revision, Items: len(page.objects), Impersonated: a.impersonated,
		})
	}
	if err != nil {
		h.LogLimiter.Do(func() { h.Log.Warn("an answer from memory could not be audited", "error", err) })
		return reason.Audit
	}
	return reason.None
}

// findUsers sets in a the user who the caller is, and the user whom the caller impersonates.
func (h *Handler) findUsers(ctx context.Context, who *caller, a *answer) (err error) {
	if verified := who.Identity.Impersonated(); verified != nil {
		a.user = verified
		return nil
	}
	impersonator := who.Caller
	impersonator.Identity = who.Identity.Impersonator()
	if a.user, err = h.WhoAmI.User(ctx, &impersonator); err == nil && who.Identity.Named() != nil {
		a.impersonated, err = h.WhoAmI.User(ctx, &who.Caller)
	}
	return err
}

// conditions returns the present conditions of an answer. It does not wait.
func (h *Handler) conditions(a *answer) *conditions {
	now := time.Now()
	current := &conditions{
		at:      now,
		memory:  a.collection.Validity(),
		allowed: h.Authorizer.ValidFor(&a.right, now) > 0,
	}
	current.entry, current.unknown = h.Cluster.Lookup(resourceOf(a.asked))
	return current
}
