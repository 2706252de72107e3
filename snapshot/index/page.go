package index

import (
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/sharding"

	"github.com/listproxy/listproxy/snapshot/wire"
)

// Query is a request for a list or for one page of it. It says which objects the page has, and how they are written.
type Query struct {
	Scope Scope
	// Name is the name of the only object that can be in the page; "" if there may be several. If the resource is namespaced,
	// Scope must have a namespace.
	Name string
	// Start is the key with which the page begins, relative to the scope; "" for the scope's beginning.
	Start string
	// Limit is the largest number of objects in the page; 0 means no limit.
	//
	// Start and Limit must be zero if Scope is all namespaces and Fields require one of them (metadata.namespace=a). Package
	// policy forwards pages of such a list.
	Limit int64
	// Labels and Fields choose among the objects; nil chooses all. wire.Envelope.CanSelect must be true for Fields.
	Labels labels.Selector
	Fields fields.Selector
	// Shards chooses among the objects, too: by ranges of hashes. nil chooses all. wire.Envelope.Sharded must be true, and
	// Limit 0.
	Shards sharding.Selector
	// EndsWithIndex says which page is the last if Fields require a value of the indexed field. For example, node n1 has two
	// pods, which are followed by pods of other nodes. A list of n1's pods with the limit 2 has
	//
	//	true   one page, with both pods
	//	false  two pages, and the second is empty
	//
	// It is true for lists of the semantics NotOlderThan and Consistent. For these, kube-apiserver reads the index, where no
	// pods of other nodes follow (storage/cacher, watchCache.waitUntilFreshAndList).
	EndsWithIndex bool
	// Indented reports whether the list is written as indented JSON, which takes longer.
	Indented bool
}

// ChoosesAll reports whether the query has no selector.
func (q Query) ChoosesAll() bool {
	return (q.Labels == nil || q.Labels.Empty()) && (q.Fields == nil || q.Fields.Empty()) && q.Shards == nil
}

// Page is one page of a list.
type Page struct {
	// Objects has the objects in the order of their keys.
	Objects []*Object
	// Next is the key with which the following page begins, relative to the scope; "" if this is the last page.
	Next string
	// Remaining is the number of objects that follow this page. With selectors it is 0, since nothing is counted then.
	Remaining int64
}

// Page returns the page of a query. envelope has the fields by which the upstream can select. Page.Objects uses the memory of
// buf. Without selectors, Page visits only the objects on the page, and the tree counts the rest. It reads none of the objects'
// bytes.
func (t Tree) Page(envelope *wire.Envelope, q Query, buf []*Object) Page {
	page := Page{Objects: buf[:0]}
	f := NewFilter(envelope, q)
	if f.key != "" {
		if o, found := t.Get(f.key); found && f.matches(o) {
			page.Objects = append(page.Objects, o)
		}
		return page
	}
	scope := Scope{Namespace: f.namespace} // It is narrower than q.Scope if only q.Fields require a namespace.
	from, end := scope.Prefix()+q.Start, scope.End()
	// Most neighbours have the same labels. So visit matches labels with the selector only if they differ from the last
	// object's. Before the first object, these are no labels.
	lastLabels := wire.Labels{}
	labelsMatch := f.matchesLabels(lastLabels)
	visit := func(o *Object) bool {
		if o.Labels != lastLabels {
			lastLabels = o.Labels
			labelsMatch = f.matchesLabels(lastLabels)
		}
		if labelsMatch && f.matchesFields(o) {
			page.Objects = append(page.Objects, o)
		}
		return !page.isFull(q.Limit)
	}
	if t.hasIndexFor(&f) {
		t.ascendIndex(f.indexedValue, from, end, visit)
	} else {
		t.ascendRequired(f.required, from, end, visit)
	}
	if page.isFull(q.Limit) {
		t.setNext(&page, q, &f, end)
	}
	return page
}

// hasIndexFor reports whether the filter requires a value of the field by which the tree has an index. The index does not
// decide which objects a page has: it only finds them faster. But it may decide whether another page follows (see
// Query.EndsWithIndex).
func (t Tree) hasIndexFor(f *Filter) bool { return f.hasIndexedValue && t.byField != nil }

// setNext sets Next and Remaining of a full page. There is a next page if an object follows before the key end:
//
//   - Usually any object counts, even one that the selectors do not choose, as at kube-apiserver. So the next page may be
//     empty.
//   - With EndsWithIndex, only an object with the required value of the indexed field counts.
func (t Tree) setNext(page *Page, q Query, f *Filter, end string) {
	// The next page begins right after the last object, as at kube-apiserver (storage/continue.go).
	next := page.Objects[len(page.Objects)-1].Key + "\x00"
	hasNext := false
	stopAtFirst := func(*Object) bool {
		hasNext = true
		return false
	}
	switch {
	case q.ChoosesAll():
		page.Remaining = t.Count(next, end)
		hasNext = page.Remaining > 0
	case q.EndsWithIndex && t.hasIndexFor(f):
		t.ascendIndex(f.indexedValue, next, end, stopAtFirst)
	default:
		t.Ascend(next, end, stopAtFirst)
	}
	if hasNext {
		page.Next = next[len(q.Scope.Prefix()):]
	}
}

// isFull reports whether the page has as many objects as the limit allows.
func (p *Page) isFull(limit int64) bool { return limit > 0 && int64(len(p.Objects)) >= limit }

const (
	// lookCost is what it costs kube-apiserver to look at an object without encoding it: as much as to encode 50 bytes.
	// (Measured with 1.36.3: 20 ns to encode a byte, 1 to 2 µs to look at an object.)
	lookCost = 50
	// sampleSize is the number of objects from which the size of a list's objects is estimated.
	sampleSize = 16
)

// Work estimates what a list costs kube-apiserver. Its unit is the time to encode one byte, so a list of 1000 objects of 2 KiB
// has the Work 2,048,000:
//
//   - A list by name costs nothing.
//   - With selectors, each object of the scope from q.Start on costs lookCost, even if Fields require one namespace.
//   - Without selectors, a list costs the size of its objects (at most q.Limit), estimated from the first sampleSize of them.
func (t Tree) Work(q Query) int64 {
	if q.Name != "" {
		return 0
	}
	from, end := q.Scope.Prefix()+q.Start, q.Scope.End()
	count := t.Count(from, end)
	if !q.ChoosesAll() {
		return count * lookCost
	}
	sampled, size := int64(0), int64(0)
	t.Ascend(from, end, func(o *Object) bool {
		sampled++
		size += int64(len(o.Bytes))
		return sampled < sampleSize
	})
	if q.Limit > 0 {
		count = min(count, q.Limit)
	}
	return size * count / max(1, sampled)
}
