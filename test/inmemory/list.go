package inmemory

import (
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/listproxy/listproxy/test/differential/body"
)

// compaction is how long etcd keeps what was before.
const compaction = 5 * time.Minute

// query is what a list or a watch asks for.
type query struct {
	List
	revision int64  // -1: none is named
	match    string // Exact, NotOlderThan or empty
}

// List is what a list shows.
type List struct {
	Select
	Limit int
	Start string // a key: what is before it is not on the page
}

// namespaceOf returns the namespace of a path of a kind's lists.
func namespaceOf(of string, k Kind) (namespace string, within bool) {
	if of == k.Path {
		return "", true
	}
	rest, within := strings.CutPrefix(of, path.Dir(k.Path)+"/namespaces/")
	return path.Dir(rest), k.Namespaced && within && path.Base(rest) == path.Base(k.Path)
}

// readQuery reads a request, which is well formed.
func readQuery(r *http.Request, k Kind, namespace string) (q query) {
	values := r.URL.Query()
	q.Namespace, q.revision, q.match = namespace, -1, values.Get("resourceVersionMatch")
	if rev := values.Get("resourceVersion"); rev != "" {
		q.revision, _ = strconv.ParseInt(rev, 10, 64)
	}
	q.Limit, _ = strconv.Atoi(values.Get("limit"))
	for part := range strings.SplitSeq(values.Get("fieldSelector"), ",") {
		if name, is := strings.CutPrefix(part, "metadata.name="); is {
			q.Name = name
		}
	}
	if color, is := strings.CutPrefix(values.Get("labelSelector"), "color="); is && k == Widgets {
		q.Color = color
	}
	if t, err := body.DecodeToken(values.Get("continue")); err == nil {
		q.revision, q.match, q.Start = t.Revision, "Exact", strings.TrimPrefix(path.Join(namespace, t.Start), "/")
	}
	return q
}

// list answers a list.
func (s *Server) list(w http.ResponseWriter, r *http.Request, k Kind, q query) {
	accept := r.Header.Get("Accept")
	if k == Widgets && !strings.Contains(accept, "json") && accept != "" && !strings.Contains(accept, "*/*") {
		fail(w, http.StatusNotAcceptable, "NotAcceptable")
		return
	}
	at := s.seen().revision
	switch head := s.plane.Revision(); {
	case q.match == "Exact", q.revision > 0 && q.Limit > 0 && q.match == "":
		if q.revision < s.plane.compacted() {
			fail(w, http.StatusGone, "Expired")
			return
		}
		if at = q.revision; at > head {
			fail(w, http.StatusGatewayTimeout, "Timeout")
			return
		}
	case q.revision < 0:
		at = head
	case q.revision == 0:
		q.Limit = 0 // the watch cache pages nothing
	case !s.reaches(r.Context(), q.revision, 3*time.Second):
		fail(w, http.StatusGatewayTimeout, "Timeout")
		return
	default:
		at = s.seen().revision
	}
	form, onlyMetadata := s.seen().form, strings.Contains(accept, "PartialObjectMetadataList")
	_, _ = io.WriteString(w, s.plane.write(s.plane.Timelines()-1, k, at, q.List, onlyMetadata, func(int) Form { return form }))
}

// compacted is the oldest revision of which etcd knows the state.
func (e *Etcd) compacted() int64 { return e.HeadAt(time.Now().Add(-compaction)) }

// WriteList writes a list of a timeline at a revision, with items in the form of their number.
func (e *Etcd) WriteList(timeline int, k Kind, revision int64, l List, form func(i int) Form) string {
	return e.write(timeline, k, revision, l, false, form)
}

func (e *Etcd) write(timeline int, k Kind, revision int64, l List, onlyMetadata bool, form func(i int) Form) string {
	within := e.List(timeline, k, revision, Select{Namespace: l.Namespace})
	for len(within) > 0 && within[0].key() < l.Start {
		within = within[1:]
	}
	written := k
	if onlyMetadata {
		written = metadata
	}
	var items []string
	next, remaining := "", ""
	for i, o := range within {
		if l.has(&o) {
			items = append(items, written.write(o, o.Revision, form(len(items))))
		}
		if left := len(within) - i - 1; l.Limit > 0 && len(items) == l.Limit && left > 0 { // also if none of them is selected
			start := o.key() + "\x00"
			if l.Namespace != "" {
				start = strings.TrimPrefix(start, l.Namespace+"/")
			}
			next = body.Token{Version: "meta.k8s.io/v1", Revision: revision, Start: "/" + start}.Encode()
			if l.Color == "" && l.Name == "" {
				remaining = fmt.Sprintf(`"remainingItemCount":%d,`, left)
			}
			break
		}
	}
	return fmt.Sprintf(`{"apiVersion":%q,"items":[%s],"kind":%q,"metadata":{"continue":%q,%s"resourceVersion":"%d"}}`+"\n",
		written.APIVersion, strings.Join(items, ","), written.Kind+"List", next, remaining, revision)
}

// Start is the key at which a token goes on, within its namespace if the list had one.
func Start(text string) string {
	t, err := body.DecodeToken(text)
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(t.Start, "/")
}
