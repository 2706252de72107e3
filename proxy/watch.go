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
	// state is the state with which the watch begins; nil once it was written.
	state   *body
	watcher *watch.Watcher

	// initial reports whether the watch begins with the state.
	initial bool
	// bookmarks reports whether the client wants bookmarks.
	bookmarks  bool
	compressed bool

	// events is the number of events that were written, and uncompressed their bytes before compression.
	events       int
	uncompressed int
	served       observe.MemoryAnswer
	// err is the first error of a write: the client has left, or does not read.
	err error
	end watch.Ending
}

const (
	// minWatchTimeout is the shortest time after which a watch ends whose client names no timeout. The longest is twice
	// that. It is the default of kube-apiserver's --min-request-timeout.
	minWatchTimeout = 30 * time.Minute
	// watchWait is the longest time for which a watch waits for its revision. kube-apiserver's cache waits as long
	// (storage/cacher, blockTimeout).
	watchWait = 3 * time.Second
)

// batches has batches for reuse: a watch has a batch only while it writes.
var batches = sync.Pool{New: func() any { return new(watch.Batch) }}

// watchable returns None if a watch can be answered from memory, now that its state was found; otherwise the reason to
// forward the watch.
func (h *Handler) watchable(a *answer) reason.Reason {
	form := a.snapshot.WatchForm()
	needsStreamingLists := a.semantics != policy.After || a.asked.WatchOptions.SendInitialEvents != ""
	switch {
	case form == nil:
		return reason.Form
	case needsStreamingLists && form.InitialEndBookmark == nil: // kube-apiserver does not have them
		return reason.Watch
	case h.Draining():
		return reason.Watch
	}
	return reason.None
}

// beginWatch begins to answer a watch from memory. It returns a stream, which must be served, or a reason to forward the
// watch: then it has written nothing. In both cases it releases state.
func (h *Handler) beginWatch(
	w *serve.AnswerWriter, r *http.Request, a *answer, state *body,
) (_ *watchStream, why reason.Reason) {
	form := a.snapshot.WatchForm()
	asked := a.asked
	s := &watchStream{
		handler:   h,
		request:   r,
		control:   http.NewResponseController(w),
		finish:    w.Finish,
		form:      form,
		state:     state,
		initial:   a.initial,
		bookmarks: asked.WatchOptions.Bookmarks,
	}
	s.ResponseWriter = w
	defer func() {
		if why != reason.None {
			s.close()
		}
	}()
	// The upstream compresses a streaming list, and then the whole watch.
	s.compressed = form.Compressed && asked.Gzip && s.initial && s.bookmarks
	// The watcher keeps Defined for hours, so Defined must not refer to the answer, which has the whole state.
	resource := resourceOf(asked)
	entry := a.entry
	s.watcher = a.snapshot.Watch(a.query, watch.Options{
		After:     a.after,
		Bookmarks: s.bookmarks,
		Timeout:   timeLeft(r.Context(), asked.WatchOptions.Timeout),
		Defined:   func() bool { return h.Cluster.IsCurrent(resource, entry) },
	})
	if s.watcher == nil { // the history no longer reaches back to a.after, or the state was lost meanwhile
		return nil, cmp.Or(a.collection.WhyNotFollow(a.after, true), reason.Warming)
	}
	if why := mayAnswer(a, h.conditions(a)); why != reason.None {
		return nil, why
	}
	s.end = watch.EndGone // unless serve finds another reason
	s.served = observe.MemoryAnswer{
		Representation: a.representation, Revision: a.snapshot.Revision, Items: len(state.objects),
	}
	record := observe.RecordOf(r.Context())
	kubehttp.SetCacheHit(w.Header(), a.semantics, h.Unreachable())
	record.SetMemoryAnswer(s.served)
	setHeaders(w.Header(), state.auditID, form.Envelope, form.ContentType)
	if s.compressed {
		setCompressed(w.Header())
	}
	_, s.span = observe.StartStep(r.Context(), observe.SpanWatch)
	return s, reason.None
}

// timeLeft returns the time after which a watch must end. timeout is the client's, which began when the request came, or 0
// if the client has named none.
func timeLeft(ctx context.Context, timeout time.Duration) time.Duration {
	if timeout == 0 {
		return minWatchTimeout + rand.N(minWatchTimeout) // #nosec G404 -- no secret
	}
	return max(timeout-time.Since(observe.RecordOf(ctx).ReceivedAt()), 1)
}

// serve writes the state and the events until the watch ends, and closes the stream.
func (s *watchStream) serve() {
	defer s.close()
	defer s.finish()
	s.ResponseWriter.WriteHeader(http.StatusOK)
	s.flush() // clients wait for the header before the first event
	end := s.writeState()
	if end == "" {
		end = s.writeChanges()
	}
	s.end = s.watcher.AwaitEnd(s.request.Context(), end)
	s.report()
}

// writeState writes the state, if the watch begins with it, and releases it. If the watch must end before, writeState
// returns the ending.
func (s *watchStream) writeState() (end watch.Ending) {
	if s.initial {
		end = s.writeInitial()
		if end == "" {
			s.watcher.InitialSent()
		}
	}
	s.release()
	return end
}

// writeInitial writes the state, and the bookmark at its end if the client wants bookmarks.
//
// A client may read slowly, and the state must be valid as long as objects are written. Once the state is invalid,
// writeInitial returns the ending. The answer, and the gzip member, then ends between two events, as kube-apiserver's
// does.
func (s *watchStream) writeInitial() (end watch.Ending) {
	out := s.handler.writers.get(&s.CountingWriter, s.state.size)
	defer out.release()
	var lastEvent []byte
	if s.bookmarks {
		lastEvent = s.form.InitialEndBookmark.AppendTo(nil, s.served.Revision)
	}
	mayGoOn := func() bool {
		end = s.interrupted()
		return end == ""
	}
	if s.compressed {
		s.writeCompressed(out.Writer, lastEvent, mayGoOn)
	} else {
		s.events, s.err = s.writeEvents(out.Writer, lastEvent, mayGoOn)
		s.uncompressed = int(s.Bytes)
	}
	if s.err == nil && end == "" && s.bookmarks {
		s.events++
	}
	s.flush()
	return end
}

// writeCompressed is writeEvents with gzip. Clients that get the same objects share the compressed segments.
func (s *watchStream) writeCompressed(out *bufio.Writer, lastEvent []byte, mayGoOn func() bool) {
	// Each segment is flushed before the check for the next. So once the check fails, only the end of the gzip member
	// follows.
	begun := false
	flushAndCheck := func() bool {
		if begun { // at first the buffer has only the member's header
			s.err = out.Flush()
		}
		begun = true
		return mayGoOn()
	}
	var size uint32
	s.events, size, s.err = s.handler.Compressor.WriteEvents(
		out, s.form.Envelope, s.state.objects, lastEvent, flushAndCheck)
	s.uncompressed = int(size)
	if s.err == nil {
		s.err = out.Flush()
	}
}

// writeEvents writes the objects of the state as events, and then lastEvent. It calls mayGoOn before it passes anything
// on to the connection. If mayGoOn returns false, writeEvents drops the rest. It returns the number of objects that were
// written.
func (s *watchStream) writeEvents(out *bufio.Writer, lastEvent []byte, mayGoOn func() bool) (written int, err error) {
	var head []byte
	for i, o := range s.state.objects {
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
		if size > out.Size() { // the event is larger than the buffer, so most of it was written already
			if err := out.Flush(); err != nil {
				return written, err
			}
			written = i + 1
		}
	}
	if !mayGoOn() {
		return written, nil
	}
	_, _ = out.Write(lastEvent)
	return len(s.state.objects), out.Flush()
}

// interrupted returns the ending if no more initial events may be written; otherwise "".
func (s *watchStream) interrupted() watch.Ending {
	if s.err != nil {
		return watch.EndGone
	}
	return s.watcher.InitialEnding(s.request.Context())
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

// writeNext writes the next events, if there are any. more reports whether further events are ready. end is the ending if
// the watch ends.
func (s *watchStream) writeNext() (more bool, end watch.Ending) {
	b := batches.Get().(*watch.Batch)
	defer func() {
		b.Reset()
		batches.Put(b)
	}()
	end = s.watcher.Take(s.request.Context(), b)
	if b.Events > 0 {
		s.writeBatch(b)
	}
	return b.More, end
}

// writeBatch writes events, without a flush. With gzip they are stored uncompressed: to compress them for each client
// would cost more than it saves.
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
	s.served.Items = s.events
	s.served.Bytes = s.uncompressed
	observe.RecordOf(s.request.Context()).SetMemoryAnswer(s.served)
	s.span.SetAttributes(observe.WatchEnd(s.events, string(s.end))...)
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
