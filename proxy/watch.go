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

// watchStream is the answer to a watch. Thousands of watches may be idle, so a watchStream keeps nothing of the decision
// that it no longer needs.
type watchStream struct {
	// CountingWriter writes the answer's body.
	observe.CountingWriter
	handler *Handler
	request *http.Request
	control *http.ResponseController
	// finish ends the answer after the last write.
	finish func()
	span   trace.Span
	form   *watch.Form
	// state has the objects with which the watch begins. It is nil once they were written.
	state *body
	// watcher has the events after the state.
	watcher *watch.Watcher

	// initial reports whether the watch begins with the state.
	initial bool
	// bookmarks reports whether the client wants bookmarks.
	bookmarks bool
	// compressed reports whether the answer is compressed with gzip.
	compressed bool

	// events is the number of events that were written.
	events int
	// uncompressed is the number of bytes of these events before compression.
	uncompressed int
	// served describes the answer for the request's record.
	served observe.MemoryAnswer
	// err is the first error of a write: the client has left, or does not read.
	err error
	// ending is the reason why the watch must end; "" as long as it may go on.
	ending watch.Ending
}

const (
	// minWatchTimeout is the shortest time for which a watch lasts if its client names no timeout. The longest is twice that.
	// It is the default of kube-apiserver's --min-request-timeout.
	minWatchTimeout = 30 * time.Minute
	// revisionWait is the longest time for which a watch waits for its revision. kube-apiserver's cache waits as long
	// (storage/cacher, blockTimeout).
	revisionWait = 3 * time.Second
)

// batches keeps batches of events for reuse. A watch holds a batch only while it writes it.
var batches = sync.Pool{New: func() any { return new(watch.Batch) }}

// whyNotWatch returns the reason to forward a watch whose state was found in memory. It returns None if the watch can be
// answered from memory.
func (h *Handler) whyNotWatch(a *answer) reason.Reason {
	form := a.snapshot.WatchForm()
	needsStreamingLists := a.semantics != policy.After || a.asked.WatchOptions.SendInitialEvents != ""
	switch {
	case form == nil:
		return reason.Form
	case needsStreamingLists && form.InitialEndBookmark == nil: // kube-apiserver has no streaming lists
		return reason.Watch
	case h.Draining():
		return reason.Watch
	}
	return reason.None
}

// beginWatch begins to answer a watch from memory. It returns a stream, which must be served, or a reason to forward the
// watch: then it has written nothing. The stream releases state; if there is no stream, beginWatch has released it.
func (h *Handler) beginWatch(
	w *serve.AnswerWriter, r *http.Request, a *answer, state *body,
) (*watchStream, reason.Reason) {
	form := a.snapshot.WatchForm()
	options := a.asked.WatchOptions
	s := &watchStream{
		CountingWriter: observe.CountingWriter{ResponseWriter: w},
		handler:        h,
		request:        r,
		control:        http.NewResponseController(w),
		finish:         w.Finish,
		form:           form,
		state:          state,
		initial:        a.initial,
		bookmarks:      options.Bookmarks,
		// kube-apiserver compresses only a watch that begins with the state and has bookmarks, but then all of it.
		compressed: form.Compressed && a.asked.Gzip && a.initial && options.Bookmarks,
		served: observe.MemoryAnswer{
			Representation: a.key.Representation, Revision: a.snapshot.Revision, Items: len(state.objects),
		},
	}
	if why := s.follow(a); why != reason.None {
		s.close("") // the watch does not count
		return nil, why
	}
	kubehttp.SetCacheHit(w.Header(), a.semantics, h.Unreachable())
	setHeaders(w.Header(), state.auditID, form.Envelope.Headers, form.ContentType)
	if s.compressed {
		setGzipHeaders(w.Header())
	}
	observe.RecordOf(r.Context()).SetMemoryAnswer(s.served)
	_, s.span = observe.StartStep(r.Context(), observe.SpanWatch)
	return s, reason.None
}

// follow starts the watcher, which from then on collects the changes after a.after. It returns None if the answer may be
// written, otherwise the reason to forward the watch.
func (s *watchStream) follow(a *answer) reason.Reason {
	h := s.handler
	// The watcher keeps the function Defined for hours, so Defined must not refer to a, which holds the whole state.
	resource := resourceOf(a.asked)
	entry := a.entry
	s.watcher = a.snapshot.Watch(a.query, watch.Options{
		After:     a.after,
		Bookmarks: s.bookmarks,
		Timeout:   timeLeft(s.request.Context(), a.asked.WatchOptions.Timeout),
		Defined:   func() bool { return h.Cluster.IsCurrent(resource, entry) },
	})
	if s.watcher == nil { // the history no longer reaches back to a.after, or the state was lost meanwhile
		return cmp.Or(a.collection.WhyNotFollow(a.after), reason.Warming)
	}
	return lastCheck(a, h.conditions(a))
}

// timeLeft returns the time after which a watch must end. timeout is the time that the client has named, counted from the
// arrival of the request; 0 if the client has named none.
func timeLeft(ctx context.Context, timeout time.Duration) time.Duration {
	if timeout == 0 {
		return minWatchTimeout + rand.N(minWatchTimeout) // #nosec G404 -- no secret
	}
	return timeout - time.Since(observe.RecordOf(ctx).ReceivedAt())
}

// serve writes the state and the events until the watch ends, and closes the stream.
func (s *watchStream) serve() {
	defer func() { s.close(cmp.Or(s.ending, watch.EndGone)) }()
	defer s.finish()
	s.ResponseWriter.WriteHeader(http.StatusOK)
	s.flush() // clients wait for the header before the first event
	s.serveInitial()
	if s.ending == "" {
		s.serveChanges()
	}
	s.ending = s.watcher.AwaitEnd(s.request.Context(), s.ending)
	s.report()
}

// serveInitial writes the state, if the watch begins with it, and releases the state. If the watch must end before all of it
// was written, serveInitial sets the ending.
func (s *watchStream) serveInitial() {
	if s.initial {
		s.writeInitial()
		if s.ending == "" {
			s.watcher.InitialSent()
		}
	}
	s.release()
}

// writeInitial writes the state as events, and the bookmark at its end if the client wants bookmarks.
//
// A client may read slowly, and the state must be valid as long as objects are written. Once the state is invalid,
// writeInitial sets the ending. The answer, and the gzip member, then ends between two events, as kube-apiserver's does.
func (s *watchStream) writeInitial() {
	out := s.handler.writers.get(&s.CountingWriter, s.state.size)
	defer out.release()
	var lastEvent []byte
	if s.bookmarks {
		lastEvent = s.form.InitialEndBookmark.AppendTo(nil, s.served.Revision)
	}
	if s.compressed {
		s.writeInitialCompressed(out.Writer, lastEvent)
	} else {
		s.writeInitialPlain(out.Writer, lastEvent)
		s.uncompressed = int(s.Bytes)
	}
	if s.err == nil && s.ending == "" && s.bookmarks {
		s.events++
	}
	s.flush()
}

// writeInitialCompressed writes the objects of the state as events, and then lastEvent, with gzip. Clients that get the same
// objects share the compressed segments.
func (s *watchStream) writeInitialCompressed(out *bufio.Writer, lastEvent []byte) {
	// Each segment is flushed before the check for the next. So once the check fails, only the end of the gzip member
	// follows.
	begun := false
	flushAndCheck := func() bool {
		if begun { // at first the buffer has only the member's header
			s.err = out.Flush()
		}
		begun = true
		return s.checkInterrupted()
	}
	var size uint32
	s.events, size, s.err = s.handler.Compressor.WriteEvents(
		out, s.form.Envelope, s.state.objects, lastEvent, flushAndCheck)
	s.uncompressed = int(size)
	if s.err == nil {
		s.err = out.Flush()
	}
}

// writeInitialPlain writes the objects of the state as events, and then lastEvent. Before it passes anything on to the
// connection, it checks whether the watch is interrupted, and drops the rest if so.
func (s *watchStream) writeInitialPlain(out *bufio.Writer, lastEvent []byte) {
	var head []byte
	for i, o := range s.state.objects {
		var skip int // the number of the object's first bytes that are left out, since the head replaces them
		head, skip = s.form.Envelope.AppendEventHead(head[:0], wire.Added, len(o.Bytes))
		object, tail := o.Bytes[skip:], s.form.Envelope.EventEnd()
		size := len(head) + len(object) + len(tail)
		if size > out.Available() {
			if !s.checkInterrupted() {
				return
			}
			if s.err = out.Flush(); s.err != nil {
				return
			}
			s.events = i // the events before this one were flushed
		}
		_, _ = out.Write(head) // Flush returns the error
		_, _ = out.Write(object)
		_, _ = out.WriteString(tail)
		if size > out.Size() { // the event is larger than the buffer, so most of it was written already
			if s.err = out.Flush(); s.err != nil {
				return
			}
			s.events = i + 1
		}
	}
	if !s.checkInterrupted() {
		return
	}
	_, _ = out.Write(lastEvent)
	s.err = out.Flush()
	s.events = len(s.state.objects)
}

// checkInterrupted sets the ending if no more initial events may be written. It reports whether the watch goes on.
func (s *watchStream) checkInterrupted() (goesOn bool) {
	if s.err != nil {
		s.ending = watch.EndGone
	} else {
		s.ending = s.watcher.InitialEnding(s.request.Context())
	}
	return s.ending == ""
}

// serveChanges writes events until the watch must end, and sets the ending.
func (s *watchStream) serveChanges() {
	for s.err == nil {
		more := s.writeChanges()
		if s.ending != "" {
			return
		}
		if !more {
			s.flush()
			s.watcher.Wait(s.request.Context())
		}
	}
	s.ending = watch.EndGone
}

// writeChanges writes one batch of the events that are ready, and sets the ending if the watch must end. more reports
// whether further events are ready.
func (s *watchStream) writeChanges() (more bool) {
	b := batches.Get().(*watch.Batch)
	defer func() {
		b.Reset()
		batches.Put(b)
	}()
	s.ending = s.watcher.Take(s.request.Context(), b)
	if b.Events > 0 {
		s.writeBatch(b)
	}
	return b.More
}

// writeBatch writes events, without a flush. In a gzip stream it stores them uncompressed, since compressing them for each
// client would cost more than it saves.
func (s *watchStream) writeBatch(b *watch.Batch) {
	s.uncompressed += b.Size()
	s.events += b.Events
	if s.compressed {
		s.err = gzip.WriteStored(s, b.Parts)
		return
	}
	for part := range b.Parts {
		if _, s.err = s.Write(part); s.err != nil {
			return
		}
	}
}

// report records the number of events and bytes, and the ending.
func (s *watchStream) report() {
	s.served.Items = s.events
	s.served.Bytes = s.uncompressed
	observe.RecordOf(s.request.Context()).SetMemoryAnswer(s.served)
	s.span.SetAttributes(observe.WatchEndAttributes(s.events, string(s.ending))...)
}

// flush sends the events that were written.
func (s *watchStream) flush() {
	if s.err == nil {
		s.err = s.control.Flush()
	}
}

// release releases the state with which the watch begins. A second call does nothing.
func (s *watchStream) release() {
	if s.state != nil {
		s.state.release()
		s.state = nil
	}
}

// close releases the state, and closes the span and the watcher. The watcher counts the ending, unless it is "".
func (s *watchStream) close(ending watch.Ending) {
	s.release()
	if s.watcher != nil {
		s.watcher.Close(ending)
	}
	if s.span != nil {
		s.span.End()
	}
}
