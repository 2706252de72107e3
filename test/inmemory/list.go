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

// compaction is how long etcd keeps older states.
const compaction = 5 * time.Minute

// query is what a list or a watch asks for.
type query struct {
	List
	revision int64  // the resourceVersion; -1: none
	match    string // resourceVersionMatch: Exact, NotOlderThan or ""
}

// List selects the objects of a page.
type List struct {
	Select
	Limit int    // 0: no limit
	Start string // the key at which the page begins
}

// namespaceOf returns the namespace of a path of a kind's lists, or "" for all namespaces. ok is false for other paths.
func namespaceOf(target string, k Kind) (namespace string, ok bool) {
	if target == k.Path {
		return "", true
	}
	rest, ok := strings.CutPrefix(target, path.Dir(k.Path)+"/namespaces/")
	return path.Dir(rest), k.Namespaced && ok && path.Base(rest) == path.Base(k.Path)
}

// readQuery reads the query of a request, which must be well formed.
func readQuery(r *http.Request, k Kind, namespace string) (q query) {
	values := r.URL.Query()
	q.Namespace = namespace
	q.revision, q.match = -1, values.Get("resourceVersionMatch")
	if rev := values.Get("resourceVersion"); rev != "" {
		q.revision, _ = strconv.ParseInt(rev, 10, 64)
	}
	q.Limit, _ = strconv.Atoi(values.Get("limit"))
	for part := range strings.SplitSeq(values.Get("fieldSelector"), ",") {
		if name, ok := strings.CutPrefix(part, "metadata.name="); ok {
			q.Name = name
		}
	}
	if color, ok := strings.CutPrefix(values.Get("labelSelector"), "color="); ok && k == Widgets {
		q.Color = color
	}
	if t, err := body.DecodeToken(values.Get("continue")); err == nil {
		q.revision, q.match = t.Revision, "Exact"
		q.Start = strings.TrimPrefix(path.Join(namespace, t.Start), "/")
	}
	return q
}

// list answers a list as kube-apiserver does, from the watch cache or from etcd.
func (s *Server) list(w http.ResponseWriter, r *http.Request, k Kind, q query) {
	accept := r.Header.Get("Accept")
	if k == Widgets && !strings.Contains(accept, "json") && accept != "" && !strings.Contains(accept, "*/*") {
		fail(w, http.StatusNotAcceptable, "NotAcceptable")
		return
	}
	at, head := s.current().revision, s.plane.Revision()
	isExact := q.match == "Exact" || q.match == "" && q.revision > 0 && q.Limit > 0
	switch {
	case isExact && q.revision < s.plane.compacted():
		fail(w, http.StatusGone, "Expired")
		return
	case isExact && q.revision > head:
		fail(w, http.StatusGatewayTimeout, "Timeout")
		return
	case isExact:
		at = q.revision
	case q.revision < 0:
		at = head
	case q.revision == 0:
		q.Limit = 0 // the watch cache ignores a limit
	case !s.awaitRevision(r.Context(), q.revision, 3*time.Second):
		fail(w, http.StatusGatewayTimeout, "Timeout")
		return
	default:
		at = s.current().revision
	}
	form, onlyMetadata := s.current().form, strings.Contains(accept, "PartialObjectMetadataList")
	_, _ = io.WriteString(w, s.plane.write(s.plane.Timelines()-1, k, at, q.List, onlyMetadata, func(int) Form { return form }))
}

// compacted returns the oldest revision whose state etcd has.
func (e *Etcd) compacted() int64 {
	if e.keepsAll.Load() {
		return 0
	}
	return e.HeadAt(time.Now().Add(-compaction))
}

// WriteList returns a list at a revision of a timeline, as servers write it. form returns the form of the i-th item.
func (e *Etcd) WriteList(timeline int, k Kind, revision int64, l List, form func(i int) Form) string {
	return e.write(timeline, k, revision, l, false, form)
}

// write is WriteList. With onlyMetadata, items have nothing but their metadata.
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
		left := len(within) - i - 1 // all later objects, selected or not
		if isPageEnd := l.Limit > 0 && len(items) == l.Limit && left > 0; isPageEnd {
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

// Start returns the key at which the page of a continue token begins; "" if token is none. For a list of one namespace, the key
// has no namespace.
func Start(token string) string {
	t, err := body.DecodeToken(token)
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(t.Start, "/")
}
