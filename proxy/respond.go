package proxy

import (
	"net/http"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/forward"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/proxy/serve"
)

// stallTime is the time after which listproxy breaks off an answer whose client reads nothing, since the unread bytes occupy
// memory. Forwarded streams (watches, logs, execs) have no such limit.
const stallTime = time.Minute

// respond is the last handler of the chain. It answers a request from memory or forwards it.
func (h *Handler) respond(w http.ResponseWriter, r *http.Request) {
	// A watch may run for hours. It is served here, after handle has returned and its stack is free.
	if watch := h.handle(w, r); watch != nil {
		watch.serve()
	}
}

// handle answers a request. For a watch from memory, it returns the stream, which the caller must serve.
func (h *Handler) handle(w http.ResponseWriter, r *http.Request) *watchStream {
	record := observe.RecordOf(r.Context())
	d, why := h.decide(r) // why is the reason to forward the request
	if d.releaseSmallForward != nil {
		defer d.releaseSmallForward()
	}
	record.SetDecision(d.asked, d.Semantics, why)
	// A request needs a seat to be answered, and decide may have given the seat up to wait.
	if err := d.caller.seat.Resume(r.Context()); err != nil {
		h.refuse(w, r, err)
		return nil
	}
	if why == reason.None {
		var watch *watchStream
		watch, why = h.answerFromMemory(w, r, d)
		if why == reason.None {
			return watch
		}
		d.dropState()
		record.SetDecision(d.asked, d.Semantics, why)
	}
	h.forward(w, r, d, why)
	return nil
}

// forward forwards a request, for the reason why.
func (h *Handler) forward(w http.ResponseWriter, r *http.Request, d *decision, why reason.Reason) {
	w.Header().Set(kubehttp.CacheStatusHeader, kubehttp.CacheForwarded(why))
	if d.answerProvesRight {
		w = &headerHook{ResponseWriter: w, beforeHeader: h.listAnswerHook(r, d)}
	}
	if !kubehttp.RequestOf(r).LongRunning {
		bounded := serve.NewAnswerWriter(w, r, stallTime, h.Log)
		defer bounded.Finish()
		w = bounded
	}
	h.Forward.ServeAs(w, r, d.caller.Identity, h.bodyReserve(r, d.caller))
}

// bodyReserve returns the function with which the forwarder reserves memory for the body of a request. The forwarder keeps the
// body in memory, so that it can send the body again if the connection ends. bodyReserve returns nil if the body must not be
// kept: the body of a long-running request may never end, and a caller whom kube-apiserver has not accepted yet gets no memory.
func (h *Handler) bodyReserve(r *http.Request, who *caller) forward.Reserve {
	if !who.Accepted || kubehttp.RequestOf(r).LongRunning {
		return nil
	}
	return func(bytes int64) (release func(), ok bool) {
		room, ok := h.Limits.TryAcquireBody(who.Flow, bytes)
		return room.Release, ok
	}
}

// answerFromMemory answers a request from memory. Its results mean:
//
//	stream    whyForward   the request
//	nil       a reason     must be forwarded: nothing was written
//	not nil   None         is a watch that has begun: the stream must be served
//	nil       None         is done: it was answered, or refused with 429
func (h *Handler) answerFromMemory(
	w http.ResponseWriter, r *http.Request, d *decision,
) (stream *watchStream, whyForward reason.Reason) {
	if d.asked.Watch {
		if why := h.whyNotWatch(d); why != reason.None {
			return nil, why
		}
	}
	b, err := newBody(d, kubehttp.AuditID(r))
	if err != nil {
		return nil, reason.Representation
	}
	defer func() {
		if stream == nil { // a stream releases its body itself
			b.release()
		}
	}()
	b.room, err = h.Limits.AcquireAnswer(r.Context(), d.caller.Flow, b.size)
	if err != nil {
		h.refuse(w, r, err)
		return nil, reason.None
	}
	// The right may have become invalid while the request waited for the state and for room.
	if why := h.review(r.Context(), d); why != reason.None {
		return nil, why
	}
	if why := h.audit(r, d, b); why != reason.None {
		return nil, why
	}
	writer := serve.NewAnswerWriter(w, r, stallTime, h.Log)
	if d.asked.Watch {
		return h.beginWatch(writer, r, d, b)
	}
	return nil, h.serveList(writer, r, d, b)
}

// serveList writes a list. If it returns a reason other than None, it has written nothing.
func (h *Handler) serveList(w *serve.AnswerWriter, r *http.Request, d *decision, b *body) reason.Reason {
	if why := lastCheck(d, h.currentConditions(d)); why != reason.None {
		return why
	}
	record := observe.RecordOf(r.Context())
	record.SetMemoryAnswer(observe.MemoryAnswer{
		Representation: d.key.Representation, Revision: d.state.Revision, Items: len(b.objects), Bytes: b.size,
	})
	// The client may take minutes to read the answer. Meanwhile only the body's objects stay in memory, and
	// --max-inflight-bytes bounds them.
	d.dropState()
	kubehttp.SetCacheHit(w.Header(), d.Semantics, h.Unreachable())
	defer w.Finish()
	_, span := observe.StartStep(r.Context(), observe.SpanWrite)
	defer span.End()
	h.writeList(w, d.asked.Gzip, b)
	return reason.None
}
