package inmemory

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/listproxy/listproxy/test/differential/body"
)

// compaction is how long etcd keeps what was before.
const compaction = 5 * time.Minute

// query is what a list or a watch asks for.
type query struct {
	Select
	revision int64  // -1: none is named
	match    string // Exact, NotOlderThan or empty
	limit    int
	start    string // of a continuation: a key
}

func namespaceOf(path string, k Kind) (namespace string, within bool) {
	if path == k.Path {
		return "", true
	}
	group, resource := cutLast(k.Path)
	rest, within := strings.CutPrefix(path, group+"/namespaces/")
	namespace, last := cutLast(rest)
	return namespace, k.Namespaced && within && last == resource
}

func cutLast(path string) (before, after string) {
	i := max(0, strings.LastIndexByte(path, '/'))
	return path[:i], strings.TrimPrefix(path[i:], "/")
}

func readQuery(r *http.Request, k Kind, namespace string) (q query, err error) {
	values := r.URL.Query()
	q.Namespace, q.revision, q.match = namespace, -1, values.Get("resourceVersionMatch")
	if rev := values.Get("resourceVersion"); rev != "" {
		if q.revision, err = strconv.ParseInt(rev, 10, 64); err != nil {
			return q, err
		}
	}
	if limit := values.Get("limit"); limit != "" {
		if q.limit, err = strconv.Atoi(limit); err != nil {
			return q, err
		}
	}
	for part := range strings.SplitSeq(values.Get("fieldSelector"), ",") {
		name, value, _ := strings.Cut(part, "=")
		switch name {
		case "", "metadata.namespace":
		case "metadata.name":
			q.Name = value
		default:
			return q, errors.New("an unknown field")
		}
	}
	if color, is := strings.CutPrefix(values.Get("labelSelector"), "color="); is && k == Widgets {
		q.Color = color
	}
	if text := values.Get("continue"); text != "" {
		t, err := body.DecodeToken(text)
		if err != nil {
			return q, err
		}
		q.revision, q.match, q.start = t.Revision, "Exact", strings.TrimPrefix(t.Start, "/")
		if namespace != "" {
			q.start = namespace + "/" + q.start
		}
	}
	return q, nil
}

// list answers a list.
func (s *Server) list(w http.ResponseWriter, r *http.Request, k Kind, q query) {
	accept := r.Header.Get("Accept")
	if k == Widgets && !strings.Contains(accept, "json") && accept != "" && !strings.Contains(accept, "*/*") {
		fail(w, http.StatusNotAcceptable, "NotAcceptable")
		return
	}
	at, _, _ := s.seen()
	switch head := s.plane.Revision(); {
	case q.match == "Exact", q.revision > 0 && q.limit > 0 && q.match == "":
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
		q.limit = 0 // the watch cache pages nothing
	case !s.reaches(r.Context(), q.revision, 3*time.Second):
		fail(w, http.StatusGatewayTimeout, "Timeout")
		return
	default:
		at, _, _ = s.seen()
	}
	_, _, generation := s.seen()
	s.mu.Lock()
	form := Form{generation, s.release}
	s.mu.Unlock()
	_, _ = io.WriteString(w, s.plane.write(s.plane.Pasts()-1, k, at, q, strings.Contains(accept, "PartialObjectMetadataList"), func(int) Form { return form }))
}

// compacted is the oldest revision of which etcd knows the state.
func (e *Etcd) compacted() int64 { return e.HeadAt(time.Now().Add(-compaction)) }

// List is what a list shows.
type List struct {
	Select
	Limit int
	Start string // a key: what is before it is not on the page
}

// WriteList writes a list of a past at a revision, with items in the form of their number.
func (e *Etcd) WriteList(past int, k Kind, revision int64, l List, form func(i int) Form) string {
	return e.write(past, k, revision, query{Select: l.Select, limit: l.Limit, start: l.Start}, false, form)
}

func (e *Etcd) write(past int, k Kind, revision int64, q query, metadata bool, form func(i int) Form) string {
	within := e.List(past, k, revision, Select{Namespace: q.Namespace})
	for len(within) > 0 && within[0].key() < q.start {
		within = within[1:]
	}
	var all []Object
	next, remaining := "", ""
	for i, o := range within {
		if q.has(&o) {
			all = append(all, o)
		}
		if left := len(within) - i - 1; q.limit > 0 && len(all) == q.limit && left > 0 { // also if none of them is selected
			start := o.key() + "\x00"
			if q.Namespace != "" {
				start = strings.TrimPrefix(start, q.Namespace+"/")
			}
			next = body.Token{Version: "meta.k8s.io/v1", Revision: revision, Start: "/" + start}.Encode()
			if q.Color == "" && q.Name == "" {
				remaining = fmt.Sprintf(`"remainingItemCount":%d,`, left)
			}
			break
		}
	}
	items := make([]string, len(all))
	for i, o := range all {
		if items[i] = k.write(o, o.Revision, form(i)); metadata {
			items[i] = Kind{Path: "metadata", APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}.write(Object{
				Namespace: o.Namespace, Name: o.Name, Color: o.Color,
			}, o.Revision, Form{})
		}
	}
	apiVersion, kind := k.APIVersion, k.Kind+"List"
	if metadata {
		apiVersion, kind = "meta.k8s.io/v1", "PartialObjectMetadataList"
	}
	return fmt.Sprintf(`{"apiVersion":%q,"items":[%s],"kind":%q,"metadata":{"continue":%q,%s"resourceVersion":"%d"}}`+"\n",
		apiVersion, strings.Join(items, ","), kind, next, remaining, revision)
}

// Start is the key at which a token goes on, within its namespace if the list had one.
func Start(text string) string {
	t, err := body.DecodeToken(text)
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(t.Start, "/")
}
