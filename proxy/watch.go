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

// watchStream is the answer to one watch. There may be thousands of idle ones, so it keeps nothing of the decision that
// it no longer needs.
type watchStream struct {
	observe.CountingWriter
	handler *Handler
	request *http.Request
	control *http.ResponseController
	finish  func() // ends the answer, once something was written
	span    trace.Span
	form    *watch.Form
	page    *body // the state with which the watch begins; nil once it was written
	watcher *watch.Watcher

	initial    bool // the watch begins with the state
	bookmarks  bool // the client wants bookmarks
	compressed bool

	events       int // the number of events that were written
	uncompressed int // their bytes before compression
	served       observe.MemoryAnswer
	err          error // the error of writing: the client has gone, or does not read
	end          watch.Ending
}

const (
	// leastTimeout is the shortest time for which a watch lasts if its client names none; it lasts up to twice
	// as long. It is the default of kube-apiserver's --min-request-timeout.
	leastTimeout = 30 * time.Minute
	// watchWait is the longest time for which a watch waits for the revision that it names. kube-apiserver's own
	// cache waits as long (storage/cacher, blockTimeout).
	watchWait = 3 * time.Second
)

// batches are reused: a watch has one only while it writes.
var batches = sync.Pool{New: func() any { return new(watch.Batch) }}

// watchable returns None if a watch whose state was found can be answered from memory, else the reason.
func (h *Handler) watchable(a *answer) reason.Reason {
	form := a.snapshot.WatchForm()
	switch {
	case form == nil:
		return reason.Form
	case form.InitialEnd == nil && (a.semantics != policy.After || a.asked.WatchOptions.SendInitialEvents != ""):
		return reason.Watch // kube-apiserver has no streaming lists
	case h.Draining():
		return reason.Watch
	}
	return reason.None
}

// beginWatch begins to answer a watch from memory. The stream that it returns must be served. If it
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
	resource, entry := resourceOf(asked), a.entry // the watcher keeps Defined, which must not hold the answer
	s.watcher = a.snapshot.Watch(a.query, watch.Options{
		After:     a.after,
		Bookmarks: s.bookmarks,
		Timeout:   timeLeft(r.Context(), asked.WatchOptions.Timeout),
		Defined:   func() bool { return h.Cluster.IsCurrent(resource, entry) },
	})
	if s.watcher == nil { // the history is forgotten, or the state was lost meanwhile
		return nil, cmp.Or(a.collection.WhyNotFollow(a.after, true), reason.Warming)
	}
	if why := mayAnswer(a, h.conditions(a)); why != reason.None {
		return nil, why
	}
	s.end = watch.EndGone // unless serve finds another reason
	s.served = observe.MemoryAnswer{
		Representation: a.representation, Revision: a.snapshot.Revision, Items: len(page.objects),
	}
	record := observe.RecordOf(r.Context())
	kubehttp.SetCacheHit(w.Header(), a.semantics, h.Unreachable())
	record.SetMemoryAnswer(s.served)
	setHeaders(w.Header(), page.auditID, form.Envelope, form.ContentType)
	if s.compressed {
		setCompressed(w.Header())
	}
	_, s.span = observe.StartStep(r.Context(), observe.SpanWatch)
	return s, reason.None
}

// timeLeft returns the time for which a watch still lasts. timeout is the one that its client has named, or 0. It began
// when the request came.
func timeLeft(ctx context.Context, timeout time.Duration) time.Duration {
	if timeout == 0 {
		return leastTimeout + rand.N(leastTimeout) // #nosec G404 -- no secret
	}
	return max(timeout-time.Since(observe.RecordOf(ctx).ReceivedAt()), 1)
}

// serve writes the state and the events until the watch ends. It waits most of the time, so respond calls it when
// handle has returned, and the stack for the decision is free again.
func (s *watchStream) serve() {
	defer s.close()
	defer s.finish()
	s.ResponseWriter.WriteHeader(http.StatusOK)
	s.flush() // the header, before any event
	end := s.writeState()
	if end == "" {
		end = s.writeChanges()
	}
	s.end = s.watcher.AwaitEnd(s.request.Context(), end)
	s.report()
}

// writeState writes the state, if the watch begins with it, and lets go of its objects. If the watch must end before,
// it returns the ending.
func (s *watchStream) writeState() (end watch.Ending) {
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
// state must be valid all that time. Once it is invalid, writeInitial returns the ending. The answer, and the gzip
// member, then ends between two events, as kube-apiserver's does.
func (s *watchStream) writeInitial() (end watch.Ending) {
	out := s.handler.writers.get(&s.CountingWriter, s.page.size)
	defer out.release()
	var last []byte
	if s.bookmarks {
		last = s.form.InitialEnd.AppendTo(nil, s.served.Revision)
	}
	mayGoOn := func() bool { end = s.interrupted(); return end == "" }
	if s.compressed {
		// Each segment is flushed before the check for the next one. So once the check fails, only the end of the
		// gzip member follows.
		begun := false
		flushAndCheck := func() bool {
			if begun { // at first there is only the member's header
				s.err = out.Flush()
			}
			begun = true
			return mayGoOn()
		}
		var size uint32
		s.events, size, s.err = s.handler.Compressor.WriteEvents(
			out.Writer, s.form.Envelope, s.page.objects, last, flushAndCheck)
		s.uncompressed = int(size)
		if s.err == nil {
			s.err = out.Flush()
		}
	} else {
		s.events, s.err = s.writeEvents(out.Writer, last, mayGoOn)
		s.uncompressed = int(s.Bytes)
	}
	if s.err == nil && end == "" && s.bookmarks {
		s.events++
	}
	s.flush()
	return end
}

// writeEvents writes the objects of the state as events, and the last event. It calls mayGoOn before it
// hands any to the connection, and leaves out the rest if that returns false. It returns the number of
// objects that were written.
func (s *watchStream) writeEvents(out *bufio.Writer, last []byte, mayGoOn func() bool) (written int, err error) {
	var head []byte
	for i, o := range s.page.objects {
		var skip int
		head, skip = s.form.Envelope.AppendEventHead(head[:0], wire.Added, len(o.Bytes))
		object, tail := o.Bytes[skip:], s.form.Envelope.EventEnd()
		size := len(head) + len(object) + len(tail)
		if size > out.Available() {
			if !mayGoOn() {
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
	if !mayGoOn() {
		return written, nil
	}
	_, _ = out.Write(last)
	return len(s.page.objects), out.Flush()
}

// interrupted returns the ending if no more initial events may be written, else "".
func (s *watchStream) interrupted() watch.Ending {
	if s.err != nil {
		return watch.EndGone
	}
	return s.watcher.Interrupted(s.request.Context())
}

// writeChanges writes events until the watch ends, and returns the ending.
func (s *watchStream) writeChanges() watch.Ending {
	for s.err == nil {
		more, end := s.writeNext()
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

// writeNext writes the next events, if there are any. It reports whether there are more, and returns the ending if the
// watch ends.
func (s *watchStream) writeNext() (more bool, end watch.Ending) {
	b := batches.Get().(*watch.Batch)
	defer func() {
		b.Reset()
		batches.Put(b)
	}()
	if end = s.watcher.Take(s.request.Context(), b); b.Events > 0 {
		s.writeBatch(b)
	}
	return b.More, end
}

// writeBatch writes events. They are flushed if no others follow at once. With gzip they are stored uncompressed:
// to compress them again for each client would cost more than it saves.
func (s *watchStream) writeBatch(b *watch.Batch) {
	s.uncompressed += b.Size()
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

// report records the number of events and bytes, and the ending.
func (s *watchStream) report() {
	s.served.Items, s.served.Bytes = s.events, s.uncompressed
	observe.RecordOf(s.request.Context()).SetMemoryAnswer(s.served)
	s.span.SetAttributes(observe.WatchEnd(s.events, string(s.end))...)
}

// flush sends the events that were written.
func (s *watchStream) flush() {
	if s.err == nil {
		s.err = s.control.Flush()
	}
}

// release lets go of the state with which the watch begins.
func (s *watchStream) release() {
	if s.page != nil {
		s.page.release()
		s.page = nil
	}
}

// close releases the state, and closes the watcher and the span.
func (s *watchStream) close() {
	s.release()
	if s.watcher != nil {
		s.watcher.Close(s.end)
	}
	if s.span != nil {
		s.span.End()
	}
}
