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

// watchStream is the answer from memory to a watch. If the client asks for the state, it begins with the initial events: one for
// each object, and a bookmark if the client wants bookmarks. Then the changes follow.
//
// A watchStream must not refer to the decision, which holds the whole state: thousands of watches may be idle for hours.
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
	// initial has the objects of the initial events. It has none if there are no such events, and is nil after they were written.
	initial *body
	// watcher has the changes.
	watcher *watch.Watcher

	// sendsInitial reports whether the client asks for the initial events.
	sendsInitial bool
	// bookmarks reports whether the client wants bookmarks.
	bookmarks bool
	// compressed reports whether the answer is compressed with gzip.
	compressed bool

	// events is the number of events that were written.
	events int
	// uncompressed is the number of bytes of these events before compression.
	uncompressed int
	// answer is what the request's record says about the answer.
	answer observe.MemoryAnswer
	// err is the first error of a write: the client has left, or does not read.
	err error
	// ending is the reason why the watch must end, or "" while it goes on.
	ending watch.Ending
}

const (
	// minWatchTimeout is the shortest duration of a watch whose client names no timeout: the default of kube-apiserver's
	// --min-request-timeout. The longest is twice that.
	minWatchTimeout = 30 * time.Minute
	// revisionWait is the longest time for which a watch waits until memory has its revision. kube-apiserver's cache waits as long
	// (storage/cacher, blockTimeout).
	revisionWait = 3 * time.Second
)

// batches keeps batches of events for reuse. A watch holds a batch only while it writes it.
var batches = sync.Pool{New: func() any { return new(watch.Batch) }}

// whyNotWatch returns the reason to forward a watch although its state was found in memory, or None.
func (h *Handler) whyNotWatch(d *decision) reason.Reason {
	form := d.state.WatchForm()
	needsStreamingLists := d.Semantics != policy.After || d.asked.WatchOptions.SendInitialEvents != ""
	switch {
	case form == nil: // the form of events is not known
		return reason.Form
	case needsStreamingLists && form.InitialEndBookmark == nil: // kube-apiserver has no streaming lists
		return reason.Watch
	case h.Draining():
		return reason.Watch
	}
	return reason.None
}

// beginWatch returns the stream that answers a watch from memory, or the reason to forward the watch. The stream must be served, and
// then releases initial. If beginWatch returns a reason, nothing was written, and the caller must release initial.
func (h *Handler) beginWatch(w *serve.AnswerWriter, r *http.Request, d *decision, initial *body) (*watchStream, reason.Reason) {
	form := d.state.WatchForm()
	s := &watchStream{
		CountingWriter: observe.CountingWriter{ResponseWriter: w},
		handler:        h,
		request:        r,
		control:        http.NewResponseController(w),
		finish:         w.Finish,
		form:           form,
		initial:        initial,
		sendsInitial:   d.Initial,
		bookmarks:      d.asked.WatchOptions.Bookmarks,
		// kube-apiserver compresses a watch if it has initial events and bookmarks, and then compresses all of it.
		compressed: form.Compressed && d.asked.Gzip && d.Initial && d.asked.WatchOptions.Bookmarks,
		answer: observe.MemoryAnswer{
			Representation: d.key.Representation, Revision: d.state.Revision, Items: len(initial.objects),
		},
	}
	if why := s.startWatcher(d); why != reason.None {
		return nil, why
	}
	kubehttp.SetCacheHit(w.Header(), d.Semantics, h.Unreachable())
	setHeaders(w.Header(), initial.auditID, form.Envelope, form.ContentType)
	if s.compressed {
		setGzipHeaders(w.Header())
	}
	observe.RecordOf(r.Context()).SetMemoryAnswer(s.answer)
	_, s.span = observe.StartStep(r.Context(), observe.SpanWatch)
	return s, reason.None
}

// startWatcher sets s.watcher. It returns None if the answer may be written. If not, it closes the watcher, and returns the reason
// to forward the watch.
func (s *watchStream) startWatcher(d *decision) reason.Reason {
	h := s.handler
	after := d.state.Revision // the revision after which the client gets the changes
	if d.Semantics == policy.After {
		after = d.Revision
	}
	// The watcher keeps IsDefined for hours. It must not refer to d, so it refers to these two.
	resource := resourceOf(d.asked)
	entry := d.entry
	s.watcher = d.state.Watch(d.query, watch.Options{
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
		s.watcher.Close("") // "" counts no ending, since nothing was delivered
	}
	return why
}

// timeLeft returns the time after which a watch must end. timeout is the client's, counted from the arrival of the request. It is 0
// if the client names none.
func timeLeft(ctx context.Context, timeout time.Duration) time.Duration {
	if timeout == 0 {
		return minWatchTimeout + rand.N(minWatchTimeout) // #nosec G404 -- no secret
	}
	return timeout - time.Since(observe.RecordOf(ctx).ReceivedAt())
}

// serve writes the initial events and the changes until the watch ends, and releases everything.
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

// serveInitial writes the header and the initial events, if any, and releases s.initial.
func (s *watchStream) serveInitial() {
	defer func() {
		s.initial.release()
		s.initial = nil
	}()
	s.ResponseWriter.WriteHeader(http.StatusOK)
	s.flush() // clients wait for the header before the first event
	if s.sendsInitial {
		s.writeInitial()
	}
}

// writeInitial writes the initial events, and the bookmark at their end if the client wants bookmarks.
//
// The state must be valid whenever an object of it is written, and a client may read slowly. If the state becomes invalid,
// writeInitial sets the ending. The answer, and the gzip member, then ends between two events, as kube-apiserver's does.
func (s *watchStream) writeInitial() {
	out := s.handler.writers.get(&s.CountingWriter, s.initial.size)
	defer s.handler.writers.put(out)
	var lastEvent []byte
	if s.bookmarks {
		lastEvent = s.form.InitialEndBookmark.AppendTo(nil, s.answer.Revision)
	}
	if s.compressed {
		s.compressInitial(out, lastEvent)
	} else {
		s.copyInitial(out, lastEvent)
		s.uncompressed = int(s.Bytes)
	}
	if s.err == nil && s.ending == "" && s.bookmarks {
		s.events++ // the bookmark
	}
	s.flush()
	if s.ending == "" {
		s.watcher.InitialSent()
	}
}

// compressInitial writes the initial objects as events, and then lastEvent, with gzip. It sets s.events and s.uncompressed. Clients
// that get the same objects share the compressed segments.
func (s *watchStream) compressInitial(out *bufio.Writer, lastEvent []byte) {
	// WriteEvents calls flushAndCheck before it writes a segment. If the state is invalid then, all earlier segments were sent while
	// it was valid, and only the end of the gzip member follows.
	isFirst := true
	flushAndCheck := func() (goesOn bool) {
		if !isFirst { // before the first segment, the buffer has only the member's header
			s.err = out.Flush()
		}
		isFirst = false
		return s.checkInitial()
	}
	var size uint32
	s.events, size, s.err = s.handler.Compressor.WriteEvents(out, s.form.Envelope, s.initial.objects, lastEvent, flushAndCheck)
	s.uncompressed = int(size)
	if s.err == nil {
		s.err = out.Flush()
	}
}

// copyInitial writes the initial objects as events, and then lastEvent, without gzip. It checks the state before each write to the
// connection, and drops the events in the buffer if the watch must end. s.events counts only what was flushed.
func (s *watchStream) copyInitial(out *bufio.Writer, lastEvent []byte) {
	var head []byte
	for i, o := range s.initial.objects {
		var skip int // the number of the object's first bytes that are in head
		head, skip = s.form.Envelope.AppendEventHead(head[:0], wire.Added, len(o.Bytes))
		object, tail := o.Bytes[skip:], s.form.Envelope.EventEnd()
		size := len(head) + len(object) + len(tail)
		if size > out.Available() {
			if !s.checkInitial() || !s.flushInitial(out, i) { // sends the events before this one
				return
			}
		}
		_, _ = out.Write(head) // flushInitial finds the error
		_, _ = out.Write(object)
		_, _ = out.WriteString(tail)
		if size > out.Size() { // most of the event was sent already, so the rest must be sent before another check
			if !s.flushInitial(out, i+1) {
				return
			}
		}
	}
	if !s.checkInitial() {
		return
	}
	_, _ = out.Write(lastEvent)
	s.flushInitial(out, len(s.initial.objects))
}

// flushInitial sends the bytes in out. If that succeeds, it sets s.events to events, and returns true.
func (s *watchStream) flushInitial(out *bufio.Writer, events int) (succeeded bool) {
	s.err = out.Flush()
	if s.err == nil {
		s.events = events
	}
	return s.err == nil
}

// checkInitial reports whether more initial events may be written. If not, it sets the ending.
func (s *watchStream) checkInitial() (goesOn bool) {
	if s.err != nil {
		s.ending = watch.EndGone
	} else {
		s.ending = s.watcher.AwaitDefined(s.request.Context())
	}
	return s.ending == ""
}

// serveChanges writes changes until the watch must end, and sets the ending.
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

// writeChanges writes one batch of the changes that are ready, and sets the ending if the watch must end. more is true if
// further changes are ready.
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

// writeBatch writes a batch without a flush. In a gzip stream, it stores the events uncompressed, since compression for each client
// would cost more than it saves.
func (s *watchStream) writeBatch(b *watch.Batch) {
	s.uncompressed += b.Size()
	s.events += b.Events
	if s.compressed {
		s.err = gzip.WriteStored(s, b.Parts)
		return
	}
	for part := range b.Parts {
		_, s.err = s.Write(part)
		if s.err != nil {
			return
		}
	}
}

// report records the number of events and bytes, and the ending.
func (s *watchStream) report() {
	s.answer.Items = s.events
	s.answer.Bytes = s.uncompressed
	observe.RecordOf(s.request.Context()).SetMemoryAnswer(s.answer)
	s.span.SetAttributes(observe.WatchEndAttributes(s.events, string(s.ending))...)
}

// flush sends the events that were written.
func (s *watchStream) flush() {
	if s.err == nil {
		s.err = s.control.Flush()
	}
}
