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

// watchStream is the answer to a watch. It must not refer to the decision, which holds the whole state: thousands of watches
// may be idle for hours.
type watchStream struct {
	// CountingWriter writes the answer's body.
	observe.CountingWriter
	handler *Handler
	request *http.Request
	control *http.ResponseController
	// finish ends the answer after the last write.
	finish func()
	span   trace.Span
	// form says how kube-apiserver writes the events.
	form *watch.Form
	// state has the objects with which the watch begins. It is nil after they were written.
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
	// served is what the request's record says about the answer.
	served observe.MemoryAnswer
	// err is the first error of a write: the client has left, or does not read.
	err error
	// ending is the reason why the watch must end, or "" while it goes on.
	ending watch.Ending
}

const (
	// minWatchTimeout is the shortest duration of a watch whose client names no timeout: the default of kube-apiserver's
	// --min-request-timeout. The longest is twice that.
	minWatchTimeout = 30 * time.Minute
	// revisionWait is the longest time for which a watch waits for its revision. kube-apiserver's cache waits as long
	// (storage/cacher, blockTimeout).
	revisionWait = 3 * time.Second
)

// batches keeps batches of events for reuse. A watch holds a batch only while it writes it.
var batches = sync.Pool{New: func() any { return new(watch.Batch) }}

// whyNotWatch returns the reason to forward a watch whose state was found in memory, or None.
func (h *Handler) whyNotWatch(d *decision) reason.Reason {
	form := d.snapshot.WatchForm()
	needsStreamingLists := d.Semantics != policy.After || d.asked.WatchOptions.SendInitialEvents != ""
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

// beginWatch begins to answer a watch from memory. With the reason None it returns a stream, which must be served, and which
// releases state. With any other reason nothing was written: the watch must be forwarded, and the caller must release state.
func (h *Handler) beginWatch(
	w *serve.AnswerWriter, r *http.Request, d *decision, state *body,
) (*watchStream, reason.Reason) {
	form := d.snapshot.WatchForm()
	options := d.asked.WatchOptions
	s := &watchStream{
		CountingWriter: observe.CountingWriter{ResponseWriter: w},
		handler:        h,
		request:        r,
		control:        http.NewResponseController(w),
		finish:         w.Finish,
		form:           form,
		state:          state,
		initial:        d.Initial,
		bookmarks:      options.Bookmarks,
		// kube-apiserver compresses only a watch that begins with the state and has bookmarks, but then all of it.
		compressed: form.Compressed && d.asked.Gzip && d.Initial && options.Bookmarks,
		served: observe.MemoryAnswer{
			Representation: d.key.Representation, Revision: d.snapshot.Revision, Items: len(state.objects),
		},
	}
	if why := s.follow(d); why != reason.None {
		return nil, why
	}
	kubehttp.SetCacheHit(w.Header(), d.Semantics, h.Unreachable())
	setHeaders(w.Header(), state.auditID, form.Envelope, form.ContentType)
	if s.compressed {
		setGzipHeaders(w.Header())
	}
	observe.RecordOf(r.Context()).SetMemoryAnswer(s.served)
	_, s.span = observe.StartStep(r.Context(), observe.SpanWatch)
	return s, reason.None
}

// follow starts the watcher. It returns None if the answer may be written, otherwise the reason to forward the watch.
func (s *watchStream) follow(d *decision) reason.Reason {
	h := s.handler
	after := d.snapshot.Revision // the revision after which the client gets the changes
	if d.Semantics == policy.After {
		after = d.Revision
	}
	// The watcher keeps IsDefined for hours, so IsDefined must not refer to d, which holds the whole state.
	resource := resourceOf(d.asked)
	entry := d.entry
	s.watcher = d.snapshot.Watch(d.query, watch.Options{
		After:     after,
		Bookmarks: s.bookmarks,
		Timeout:   timeLeft(s.request.Context(), d.asked.WatchOptions.Timeout),
		IsDefined: func() bool { return h.Cluster.IsCurrent(resource, entry) },
	})
	why := lastCheck(d, h.currentConditions(d))
	if s.watcher == nil { // the state was lost meanwhile, or the history no longer reaches back to after
		return cmp.Or(why, reason.History)
	}
	if why != reason.None {
		s.watcher.Close("") // counts no ending, since nothing was delivered
	}
	return why
}

// timeLeft returns the time after which a watch must end. timeout is the client's, counted from the arrival of the request, or
// 0 if the client names none.
func timeLeft(ctx context.Context, timeout time.Duration) time.Duration {
	if timeout == 0 {
		return minWatchTimeout + rand.N(minWatchTimeout) // #nosec G404 -- no secret
	}
	return timeout - time.Since(observe.RecordOf(ctx).ReceivedAt())
}

// serve writes the state and the events until the watch ends, and releases everything.
func (s *watchStream) serve() {
	defer s.span.End()
	defer func() { s.watcher.Close(cmp.Or(s.ending, watch.EndGone)) }() // after a panic, s.ending may be ""
	defer s.finish()
	s.serveInitial()
	if s.ending == "" {
		s.serveChanges()
	}
	s.ending = s.watcher.AwaitEnd(s.request.Context(), s.ending)
	s.report()
}

// serveInitial writes the header, and the state if the watch begins with it. It releases the state.
func (s *watchStream) serveInitial() {
	defer func() {
		s.state.release()
		s.state = nil
	}()
	s.ResponseWriter.WriteHeader(http.StatusOK)
	s.flush() // clients wait for the header before the first event
	if s.initial {
		s.writeInitial()
	}
}

// writeInitial writes the state as events, and the bookmark at its end if the client wants bookmarks.
//
// The state must be valid whenever objects are written, and a client may read slowly. Once the state is invalid,
// writeInitial sets the ending. The answer, and the gzip member, then ends between two events, as kube-apiserver's does.
func (s *watchStream) writeInitial() {
	out := s.handler.writers.get(&s.CountingWriter, s.state.size)
	defer s.handler.writers.put(out)
	var lastEvent []byte
	if s.bookmarks {
		lastEvent = s.form.InitialEndBookmark.AppendTo(nil, s.served.Revision)
	}
	if s.compressed {
		s.compressInitial(out, lastEvent)
	} else {
		s.copyInitial(out, lastEvent)
		s.uncompressed = int(s.Bytes)
	}
	if s.err == nil && s.ending == "" && s.bookmarks {
		s.events++
	}
	s.flush()
	if s.ending == "" {
		s.watcher.InitialSent()
	}
}

// compressInitial writes the objects of the state as events, and then lastEvent, with gzip. Clients that get the same objects
// share the compressed segments.
func (s *watchStream) compressInitial(out *bufio.Writer, lastEvent []byte) {
	// WriteEvents calls goesOn before it writes a segment. goesOn first flushes the earlier segments. So if it returns false, only
	// the end of the gzip member follows.
	isFirst := true
	goesOn := func() bool {
		if isFirst {
			isFirst = false // the buffer has only the member's header
		} else {
			s.err = out.Flush()
		}
		return s.checkInitial()
	}
	var size uint32
	s.events, size, s.err = s.handler.Compressor.WriteEvents(
		out, s.form.Envelope, s.state.objects, lastEvent, goesOn)
	s.uncompressed = int(size)
	if s.err == nil {
		s.err = out.Flush()
	}
}

// copyInitial writes the objects of the state as events, and then lastEvent, without gzip. Before each write to the connection,
// it checks whether the watch goes on, and drops the events in the buffer if not. s.events counts only what was flushed.
func (s *watchStream) copyInitial(out *bufio.Writer, lastEvent []byte) {
	var head []byte
	for i, o := range s.state.objects {
		var skip int // the number of the object's first bytes that the head has already
		head, skip = s.form.Envelope.AppendEventHead(head[:0], wire.Added, len(o.Bytes))
		object, tail := o.Bytes[skip:], s.form.Envelope.EventEnd()
		size := len(head) + len(object) + len(tail)
		if size > out.Available() {
			if !s.checkInitial() {
				return
			}
			if s.err = out.Flush(); s.err != nil {
				return
			}
			s.events = i // the events before this one
		}
		_, _ = out.Write(head) // Flush returns the error
		_, _ = out.Write(object)
		_, _ = out.WriteString(tail)
		if size > out.Size() { // most of the event was sent already, so the rest must be sent before another check
			if s.err = out.Flush(); s.err != nil {
				return
			}
			s.events = i + 1
		}
	}
	if !s.checkInitial() {
		return
	}
	_, _ = out.Write(lastEvent)
	if s.err = out.Flush(); s.err == nil {
		s.events = len(s.state.objects)
	}
}

// checkInitial sets the ending and returns false if no more of the state may be written.
func (s *watchStream) checkInitial() (goesOn bool) {
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

// writeChanges writes one batch of the events that are ready, and sets the ending if the watch must end. more is true if
// further events are ready.
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

// writeBatch writes events without a flush. In a gzip stream it stores them uncompressed, since compression for each client
// would cost more than it saves.
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
