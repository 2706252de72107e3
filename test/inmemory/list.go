package inmemory

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/listproxy/listproxy/test/differential/body"
)

// compaction is the time for which etcd keeps older states.
const compaction = 5 * time.Minute

// query is what a list or a watch asks for.
type query struct {
	List
	revision int64 // the resourceVersion, or newestRevision
	isExact  bool  // a list must have exactly this revision
}

// newestRevision is the revision of a query that names none: its list must show the newest state.
const newestRevision = -1

// List selects the objects of a list, or of a page of it.
type List struct {
	Select
	Limit int    // the most objects on a page; 0: no limit
	Start string // the key at which the page begins; "": the list's first object
}

// namespaceOf returns the namespace that a list of a kind at the path target covers, or "" for all namespaces. ok is false if
// no such list is at that path.
func namespaceOf(target string, k Kind) (namespace string, ok bool) {
	if target == k.Path {
		return "", true
	}
	rest, ok := strings.CutPrefix(target, path.Dir(k.Path)+"/namespaces/")
	return path.Dir(rest), k.Namespaced && ok && path.Base(rest) == path.Base(k.Path)
}

// readQuery returns the query of a list or watch of a kind in a namespace ("": all). The request must be well formed.
func readQuery(r *http.Request, k Kind, namespace string) (q query) {
	values := r.URL.Query()
	q.Namespace = namespace
	q.revision = newestRevision
	if rev := values.Get("resourceVersion"); rev != "" {
		q.revision, _ = strconv.ParseInt(rev, 10, 64)
	}
	q.Limit, _ = strconv.Atoi(values.Get("limit"))
	switch values.Get("resourceVersionMatch") {
	case "Exact":
		q.isExact = true
	case "": // kube-apiserver takes a revision with a limit for an exact one
		q.isExact = q.revision > 0 && q.Limit > 0
	}
	for part := range strings.SplitSeq(values.Get("fieldSelector"), ",") {
		if name, ok := strings.CutPrefix(part, "metadata.name="); ok {
			q.Name = name
		}
	}
	if color, ok := strings.CutPrefix(values.Get("labelSelector"), "color="); ok && k == Widgets {
		q.Color = color
	}
	if token, err := body.DecodeToken(values.Get("continue")); err == nil {
		q.revision = token.Revision
		q.isExact = true
		q.Start = strings.TrimPrefix(path.Join(namespace, token.Start), "/")
	}
	return q
}

// list answers a list as kube-apiserver does, from the watch cache or from etcd.
func (s *Server) list(w http.ResponseWriter, r *http.Request, k Kind, q query) {
	accept := r.Header.Get("Accept")
	acceptsJSON := accept == "" || strings.Contains(accept, "json") || strings.Contains(accept, "*/*")
	if k == Widgets && !acceptsJSON { // custom resources have no protobuf
		writeStatus(w, http.StatusNotAcceptable, "NotAcceptable")
		return
	}
	revision, status, reason := s.listRevision(r.Context(), q)
	if status != http.StatusOK {
		writeStatus(w, status, reason)
		return
	}
	if q.revision == 0 && !q.isExact {
		q.Limit = 0 // the watch cache ignores a limit
	}
	written := k // the kind in the bytes of the answer
	if strings.Contains(accept, "PartialObjectMetadataList") {
		written = metadata
	}
	form := s.current().form
	_, _ = io.WriteString(w, s.plane.write(s.plane.Timelines()-1, k, written, revision, q.List, func(int) Form { return form }))
}

// listRevision returns the revision of the answer to a list, with 200, or the status and the reason of a refusal. An exact
// revision is read from etcd and decided first. Then the revision is the newest (none in the query), any (0), or a lower bound.
func (s *Server) listRevision(ctx context.Context, q query) (revision int64, status int, reason string) {
	cached, head := s.current().revision, s.plane.Revision()
	switch {
	case q.isExact && q.revision < s.plane.compacted():
		return 0, http.StatusGone, "Expired"
	case q.isExact && q.revision > head:
		return 0, http.StatusGatewayTimeout, "Timeout"
	case q.isExact:
		return q.revision, http.StatusOK, ""
	case q.revision == newestRevision:
		return head, http.StatusOK, ""
	case q.revision == 0:
		return cached, http.StatusOK, ""
	case !s.awaitRevision(ctx, q.revision, 3*time.Second):
		return 0, http.StatusGatewayTimeout, "Timeout"
	}
	return s.current().revision, http.StatusOK, ""
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
	return e.write(timeline, k, k, revision, l, form)
}

// write is WriteList with two kinds. It lists the objects of the kind listed, and writes them as objects of the kind written,
// which is the same kind or metadata.
func (e *Etcd) write(timeline int, listed, written Kind, revision int64, l List, form func(i int) Form) string {
	objects := e.List(timeline, listed, revision, Select{Namespace: l.Namespace})
	for len(objects) > 0 && objects[0].key() < l.Start {
		objects = objects[1:]
	}
	var items []string
	token, remainingCount := "", ""
	for i, o := range objects {
		if l.selects(&o) {
			items = append(items, written.write(o, o.Revision, form(len(items))))
		}
		remaining := len(objects) - i - 1 // selected or not
		isFull := l.Limit > 0 && len(items) == l.Limit
		if !isFull || remaining == 0 {
			continue
		}
		// The page ends here. The next one begins with the first key after this object's.
		start := o.key() + "\x00"
		if l.Namespace != "" {
			start = strings.TrimPrefix(start, l.Namespace+"/")
		}
		token = body.Token{Version: "meta.k8s.io/v1", Revision: revision, Start: "/" + start}.Encode()
		if l.Color == "" && l.Name == "" {
			remainingCount = fmt.Sprintf(`"remainingItemCount":%d,`, remaining)
		}
		break
	}
	return fmt.Sprintf(`{"apiVersion":%q,"items":[%s],"kind":%q,"metadata":{"continue":%q,%s"resourceVersion":"%d"}}`+"\n",
		written.APIVersion, strings.Join(items, ","), written.Kind+"List", token, remainingCount, revision)
}

// Start returns the key at which the page of a continue token begins, or "" if text is no token. The key of an object in a list
// of all namespaces is namespace/name. In a list of one namespace it is the name alone.
func Start(text string) string {
	token, err := body.DecodeToken(text)
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(token.Start, "/")
}
