package proxy

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/audit"
	"github.com/listproxy/listproxy/proxy/forward"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/proxy/serve"
	"github.com/listproxy/listproxy/snapshot"
)

// stallTime is how long a client may read nothing of an answer before it is cut off, unless it is a
// forwarded stream: until then what is read is held in memory.
const stallTime = time.Minute

// respond is the last handler of the chain.
func (h *Handler) respond(w http.ResponseWriter, r *http.Request) {
	if s := h.answer(w, r); s != nil {
		s.serve()
	}
}

// answer decides, and answers from memory or forwards. A watch that is answered from memory is only
// begun; it must be served.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request) *watchStream {
	record, who := observe.RecordOf(r.Context()), callerOf(r.Context())
	list, found, why := h.decide(r, who)
	record.Decided(list, found.semantics, why)
	if why == reason.None {
		var stream *watchStream
		if stream, why = h.fromMemory(w, r, who, list, &found); why == reason.None {
			return stream
		}
		found = answer{semantics: found.semantics}
		record.Decided(list, found.semantics, why)
	}
	kubehttp.SetCacheForwarded(w.Header(), why)
	if found.forwarded != nil {
		defer found.forwarded()
	}
	if list.Watch {
		watch := &forwardedWatch{ResponseWriter: w}
		defer func() {
			if watch.expired {
				h.Collections.Expired(schema.GroupVersionResource{Group: list.Group, Version: list.Version, Resource: list.Resource})
			}
		}()
		w = watch
	}
	if !kubehttp.Of(r).LongRunning {
		short := serve.NewAnswerWriter(w, r, stallTime, h.Log)
		defer short.Finish()
		w = short
	}
	h.Forward.ServeAs(w, r, who.identity, h.keep(r, who))
	return nil
}

// keep gives room for the bodies that a caller sends; none to one whose requests go over HTTP/1.1,
// where no other request ends their connection, and who may be anybody. A stream has no whole body.
func (h *Handler) keep(r *http.Request, who caller) forward.Keep {
	if !who.accepted() || kubehttp.Of(r).LongRunning {
		return nil
	}
	return func(bytes int64) (free func(), ok bool) {
		room, ok := h.Limits.Body(who.flow, bytes)
		return room.Release, ok
	}
}

// fromMemory answers from memory: it writes a list, or begins a watch, which must be served. If it
// returns a reason, it has written nothing. If it returns neither, the request was answered or refused.
func (h *Handler) fromMemory(w http.ResponseWriter, r *http.Request, who caller, list policy.Request, a *answer) (
	*watchStream, reason.Reason,
) {
	if list.Watch {
		if why := h.watchable(list, *a); why != reason.None {
			return nil, why
		}
	}
	page := newBody(*a)
	page.auditID = kubehttp.AuditID(r)
	if page.unfit {
		page.release()
		return nil, reason.Representation
	}
	var err error
	if page.room, err = h.Limits.Answer(r.Context(), who.flow, page.size); err != nil {
		page.release()
		h.refuse(w, r, err)
		return nil, reason.None
	}
	// To wait for the state and for room may have taken longer than the yes is valid.
	rights, why := h.review(r.Context(), who, attributesFor(list), a.rights)
	if why == reason.None {
		a.rights = rights
		why = h.audit(r, who, list, a, page)
	}
	if why != reason.None {
		page.release()
		return nil, why
	}
	answer := serve.NewAnswerWriter(w, r, stallTime, h.Log)
	if list.Watch {
		return h.beginWatch(answer, r, list, a, page)
	}
	defer page.release()
	return nil, h.serve(answer, r, list, a, page)
}

// serve writes a list. If it returns a reason, it has written nothing.
func (h *Handler) serve(
	w *serve.AnswerWriter, r *http.Request, list policy.Request, a *answer, page *body,
) reason.Reason {
	if why := mayAnswer(a.entry, a.snapshot, h.conditions(list, *a)); why != reason.None {
		return why
	}
	// The client may take minutes to read the answer. Meanwhile the body keeps its own objects in
	// memory, which are counted, but not the rest of the state that they come from.
	revision := a.snapshot.Revision
	a.snapshot, a.collection = snapshot.Snapshot{}, nil
	record := observe.RecordOf(r.Context())
	record.Serving(observe.Served{
		Representation: a.representation, Revision: revision, Items: len(page.objects), Bytes: page.size,
	})
	kubehttp.SetCacheHit(w.Header(), a.semantics)
	defer w.Finish()
	_, span := observe.Step(r.Context(), observe.SpanWrite)
	defer span.End()
	h.writePage(w, list, page)
	return reason.None
}

// audit writes into the audit log, if there is one, that an answer comes from memory. If it returns a
// reason, the answer must not. It sets the caller's user in a. Since it may wait, what it looks at
// before is looked at once more before the answer is written.
func (h *Handler) audit(r *http.Request, who caller, list policy.Request, a *answer, page *body) reason.Reason {
	if h.AuditLog == nil {
		return reason.None
	}
	err := h.findUser(r.Context(), who, a)
	if err == nil {
		if why := mayAnswer(a.entry, a.snapshot, h.conditions(list, *a)); why != reason.None {
			return why
		}
		err = h.AuditLog.Write(r, list, a.user, observe.RecordOf(r.Context()).Begun(), audit.Answer{
			ID: page.auditID, Semantics: a.semantics, Representation: a.representation,
			Revision: a.snapshot.Revision, Items: len(page.objects),
		})
	}
	if err != nil {
		h.rarely("an answer from memory could not be audited", err)
		return reason.Audit
	}
	return reason.None
}

// findUser sets the caller's user in a, if it is not known yet.
func (h *Handler) findUser(ctx context.Context, who caller, a *answer) (err error) {
	if impersonated := who.identity.Impersonated(); impersonated != nil {
		a.user = impersonated
	} else if a.user == nil {
		a.user, err = h.WhoAmI.User(ctx, who.asked())
	}
	return err
}

// conditions returns what an answer depends on, as it is now. It waits for nothing.
func (h *Handler) conditions(list policy.Request, a answer) conditions {
	now := time.Now()
	on := conditions{
		at:      now,
		memory:  a.collection.Validity(),
		allowed: h.left(a.rights, now) > 0,
	}
	on.entry, on.unknown = h.Cluster.Lookup(resourceOf(list))
	return on
}
