package inmemory

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

const (
	// bookmarkEvery is the time between two bookmarks, and beforeEnd how long before its end a watch has
	// the last one.
	bookmarkEvery = time.Minute
	beforeEnd     = 2 * time.Second
	// oldForm is for how long watches go on after a changed definition, in the old form.
	oldForm = time.Minute
)

// Bookmark is the line of a watch that says that it has told everything up to a revision.
func Bookmark(k Kind, revision int64, endsInitial bool) string {
	annotations := ""
	if endsInitial {
		annotations = `"annotations":{"k8s.io/initial-events-end":"true"},`
	}
	return fmt.Sprintf(`{"type":"BOOKMARK","object":{"apiVersion":%q,"kind":%q,"metadata":{%s"resourceVersion":"%d"}}}`+"\n",
		k.APIVersion, k.Kind, annotations, revision)
}

// watch answers a watch.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, k Kind, q query) {
	values := r.URL.Query()
	timeout := time.Hour
	if seconds, err := strconv.Atoi(values.Get("timeoutSeconds")); err == nil {
		timeout = time.Duration(seconds) * time.Second
	}
	begun, ends := time.Now(), time.Now().Add(timeout)
	initial, bookmarks := values.Get("sendInitialEvents") == "true", values.Get("allowWatchBookmarks") == "true"
	say := func(line string) {
		_, _ = io.WriteString(w, line)
		_ = http.NewResponseController(w).Flush()
	}
	w.WriteHeader(http.StatusOK)
	say("")
	now := s.seen()
	began, form := now.began, now.form
	at := q.revision
	if initial || at <= 0 {
		need := at
		if at < 0 { // what etcd has
			need = s.plane.Revision()
		}
		if !s.reaches(r.Context(), need, timeout) {
			return
		}
		at = s.seen().revision
		for _, o := range s.plane.List(s.plane.Timelines()-1, k, at, q.Select) {
			say(Event{"ADDED", o, o.Revision}.Write(k, form))
		}
		if initial && bookmarks {
			say(Bookmark(k, at, true))
		}
	} else if at < max(began, s.plane.compacted()) {
		say(fmt.Sprintf(`{"type":"ERROR","object":%s}`+"\n", statusOf(http.StatusGone, "Expired")))
		return
	}
	told, last := at, false // of the last bookmark
	next := begun.Add(bookmarkEvery + rand.N(5*time.Second))
	if !bookmarks {
		next = ends
	}
	left := ends // when a watch of the old form ends
	for {
		written, is := s.plane.Etcd.next(), s.seen()
		if is.revision > at {
			for _, ev := range s.plane.Events(s.plane.Timelines()-1, k, at, is.revision, q.Select) {
				say(ev.Write(k, form))
			}
			at = is.revision
		}
		now := time.Now()
		if k == Widgets && is.form.Definition != form.Definition && left.Equal(ends) {
			left = now.Add(rand.N(oldForm))
		}
		switch nearEnd := !now.Before(ends.Add(-beforeEnd)); {
		case !now.Before(ends), !now.Before(left):
			return
		case is.frozen || !bookmarks:
		case nearEnd && !last, !now.Before(next):
			last = last || nearEnd
			next = now.Add(bookmarkEvery)
			if at >= told {
				say(Bookmark(k, at, false))
				told = at
			}
		}
		wake := min(time.Until(ends), time.Until(next), time.Until(left))
		if until := time.Until(ends.Add(-beforeEnd)); !last && until > 0 {
			wake = min(wake, until)
		}
		if is.frozen && wake <= 0 {
			wake = time.Second
		}
		timer := time.NewTimer(wake)
		select {
		case <-written:
		case <-is.changed:
		case <-timer.C:
		case <-r.Context().Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}
