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

// stallTime is the time after which listproxy closes the connection of a client that reads nothing of its answer, since
// the unread bytes occupy memory. Forwarded streams have no such limit.
const stallTime = time.Minute

// respond is the last handler of the chain. It decides, and answers the request from memory or forwards it.
func (h *Handler) respond(w http.ResponseWriter, r *http.Request) {
	// A watch is served here, where the stack for the decision is free again.
	if watch := h.handle(w, r); watch != nil {
		watch.serve()
	}
}

// handle answers a request. If it is a watch from memory, handle only begins it: the caller must serve the stream.
func (h *Handler) handle(w http.ResponseWriter, r *http.Request) *watchStream {
	record := observe.RecordOf(r.Context())
	who := callerOf(r.Context())
	a, why := h.decide(r, who)
	if a.afterForward != nil { // only if the request is forwarded
		defer a.afterForward()
	}
	record.SetDecision(a.asked, a.semantics, why)
	// Others may have taken the request's seat while the decision waited.
	if err := who.seat.Resume(r.Context()); err != nil {
		h.refuse(w, r, err)
		return nil
	}
	if why == reason.None {
		var watch *watchStream
		watch, why = h.answerFromMemory(w, r, who, a)
		if why == reason.None {
			return watch
		}
		a = a.withoutState()
		record.SetDecision(a.asked, a.semantics, why)
	}
	h.forward(w, r, who, a, why)
	return nil
}

// forward forwards a request, for the reason why.
func (h *Handler) forward(w http.ResponseWriter, r *http.Request, who *caller, a *answer, why reason.Reason) {
	kubehttp.SetCacheForwarded(w.Header(), why)
	if a.provesRight {
		w = &forwardedList{ResponseWriter: w, onAnswer: h.onListAnswer(r, who, a)}
	}
	if !kubehttp.RequestOf(r).LongRunning {
		bounded := serve.NewAnswerWriter(w, r, stallTime, h.Log)
		defer bounded.Finish()
		w = bounded
	}
	h.Forward.ServeAs(w, r, who.Identity, h.bodyRoom(r, who))
}

// bodyRoom returns a function that reserves room to keep the body of a request, so that the request can be sent again if its
// connection ends. It returns nil if the body must not be kept. That is so for two kinds of requests: the body of a
// long-running request may never end, and requests of callers who are not accepted go over HTTP/1.1, where no other request
// ends their connection.
func (h *Handler) bodyRoom(r *http.Request, who *caller) forward.Reserve {
	if !who.Accepted || kubehttp.RequestOf(r).LongRunning {
		return nil
	}
	return func(bytes int64) (release func(), ok bool) {
		room, ok := h.Limits.TryAcquireBody(who.Flow, bytes)
		return room.Release, ok
	}
}

// answerFromMemory answers a request from memory, and returns one of:
//
//   - the stream of a watch, which must be served
//   - the reason to forward the request: then it has written nothing
//   - neither: then it has written a list, or refused the request
func (h *Handler) answerFromMemory(
	w http.ResponseWriter, r *http.Request, who *caller, a *answer,
) (*watchStream, reason.Reason) {
	if a.asked.Watch {
		if why := h.whyNotWatch(a); why != reason.None {
			return nil, why
		}
	}
	b := newBody(a, kubehttp.AuditID(r))
	if b.unindentable {
		b.release()
		return nil, reason.Representation
	}
	var err error
	b.room, err = h.Limits.AcquireAnswer(r.Context(), who.Flow, b.size)
	if err != nil {
		b.release()
		h.refuse(w, r, err)
		return nil, reason.None
	}
	// The right may have become invalid while the request waited for the state and for room.
	why := h.review(r.Context(), who, a)
	if why == reason.None {
		why = h.audit(r, who, a, b)
	}
	if why != reason.None {
		b.release()
		return nil, why
	}
	writer := serve.NewAnswerWriter(w, r, stallTime, h.Log)
	if a.asked.Watch {
		return h.beginWatch(writer, r, a, b)
	}
	defer b.release()
	return nil, h.serveList(writer, r, a, b)
}

// serveList writes a list. If it returns a reason other than None, it has written nothing.
func (h *Handler) serveList(w *serve.AnswerWriter, r *http.Request, a *answer, b *body) reason.Reason {
	if why := lastCheck(a, h.conditions(a)); why != reason.None {
		return why
	}
	// The client may take minutes to read the answer. Meanwhile only the objects of the body stay in memory, which
	// --max-inflight-bytes bounds, and not the rest of the state.
	revision := a.snapshot.Revision
	a.snapshot = snapshot.Snapshot{}
	a.collection = nil
	record := observe.RecordOf(r.Context())
	record.SetMemoryAnswer(observe.MemoryAnswer{
		Representation: a.key.Representation, Revision: revision, Items: len(b.objects), Bytes: b.size,
	})
	kubehttp.SetCacheHit(w.Header(), a.semantics, h.Unreachable())
	defer w.Finish()
	_, span := observe.StartStep(r.Context(), observe.SpanWrite)
	defer span.End()
	h.writeList(w, a.asked.Gzip, b)
	return reason.None
}

// audit writes an answer from memory to the audit log, if there is one. If it returns a reason other than None, the request
// must be forwarded. It calls lastCheck before it writes, so that the log hardly ever has a request that is forwarded in the
// end. Since audit may wait, lastCheck must be called again afterwards.
func (h *Handler) audit(r *http.Request, who *caller, a *answer, b *body) reason.Reason {
	if h.AuditLog == nil {
		return reason.None
	}
	err := h.findUsers(r.Context(), who, a)
	if err == nil {
		if why := lastCheck(a, h.conditions(a)); why != reason.None {
			return why
		}
		err = h.AuditLog.Write(observe.AuditEvent{
			Request: r, Asked: a.asked, Caller: a.user, Received: observe.RecordOf(r.Context()).ReceivedAt(),
			ID: b.auditID, Semantics: a.semantics, Representation: a.key.Representation,
			Revision: a.snapshot.Revision, Items: len(b.objects), Impersonated: a.impersonated,
		})
	}
	if err != nil {
		h.LogLimiter.Do(func() { h.Log.Warn("an answer from memory could not be audited", "error", err) })
		return reason.Audit
	}
	return reason.None
}

// findUsers sets the caller's user in a, and the user whom the caller impersonates, if any.
func (h *Handler) findUsers(ctx context.Context, who *caller, a *answer) (err error) {
	if verified := who.Identity.VerifiedUser(); verified != nil {
		a.user = verified // such a caller cannot impersonate
		return nil
	}
	impersonator := who.Caller
	impersonator.Identity = who.Identity.Impersonator()
	a.user, err = h.WhoAmI.User(ctx, &impersonator)
	if err != nil || who.Identity.ImpersonatedUser() == nil {
		return err
	}
	a.impersonated, err = h.WhoAmI.User(ctx, &who.Caller)
	return err
}
