package snapshot

import (
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/listproxy/listproxy/policy/media"
)

// Snapshot is an immutable view of a collection at one revision. It may be kept and read by
// any number of goroutines; it keeps what it holds in memory alive.
type Snapshot struct {
	// Revision is what the list's resourceVersion says.
	Revision uint64
	// Frame is how the upstream writes a list of this collection.
	Frame *Frame
	// Epochs are those under which it was learned.
	Epochs Epochs
	// Heard is how new a newest state is: all that had been written by then is in it. It is zero for a state at an
	// exact revision.
	Heard time.Time

	tree tree
}

// Query says what a page is to hold.
type Query struct {
	Scope Scope
	// Name is set where the upstream reads the one key of that name instead of a range: of the
	// scope's namespace, or of a cluster-scoped resource.
	Name string
	// Start is where the page begins, relative to the scope; "" for its beginning.
	Start string
	// Limit is how many objects the page may hold; 0 is no limit.
	Limit int64
	// Labels and Fields choose among the objects; nil chooses all. Frame.Selects must have said
	// yes to the fields.
	Labels labels.Selector
	Fields fields.Selector
	// Newest is true if the newest state was asked for. There kube-apiserver reads the pods of a
	// node from an index, and the last page is the one on which the index ends; everywhere else
	// it reads the whole range, and the last page is the one on which that ends
	// (storage/cacher, watchCache.waitUntilFreshAndList).
	Newest bool
}

// Page is one page of a list.
type Page struct {
	// Objects in key order. They are shared and must not be changed.
	Objects []*Object
	// Next is where the following page starts, relative to the scope; "" if this is the last.
	Next string
	// Remaining is how many objects follow this page, if Counted: with selectors nobody counts.
	Remaining int64
	Counted   bool
}

// Page returns what q asks for, with the objects appended to buf. Its cost is that of the objects
// it returns, and of a count that does not visit the rest; with selectors, also of the objects it
// looks at, of which it reads no bytes.
func (s Snapshot) Page(q Query, buf []*Object) Page {
	page := Page{Objects: buf}
	m := newMatcher(s.Frame, q.Labels, q.Fields)
	prefix := q.Scope.prefix()
	if q.Name != "" {
		if o, found := s.tree.get(prefix + q.Name); found && (m == nil || m.matches(o)) {
			page.Objects = append(page.Objects, o)
		}
		return page
	}
	from, end := prefix+q.Start, q.Scope.end()
	if m == nil {
		more := false
		s.tree.ascend(from, end, func(o *Object) bool {
			if page.full(q.Limit) {
				more = true
				return false
			}
			page.Objects = append(page.Objects, o)
			return true
		})
		if more {
			next := page.next(prefix)
			page.Remaining, page.Counted = s.tree.count(next, end), true
		}
		return page
	}
	s.choose(&page, q, m, from, end)
	return page
}

// choose fills a page with what m chooses.
func (s Snapshot) choose(page *Page, q Query, m *matcher, from, end string) {
	if m.namespace != "" && q.Scope.Namespace == "" && q.Start == "" {
		// The selector leaves one namespace of all.
		narrow := Scope{Namespace: m.namespace}
		from, end = narrow.prefix(), narrow.end()
	}
	take := func(o *Object) bool {
		if m.matches(o) {
			page.Objects = append(page.Objects, o)
		}
		return !page.full(q.Limit)
	}
	indexed := m.hasNode && s.tree.nodes != nil
	switch {
	case indexed:
		s.tree.ascendNode(m.node, from, end, take)
	case m.name != "":
		s.tree.ascendName(m.name, from, end, take)
	case m.labels != nil:
		s.tree.ascendLabels(from, end, m, take)
	default:
		s.tree.ascend(from, end, take)
	}
	if !page.full(q.Limit) {
		return
	}
	after := page.Objects[len(page.Objects)-1].Key + "\x00"
	more := false
	if indexed && q.Newest {
		s.tree.ascendNode(m.node, after, end, func(*Object) bool { more = true; return false })
	} else {
		more = s.tree.any(after, end)
	}
	if more {
		page.next(q.Scope.prefix())
	}
}

func (p *Page) full(limit int64) bool { return limit > 0 && int64(len(p.Objects)) >= limit }

// next sets where the following page starts, and returns that key: the one right after the last
// object, as kube-apiserver makes it (storage/continue.go).
func (p *Page) next(prefix string) string {
	key := p.Objects[len(p.Objects)-1].Key + "\x00"
	p.Next = key[len(prefix):]
	return key
}

// Fixed returns a snapshot of the given objects with the frame of a built-in type in JSON, for
// tests of what is made of snapshots.
func Fixed(revision uint64, kind, apiVersion string, objects []*Object) Snapshot {
	state := newTree(false)
	for _, o := range objects {
		state.set(o)
	}
	return Snapshot{
		Revision: revision,
		Frame:    &Frame{ContentType: media.JSONType, kind: kind, apiVersion: apiVersion, shape: structShape{}, emptyItems: "[]"},
		tree:     state,
	}
}
