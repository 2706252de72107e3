package proxy

import (
	"bufio"
	"cmp"
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/audit"
	"github.com/listproxy/listproxy/proxy/observe"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/snapshot/gzip"
	"github.com/listproxy/listproxy/snapshot/watch"
	"github.com/listproxy/listproxy/snapshot/wire"
)

const (
	// leastTimeout is how long a watch lasts at least if its client does not say; it lasts up to twice
	// as long. It is the default of kube-apiserver's --min-request-timeout.
	leastTimeout = 30 * time.Minute
	// watchWait is how long a watch waits until memory has what it asks for. kube-apiserver's own
	// cache waits as long (storage/cacher, blockTimeout).
	watchWait = 3 * time.Second
	// doubtFor is how long events wait while it is not certain that their resource is still served
	// and defined as before; then the watch ends. An API server must be asked, and one with too much
	// to do keeps requests in its queue for less than this. Initial events take room for their bytes,
	// so they wait for initialDoubt only. doubtPause is the time between two looks.
	doubtFor     = 30 * time.Second
	initialDoubt = 3 * time.Second
	doubtPause   = 100 * time.Millisecond
)

// batches are reused: a watch has one only while it writes.
var batches = sync.Pool{New: func() any { return new(watch.Batch) }}

// watches says whether watches of this resource are answered from memory.
func (h *Handler) watches(list policy.Request) bool {
	return h.Policy.For(list.Group, list.Version, list.Resource).AnswersWatches(h.Watches)
}

// serveWatch answers a watch from memory until it ends. If it returns a reason, it has not answered
// and has written nothing.
func (h *Handler) serveWatch(w http.ResponseWriter, r *http.Request, who caller, list policy.Request, a *answer) reason.Reason {
	form := a.snapshot.WatchForm()
	switch {
	case form == nil:
		return reason.Form
	case form.InitialEnd == nil && (a.semantics != policy.After || list.WatchOptions.SendInitialEvents != ""):
		return reason.Watch // kube-apiserver has no streaming lists
	case h.Draining != nil && h.Draining():
		return reason.Stopped
	}
	entry, why := h.announce(r, who, list, a)
	if why != "" {
		return why
	}
	defer entry.Abandon()
	page, room, err := h.admitBody(r.Context(), who.share, *a)
	if err != nil {
		return h.noRoom(w, r, err)
	}
	s := &watchStream{control: http.NewResponseController(w), form: form, page: page, end: watch.EndGone}
	s.ResponseWriter = w
	// The upstream compresses a watch that begins with the state and its bookmark, up to the watch's
	// end.
	s.compressed = form.Compressed && list.Gzip && a.initial && list.WatchOptions.Bookmarks
	defer func() { s.release(); room.Release() }()
	if why := h.reviewAgain(r.Context(), who, list, a); why != "" {
		return why
	}
	s.cursor = a.snapshot.Watch(a.query, watch.Options{
		After:     a.after,
		Bookmarks: list.WatchOptions.Bookmarks,
		Timeout:   timeLeft(r.Context(), list.WatchOptions.Timeout),
	})
	if s.cursor == nil {
		return reason.Warming // the span was lost meanwhile
	}
	defer func() { s.cursor.Close(s.end) }()
	if why := mayAnswer(a.entry, a.snapshot, h.ground(list, *a)); why != "" {
		s.end = watch.EndLost
		return why
	}
	record, revision, initial := observe.RecordOf(r.Context()), a.snapshot.Revision, a.initial
	status := a.cacheStatus()
	a.snapshot, a.collection = snapshot.Snapshot{}, nil
	record.SetCacheStatus(w.Header(), status)
	told := observe.Served{Representation: a.representation, Revision: revision, Items: len(page.objects), Watch: !initial}
	record.Serving(told)
	setHeaders(w.Header(), r, form.Frame, form.ContentType)
	if s.compressed {
		setCompressed(w.Header())
	}
	said := audit.Answer{
		ID: w.Header().Get("Audit-Id"), Semantics: a.semantics, Representation: a.representation, Revision: revision,
		Items: len(page.objects), Started: true,
	}
	entry.Complete(said)
	_, span := record.Step(r.Context(), observe.SpanWatch)
	defer span.End()
	w.WriteHeader(http.StatusOK)
	s.flush() // the header, before any event
	stands := func() bool { return h.stands(r.Context(), list, a) }
	var ended watch.Ending
	if initial {
		ended = s.writeInitial(r.Context(), h, list.WatchOptions.Bookmarks, revision, stands)
	}
	// The objects of the state are no longer needed.
	s.release()
	room.Release()
	switch ended {
	case "":
		s.follow(r, stands)
	case watch.EndLost:
		s.end = s.awaitEnd(r.Context())
	default:
		s.end = ended
	}

	told.Items, told.Bytes = s.events, s.plain
	record.Serving(told)
	span.SetAttributes(observe.WatchEnd(s.events, string(s.end))...)
	if h.Auditor != nil {
		said.Started, said.Items, said.Bytes, said.Broken = false, s.events, s.Bytes, s.err != nil || r.Context().Err() != nil
		h.concludeAudit(r, who, list, a, said)
	}
	return ""
}

// timeLeft is how long a watch with that timeout, 0 if its client did not say, still lasts: for the
// client it began when its request came.
func timeLeft(ctx context.Context, timeout time.Duration) time.Duration {
	if timeout == 0 {
		return leastTimeout + rand.N(leastTimeout) // #nosec G404 -- no secret
	}
	return max(timeout-time.Since(observe.RecordOf(ctx).Begun()), 1)
}

// stands says whether the resource is still served and defined as it was when the watch began. If
// discovery's answer is too old, it is asked for again.
func (h *Handler) stands(ctx context.Context, list policy.Request, a *answer) bool {
	entry, why := h.Catalog.Lookup(ctx, list.Group, list.Version, list.Resource)
	return why == "" && entry == a.entry &&
		h.Schemas.Check(schema.GroupResource{Group: list.Group, Resource: list.Resource}, a.entry) == ""
}

// watchStream is the answer to one watch.
type watchStream struct {
	observe.CountingWriter
	control *http.ResponseController
	form    *watch.Form
	page    *body // nil once it was written
	cursor  *watch.Cursor

	compressed    bool
	events, plain int // written: events, and their bytes before compression
	err           error
	end           watch.Ending
}

// release lets go of the objects of the state.
func (s *watchStream) release() {
	if s.page != nil {
		s.page.release()
		s.page = nil
	}
}

// writeInitial writes the state, and the bookmark that ends it if the client wants bookmarks. With
// gzip, clients that get the same objects share the compressed segments. If the watch must end
// before, it returns why: a client may read slowly, and the state must be valid all that time. Then
// what was written, and the gzip member, ends between two events, as kube-apiserver's does.
func (s *watchStream) writeInitial(
	ctx context.Context, h *Handler, bookmark bool, revision uint64, stands func() bool,
) (end watch.Ending) {
	out := h.writers.get(&s.CountingWriter, s.page.size)
	defer out.release()
	var last []byte
	if bookmark {
		last = s.form.InitialEnd.AppendTo(nil, revision)
	}
	may := func() bool { end = s.interrupted(ctx, stands); return end == "" }
	if s.compressed {
		s.events, s.err = h.Compressor.WriteEvents(out.Writer, s.form.Frame, s.form.Encoding, s.page.objects, last, may)
		if s.err == nil {
			s.err = out.Flush()
		}
	} else {
		s.events, s.err = s.writeEvents(out.Writer, last, may)
	}
	if s.err == nil && end == "" {
		s.plain = s.page.size + len(last)
		if bookmark {
			s.events++
		}
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
		head, skip = s.form.Frame.AppendEventHead(head[:0], s.form.Encoding, wire.Added, len(o.Bytes))
		object, tail := o.Bytes[skip:], s.form.Frame.EventEnd(s.form.Encoding)
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

// follow writes events until the watch ends. Before each write, stands must be true.
func (s *watchStream) follow(r *http.Request, stands func() bool) {
	ctx := r.Context()
	for s.err == nil {
		events, end := s.tellNext(ctx, stands)
		switch {
		case end != "":
			s.end = end
			return
		case events == 0:
			s.flush()
			s.cursor.Wait(ctx)
		}
	}
}

// tellNext writes what there is to tell now, and returns how many events that is, or why the watch
// ends.
func (s *watchStream) tellNext(ctx context.Context, stands func() bool) (events int, end watch.Ending) {
	b := batches.Get().(*watch.Batch)
	defer func() {
		b.Reset()
		batches.Put(b)
	}()
	if end = s.cursor.Take(ctx, b); b.Events == 0 {
		return 0, end
	}
	if !stands() || s.cursor.Muted() { // in this order: stands may wait
		s.flush()
		if end = s.doubt(ctx, stands, doubtFor, s.cursor.Turn); end != "" || s.cursor.Muted() {
			return b.Events, end
		}
	}
	s.tell(b)
	return b.Events, ""
}

// interrupted returns why no more initial events may be written; "" if they may.
func (s *watchStream) interrupted(ctx context.Context, stands func() bool) watch.Ending {
	if s.err != nil {
		return watch.EndGone
	}
	atOnce := func() time.Duration { return 0 } // the room for the events' bytes is given back before awaitEnd
	return cmp.Or(s.doubt(ctx, stands, initialDoubt, atOnce), s.cursor.Interrupted(ctx))
}

// awaitEnd waits, while nothing is told, until a watch may end whose state is lost or in doubt: not
// at the same moment as others. It returns why the watch ends then.
func (s *watchStream) awaitEnd(ctx context.Context) watch.Ending {
	turn := ctx
	if !s.cursor.Muted() { // else its end is planned
		var stop context.CancelFunc
		turn, stop = context.WithTimeout(ctx, s.cursor.Turn())
		defer stop()
	}
	for s.cursor.Over(turn) == "" {
		s.cursor.Wait(turn)
	}
	return cmp.Or(s.cursor.Over(ctx), watch.EndLost)
}

// doubt waits until what the watch is told of stands, at most for a time. Then the watch ends, after
// what is left until its turn; or sooner, if its time is over.
func (s *watchStream) doubt(ctx context.Context, stands func() bool, patience time.Duration, left func() time.Duration) watch.Ending {
	var turn time.Time
	for begun := time.Now(); !stands(); clock.Sleep(ctx, doubtPause) {
		if end := s.cursor.Over(ctx); end != "" {
			return end
		}
		now := time.Now()
		if now.Sub(begun) < patience {
			continue
		}
		if turn.IsZero() {
			turn = now.Add(left())
		}
		if !now.Before(turn) {
			return watch.EndLost
		}
	}
	return ""
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

// flush sends what was written.
func (s *watchStream) flush() {
	if s.err == nil {
		s.err = s.control.Flush()
	}
}
