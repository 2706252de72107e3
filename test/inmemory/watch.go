package inmemory

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

const (
	// bookmarkInterval is the time between two bookmarks.
	bookmarkInterval = time.Minute
	// lastBookmarkLead is the time between the last bookmark of a watch and the end of the watch.
	lastBookmarkLead = 2 * time.Second
	// maxOldForm is the longest time for which a watch goes on after the definition of its objects has changed. As in
	// kube-apiserver, it writes objects in the form from before the change until it ends.
	maxOldForm = time.Minute
)

// Bookmark returns the line of a bookmark at a revision.
func Bookmark(k Kind, revision int64, endsInitial bool) string {
	annotations := ""
	if endsInitial {
		annotations = `"annotations":{"k8s.io/initial-events-end":"true"},`
	}
	return fmt.Sprintf(`{"type":"BOOKMARK","object":{"apiVersion":%q,"kind":%q,"metadata":{%s"resourceVersion":"%d"}}}`+"\n",
		k.APIVersion, k.Kind, annotations, revision)
}

// beginWatch sends the initial events of a watch, if it has any, and returns the revision after which the watch goes on. ok is
// false if the watch is over: its revision is compacted or older than the watch cache, or the watch could not begin before
// timeout or the end of the request.
func (s *Server) beginWatch(r *http.Request, k Kind, q query, timeout time.Duration, send func(line string)) (revision int64, ok bool) {
	state, values := s.current(), r.URL.Query()
	streaming := values.Get("sendInitialEvents") == "true"
	if !streaming && q.revision > 0 {
		if q.revision < max(state.began, s.plane.compacted()) {
			send(EventLine("ERROR", StatusOf(http.StatusGone, "Expired")))
			return 0, false
		}
		return q.revision, true
	}
	minRevision := q.revision
	if minRevision == newestRevision {
		minRevision = s.plane.Revision()
	}
	if !s.awaitRevision(r.Context(), minRevision, timeout) {
		return 0, false
	}
	revision = s.current().revision
	for _, o := range s.plane.List(s.plane.Timelines()-1, k, revision, q.Select) {
		send(Event{Type: "ADDED", Object: o, Revision: o.Revision}.Write(k, state.form))
	}
	if streaming && values.Get("allowWatchBookmarks") == "true" {
		const endsInitial = true
		send(Bookmark(k, revision, endsInitial))
	}
	return revision, true
}

// watch answers a watch as kube-apiserver does, from the watch cache: it sends initial events, and then, until the watch ends,
// events whenever the watch cache moves on, and bookmarks when they are due.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, k Kind, q query) {
	values := r.URL.Query()
	timeout := time.Hour
	if seconds, err := strconv.Atoi(values.Get("timeoutSeconds")); err == nil {
		timeout = time.Duration(seconds) * time.Second
	}
	ends := time.Now().Add(timeout)
	bookmarks := bookmarkSchedule{next: ends} // none
	if values.Get("allowWatchBookmarks") == "true" {
		bookmarks.next = time.Now().Add(bookmarkInterval + rand.N(5*time.Second))
		bookmarks.last = ends.Add(-lastBookmarkLead)
	}
	send := func(line string) {
		_, _ = io.WriteString(w, line)
		_ = http.NewResponseController(w).Flush()
	}
	w.WriteHeader(http.StatusOK)
	send("")
	form := s.current().form // for the whole watch
	sent, ok := s.beginWatch(r, k, q, timeout, send)
	if !ok {
		return
	}
	formEnds, formIsOld := ends, false // once form is old, the watch ends at formEnds
	for {
		written := s.plane.Etcd.next() // before the state, so that no write is missed
		state := s.current()
		if state.revision > sent {
			for _, ev := range s.plane.Events(s.plane.Timelines()-1, k, sent, state.revision, q.Select) {
				send(ev.Write(k, form))
			}
			sent = state.revision
		}
		now := time.Now()
		if k == Widgets && state.form.Definition != form.Definition && !formIsOld {
			formEnds, formIsOld = now.Add(rand.N(maxOldForm)), true
		}
		if !now.Before(ends) || !now.Before(formEnds) {
			return
		}
		if !state.frozen && bookmarks.takeDue(now) {
			const endsInitial = false
			send(Bookmark(k, sent, endsInitial))
		}
		wait := min(time.Until(ends), time.Until(formEnds), bookmarks.untilNext(now))
		if state.frozen && wait <= 0 { // a bookmark is due, but a frozen server sends none: look again later
			wait = time.Second
		}
		if !waitForChange(r.Context(), written, state.changed, wait) {
			return
		}
	}
}

// waitForChange waits until etcd is written, the server's state changes, or timeout is over. It returns false if ctx ends.
func waitForChange(ctx context.Context, written, changed <-chan struct{}, timeout time.Duration) bool {
	select {
	case <-written:
	case <-changed:
	case <-time.After(timeout):
	case <-ctx.Done():
		return false
	}
	return true
}

// bookmarkSchedule has the times at which a watch sends bookmarks: one after each bookmarkInterval, and one shortly before its
// end.
type bookmarkSchedule struct {
	next time.Time
	last time.Time // of the bookmark before the end; zero once that bookmark is sent
}

// takeDue returns whether a bookmark is due. If so, it sets the time of the next bookmark, and the caller sends one.
func (b *bookmarkSchedule) takeDue(now time.Time) bool {
	isLast := !b.last.IsZero() && !now.Before(b.last)
	if !isLast && now.Before(b.next) {
		return false
	}
	if isLast {
		b.last = time.Time{}
	}
	b.next = now.Add(bookmarkInterval)
	return true
}

// untilNext returns the time until the next bookmark is due. It may be negative.
func (b *bookmarkSchedule) untilNext(now time.Time) time.Duration {
	if b.last.After(now) && b.last.Before(b.next) {
		return b.last.Sub(now)
	}
	return b.next.Sub(now)
}
