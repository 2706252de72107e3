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

// watchStream is the answer from memory to a watch. It has two parts:
//
//  1. The initial events: ADDED for each object of the state, and then a bookmark if the client wants bookmarks. Many watches
//     have no initial events.
//  2. The changes after the state.
//
// Three names tell whether there are initial events:
//
//	WatchOptions.SendInitialEvents   the client's parameter: "true", "false", or "" if it is not given
//	decision.Initial                 whether the answer has initial events, which depends on the resourceVersion, too
//	watchStream.sendsInitial         a copy of decision.Initial
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
	// initial has the objects of the initial events, if any. serveInitial releases it, and sets it to nil.
	initial *body
	// watcher delivers the changes, and says when the watch must end.
	watcher *watch.Watcher

	// sendsInitial reports whether the answer has initial events.
	sendsInitial bool
	// bookmarks reports whether the client wants bookmarks.
	bookmarks bool
	// compressed reports whether the answer is compressed with gzip.
	compressed bool

	// events is the number of events that were written.
	events int
	// uncompressed is the number of bytes of the written events before compression.
	uncompressed int
	// answer is what the request's record says about the answer.
	answer observe.MemoryAnswer
	// err is the first error of a write: the client has left, or does not read.
	err error
	// ending is the reason why the watch must end, or noEnding while it goes on.
	ending watch.Ending
}

// noEnding is the ending of a watch that goes on, or that has not begun. [watch.Watcher.Close] does not count it.
const noEnding watch.Ending = ""

// minWatchTimeout is the shortest duration of a watch whose client names no timeout: the default of kube-apiserver's
// --min-request-timeout. The longest is twice that.
const minWatchTimeout = 30 * time.Minute

// batches keeps batches for reuse. A batch has the changes that a watcher delivers at once. A watch holds it only while writing
// it.
var batches = sync.Pool{New: func() any { return new(watch.Batch) }}

// whyNotWatch returns the reason to forward a watch although its state was found in memory, or None.
//
// Every kube-apiserver answers a plain watch in the same way: one after a revision, without sendInitialEvents. The answer to
// any other watch depends on whether kube-apiserver has streaming lists (a feature gate). Memory answers as if it has them, so
// the watch is forwarded if it has none.
//
// While the process ends, memory begins no more watches.
func (h *Handler) whyNotWatch(d *decision) reason.Reason {
	form := d.state.WatchForm()
	isPlain := d.Semantics == policy.After && d.asked.WatchOptions.SendInitialEvents == ""
	switch {
	case form == nil: // the form of events is not known
		return reason.Form
	case !isPlain && form.InitialEndBookmark == nil: // the upstream has no streaming lists
		return reason.Watch
	case h.Draining():
		return reason.Watch
	}
	return reason.None
}

// beginWatch returns the stream that answers a watch from memory, or the reason to forward the watch. The stream must be
// served, and then releases initial. If beginWatch returns a reason, nothing was written, and the caller must release initial.
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

// startWatcher sets s.watcher, and returns None if the answer may be written. If it may not, startWatcher closes the watcher,
// and returns the reason to forward the watch.
func (s *watchStream) startWatcher(d *decision) reason.Reason {
	h := s.handler
	after := d.state.Revision // the revision after which the client gets the changes
	if d.Semantics == policy.After {
		after = d.Revision
	}
	// The watcher keeps the function IsDefined for hours. The function must not keep d in memory, so it uses these two
	// variables.
	resource := resourceOf(d.asked)
	entry := d.entry
	s.watcher = d.state.Watch(d.query, watch.Options{
		After:     after,
		Bookmarks: s.bookmarks,
		Timeout:   timeLeft(s.request.Context(), d.asked.WatchOptions.Timeout),
		IsDefined: func() bool { return h.Cluster.IsCurrent(resource, entry) },
	})
	why := lastCheck(d, h.currentConditions(d))
	if s.watcher == nil { // the state was lost, or memory no longer has all changes after this revision
		return cmp.Or(why, reason.History)
	}
	if why != reason.None {
		s.watcher.Close(noEnding) // nothing was delivered
	}
	return why
}

// timeLeft returns the time after which a watch must end. timeout is the client's timeout, counted from the arrival of the
// request, or 0 if the client names none.
func timeLeft(ctx context.Context, timeout time.Duration) time.Duration {
	if timeout == 0 {
		return minWatchTimeout + rand.N(minWatchTimeout) // #nosec G404 -- no secret
	}
	return timeout - time.Since(observe.RecordOf(ctx).ReceivedAt())
}

// serve writes the initial events and the changes until the watch ends, and releases everything.
func (s *watchStream) serve() {
	defer s.span.End()
	defer s.closeWatcher()
	defer s.finish()
	s.serveInitial()
	if s.ending == noEnding {
		s.serveChanges()
	}
	s.ending = s.watcher.AwaitEnd(s.request.Context(), s.ending)
	s.report()
}

// closeWatcher closes the watcher, which counts the ending. After a panic there may be no ending. Such a watch counts as
// EndGone, like one whose client has left.
func (s *watchStream) closeWatcher() { s.watcher.Close(cmp.Or(s.ending, watch.EndGone)) }

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
// The state must be valid whenever one of its objects is written. A client may read slowly, so the state is checked again and
// again ([watchStream.checkInitial]). If the state has become invalid, the answer ends between two events, as an answer of
// kube-apiserver does. A compressed answer ends with the end of its gzip member.
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
		s.uncompressed = int(s.Bytes) // what the CountingWriter has counted
	}
	if s.err == nil && s.ending == noEnding && s.bookmarks {
		s.events++ // the bookmark
	}
	s.flush()
	if s.ending == noEnding {
		s.watcher.InitialSent()
	}
}

// compressInitial writes the initial objects as events, and then lastEvent, as one gzip member. It sets s.events and
// s.uncompressed. The member consists of segments, which are compressed once for all clients that get the same objects.
// WriteEvents and sendAndCheck take turns:
//
//	WriteEvents    writes the member's header
//	sendAndCheck   checks that the state is valid
//	WriteEvents    writes the first segment
//	sendAndCheck   sends the segment, and checks again
//	...            and so on with the other segments, and with lastEvent
//
// If a check fails, WriteEvents writes only the end of the member.
func (s *watchStream) compressInitial(out *bufio.Writer, lastEvent []byte) {
	isFirstCall := true
	sendAndCheck := func() (mayWrite bool) {
		if !isFirstCall { // on the first call, there is only the header
			s.err = out.Flush()
		}
		isFirstCall = false
		s.checkInitial()
		return s.ending == noEnding
	}
	events, size, _ := s.handler.Compressor.WriteEvents(out, s.form.Envelope, s.initial.objects, lastEvent, sendAndCheck)
	s.events = events
	s.uncompressed = int(size)
	s.err = out.Flush() // returns the error of WriteEvents, too, since a bufio.Writer keeps its first error
}

// copyInitial writes the initial objects as events, and then lastEvent, without gzip. It collects events in the buffer of out,
// and sends them when the next event does not fit, right after it has checked that the state is valid. If the check fails, the
// events in the buffer are dropped. For example, with a buffer of 64 KiB:
//
//	event        what copyInitial does
//	1 (40 KiB)   puts it into the buffer
//	2 (20 KiB)   puts it into the buffer
//	3 (10 KiB)   checks, sends events 1 and 2, and puts event 3 into the buffer
//	4 (90 KiB)   checks, sends event 3, and sends event 4 at once, since it is longer than the whole buffer
func (s *watchStream) copyInitial(out *bufio.Writer, lastEvent []byte) {
	var head []byte
	for i, o := range s.initial.objects {
		var skip int // the number of the object's first bytes that head has already, such as the opening brace in JSON
		head, skip = s.form.Envelope.AppendEventHead(head[:0], wire.Added, len(o.Bytes))
		object, tail := o.Bytes[skip:], s.form.Envelope.EventEnd()
		size := len(head) + len(object) + len(tail)
		isLong := size > out.Size()
		if size > out.Available() {
			s.checkInitial()
			if s.ending != noEnding {
				return
			}
			s.sendInitial(out, i) // the events before this one
		}
		_, _ = out.Write(head) // after an error, out writes nothing, and sendInitial finds the error
		_, _ = out.Write(object)
		_, _ = out.WriteString(tail)
		if isLong { // out has sent a part of the event already, so the rest follows without a check
			s.sendInitial(out, i+1)
		}
	}
	s.checkInitial()
	if s.ending == noEnding {
		_, _ = out.Write(lastEvent)
		s.sendInitial(out, len(s.initial.objects))
	}
}

// sendInitial sends the bytes in out. If that succeeds, sentEvents initial events have been sent in all.
func (s *watchStream) sendInitial(out *bufio.Writer, sentEvents int) {
	s.err = out.Flush()
	if s.err == nil {
		s.events = sentEvents
	}
}

// checkInitial waits until it is certain that the state is valid, so that more initial events may be written. If the watch must
// end instead, it sets the ending.
func (s *watchStream) checkInitial() {
	if s.err != nil {
		s.ending = watch.EndGone
	} else {
		s.ending = s.watcher.AwaitDefined(s.request.Context())
	}
}

// serveChanges writes changes until the watch must end, and sets the ending.
func (s *watchStream) serveChanges() {
	for s.err == nil {
		more := s.writeChanges()
		if s.ending != noEnding {
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

// writeBatch writes a batch without a flush. In a gzip stream, it stores the events uncompressed, since compression for each
// client would cost more than it saves.
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
