package proxy

import (
	"bufio"
	"cmp"
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/proxy/serve"
	"github.com/listproxy/listproxy/snapshot/gzip"
	"github.com/listproxy/listproxy/snapshot/watch"
	"github.com/listproxy/listproxy/snapshot/wire"
)

const (
	// leastTimeout is the time for which a watch lasts at least if its client does not say; it lasts up to twice
	// as long. It is the default of kube-apiserver's --min-request-timeout.
	leastTimeout = 30 * time.Minute
	// watchWait is the time for which a watch waits until memory has what it asks for. kube-apiserver's own
	// cache waits as long (storage/cacher, blockTimeout).
	watchWait = 3 * time.Second
)

// batches are reused: a watch has one only while it writes.
var batches = sync.Pool{New: func() any { return new(watch.Batch) }}

// watchStream is the answer to one watch. There may be thousands that are told nothing: it keeps
// nothing of the decision that it does not need any more.
type watchStream struct {
	observe.CountingWriter
	handler *Handler
	request *http.Request
	control *http.ResponseController
	finish  func() // of the answer, once something was written
	span    trace.Span
	form    *watch.Form
	page    *body // the state that the watch begins with; nil once it was written
	watcher *watch.Watcher

	initial    bool // it begins with the state
	bookmarks  bool // the client wants them
	compressed bool

	events, plain int // written: events, and their bytes before compression
	served        observe.Served
	err           error // of writing: the client has gone, or does not read
	end           watch.Ending
}

// watchable returns the reason if a watch cannot be answered from memory, though the state is there.
func (h *Handler) watchable(a *answer) reason.Reason {
	form := a.snapshot.WatchForm()
	switch {
	case form == nil:
		return reason.Form
	case form.InitialEnd == nil && (a.semantics != policy.After || a.asked.WatchOptions.SendInitialEvents != ""):
		return reason.Watch // kube-apiserver has no streaming lists
	case h.Draining != nil && h.Draining():
		return reason.Watch
	}
	return reason.None
}

// beginWatch begins to answer a watch from memory: the watch that it returns must be served. If it
// returns a reason instead, it has written nothing. It takes over page.
func (h *Handler) beginWatch(
	w *serve.AnswerWriter, r *http.Request, a *answer, page *body,
) (_ *watchStream, why reason.Reason) {
	form, asked := a.snapshot.WatchForm(), a.asked
	s := &watchStream{
		handler: h, request: r, control: http.NewResponseController(w), form: form, page: page,
		initial: a.initial, bookmarks: asked.WatchOptions.Bookmarks,
	}
	s.ResponseWriter = w
	s.finish = w.Finish
	defer func() {
		if why != reason.None {
			s.close()
		}
	}()
	// The upstream compresses such a watch up to its end.
	s.compressed = form.Compressed && asked.Gzip && s.initial && s.bookmarks
	resource, entry := resourceOf(asked), a.entry // the broadcaster keeps Defined, so it must not hold the answer
	s.watcher = a.snapshot.Watch(a.query, watch.Options{
		After:     a.after,
		Bookmarks: s.bookmarks,
		Timeout:   timeLeft(r.Context(), asked.WatchOptions.Timeout),
		Defined:   func() bool { return h.Cluster.Stands(resource, entry) },
	})
	if s.watcher == nil { // its history is forgotten, or the span was lost meanwhile
		return nil, cmp.Or(a.collection.NoFollow(a.after, true), reason.Warming)
	}
	if why := mayAnswer(a, h.conditions(a)); why != reason.None {
		return nil, why
	}
	s.end = watch.EndGone // unless serve finds another reason
	s.served = observe.Served{
		Representation: a.representation, Revision: a.snapshot.Revision, Items: len(page.objects),
	}
	record := observe.RecordOf(r.Context())
	kubehttp.SetCacheHit(w.Header(), a.semantics, h.unreachable())
	record.Serving(s.served)
	setHeaders(w.Header(), page.auditID, form.Envelope, form.ContentType)
	if s.compressed {
		setCompressed(w.Header())
	}
	_, s.span = observe.Step(r.Context(), observe.SpanWatch)
	return s, reason.None
}

// timeLeft is the time for which a watch with that timeout, 0 if its client did not say, still lasts: for the
// client it began when its request came.
func timeLeft(ctx context.Context, timeout time.Duration) time.Duration {
	if timeout == 0 {
		return leastTimeout + rand.N(leastTimeout) // #nosec G404 -- no secret
	}
	return max(timeout-time.Since(observe.RecordOf(ctx).Begun()), 1)
}

// serve writes what the watch is told until it ends. It waits most of the time, so respond calls it when
// handle has returned: the stack that deciding needs can be given back.
func (s *watchStream) serve() {
	defer s.close()
	defer s.finish()
	s.ResponseWriter.WriteHeader(http.StatusOK)
	s.flush() // the header, before any event
	end := s.tellState()
	if end == "" {
		end = s.follow()
	}
	s.end = s.watcher.AwaitEnd(s.request.Context(), end)
	s.report()
}

// tellState writes the state, if the watch begins with one, and lets go of its objects. If the
// watch must end before, it returns why.
func (s *watchStream) tellState() (end watch.Ending) {
	if s.initial {
		if end = s.writeInitial(); end == "" {
			s.watcher.InitialSent()
		}
	}
	s.release()
	return end
}

// writeInitial writes the state, and the bookmark that ends it if the client wants bookmarks. With
// gzip, clients that get the same objects share the compressed segments. A client may read slowly, and the
// state must be valid all that time. If it is not any more, writeInitial returns why the watch must end; what
// was written, and the gzip member, then ends between two events, as kube-apiserver's does.
func (s *watchStream) writeInitial() (end watch.Ending) {
	out := s.handler.writers.get(&s.CountingWriter, s.page.size)
	defer out.release()
	var last []byte
	if s.bookmarks {
		last = s.form.InitialEnd.AppendTo(nil, s.served.Revision)
	}
	may := func() bool { end = s.interrupted(); return end == "" }
	if s.compressed {
		// Before may is asked again, what it has allowed is flushed. So once it says no, only the end of the gzip
		// member follows.
		begun := false
		next := func() bool {
			if begun { // at first there is only the member's header
				s.err = out.Flush()
			}
			begun = true
			return may()
		}
		var plain uint32
		s.events, plain, s.err = s.handler.Compressor.WriteEvents(out.Writer, s.form.Envelope, s.page.objects, last, next)
		s.plain = int(plain)
		if s.err == nil {
			s.err = out.Flush()
		}
	} else {
		s.events, s.err = s.writeEvents(out.Writer, last, may)
		s.plain = int(s.Bytes)
	}
	if s.err == nil && end == "" && s.bookmarks {
		s.events++
	}
	s.flush()
	return end
}

// writeEvents writes the objects of the state as events, and the last event. It calls may before it
// hands any to the connection, and if it may not go on, the rest is left out. It returns how many
// objects it has written.
func (s *watchStream) writeEvents(out *bufio.Writer, last []byte, may func() bool) (written int, err error) {
	var head []byte
	for i, o := range s.page.objects {
		var skip int
		head, skip = s.form.Envelope.AppendEventHead(head[:0], wire.Added, len(o.Bytes))
		object, tail := o.Bytes[skip:], s.form.Envelope.EventEnd()
		size := len(head) + len(object) + len(tail)
		if size > out.Available() {
			if !may() {
				return written, nil
			}
			if err := out.Flush(); err != nil {
				return written, err
			}
			written = i
		}
		_, _ = out.Write(head) // Flush returns the error
		_, _ = out.Write(object)
		_, _ = out.WriteString(tail)
		if size > out.Size() { // most of it is written
			if err := out.Flush(); err != nil {
				return written, err
			}
			written = i + 1
		}
	}
	if !may() {
		return written, nil
	}
	_, _ = out.Write(last)
	return len(s.page.objects), out.Flush()
}

// interrupted returns the reason why no more initial events may be written; "" if they may.
func (s *watchStream) interrupted() watch.Ending {
	if s.err != nil {
		return watch.EndGone
	}
	return s.watcher.Interrupted(s.request.Context())
}

// follow writes events until the watch ends, and returns why it does.
func (s *watchStream) follow() watch.Ending {
	for s.err == nil {
		more, end := s.tellNext()
		if end != "" {
			return end
		}
		if !more {
			s.flush()
			s.watcher.Wait(s.request.Context())
		}
	}
	return watch.EndGone
}

// tellNext writes what there is to tell now, and returns whether there is more, or why the watch
// ends.
func (s *watchStream) tellNext() (more bool, end watch.Ending) {
	b := batches.Get().(*watch.Batch)
	defer func() {
		b.Reset()
		batches.Put(b)
	}()
	if end = s.watcher.Take(s.request.Context(), b); b.Events > 0 {
		s.tell(b)
	}
	return b.More, end
}

// tell writes events, to be flushed if no others follow at once. With gzip they are not compressed:
// doing that again for each client would cost more than it saves.
func (s *watchStream) tell(b *watch.Batch) {
	s.plain += b.Size()
	s.events += b.Events
	if s.compressed {
		s.err = gzip.WriteStored(s, b.Parts)
	} else {
		for part := range b.Parts {
			if _, s.err = s.Write(part); s.err != nil {
				break
			}
		}
	}
}

// report says at the end what was told.
func (s *watchStream) report() {
	s.served.Items, s.served.Bytes = s.events, s.plain
	observe.RecordOf(s.request.Context()).Serving(s.served)
	s.span.SetAttributes(observe.WatchEnd(s.events, string(s.end))...)
}

// flush sends what was written.
func (s *watchStream) flush() {
	if s.err == nil {
		s.err = s.control.Flush()
	}
}

// release lets go of the state that the watch begins with.
func (s *watchStream) release() {
	if s.page != nil {
		s.page.release()
		s.page = nil
	}
}

// close gives back what the watch holds.
func (s *watchStream) close() {
	s.release()
	if s.watcher != nil {
		s.watcher.Close(s.end)
	}
	if s.span != nil {
		s.span.End()
	}
}
