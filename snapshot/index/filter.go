package index

import (
	"slices"

	"github.com/listproxy/listproxy/snapshot/wire"
)

// Filter chooses the objects that a watch is about. It is small, since there may be thousands. It is safe
// for concurrent use.
type Filter struct {
	prefix  string
	key     string   // the key of the only object; empty if there may be several
	matcher *matcher // nil chooses all
}

// NewFilter returns the filter of the scope and the selectors of q. Envelope.CanSelect must be true for q.Fields.
func NewFilter(f *wire.Envelope, q Query) Filter {
	filter := Filter{prefix: q.Scope.Prefix()}
	if q.Name != "" {
		filter.key = filter.prefix + q.Name
	}
	if !q.ChoosesAll() {
		filter.matcher = newMatcher(f, q)
	}
	return filter
}

// matches reports whether an object is chosen. It reads none of the object's bytes.
func (f *Filter) matches(o *Object) bool {
	switch {
	case f.key != "" && o.Key != f.key:
		return false
	case len(o.Key) < len(f.prefix) || o.Key[:len(f.prefix)] != f.prefix:
		return false
	}
	return f.matcher == nil || f.matcher.matches(o)
}

// Event returns the type and the object of the event that a watch with this filter gets for a change; "" and nil if
// it gets none. If the object does not match any more, that is the object from before the change, which must be sent
// with the revision of the change.
func (f *Filter) Event(c Change) (kind string, object *Object) {
	matchedBefore := c.Before != nil && f.matches(c.Before)
	matchesNow := c.After != nil && !c.Deleted && f.matches(c.After)
	switch {
	case matchesNow && matchedBefore:
		return wire.Modified, c.After
	case matchesNow:
		return wire.Added, c.After
	case matchedBefore && c.Deleted:
		return wire.Deleted, c.After
	case matchedBefore:
		return wire.Deleted, c.Before
	}
	return "", nil
}

// Bucket is a set of objects, for example those of one namespace. Each filter is in one bucket: a change of an object
// outside that bucket does not concern the filter. The zero Bucket has all objects.
//
// kube-apiserver chooses by such properties which watches get an event (storage/cacher, its triggers and scopes). It has
// one more, a name in all namespaces.
type Bucket struct {
	property property
	value    string
}

// property is what all objects of a bucket have in common.
type property uint8

const (
	existence property = iota
	sameNamespace
	sameIndexed // the value of the indexed field, as the node of pods
	sameKey
)

// Bucket returns the narrowest bucket that contains all objects of the filter.
func (f *Filter) Bucket() Bucket {
	namespace := ""
	switch {
	case f.key != "":
		return Bucket{property: sameKey, value: f.key}
	case f.matcher != nil && f.matcher.hasIndexed:
		return Bucket{property: sameIndexed, value: f.matcher.indexed}
	case f.prefix != "":
		namespace = f.prefix[:len(f.prefix)-1]
	case f.matcher != nil:
		namespace = f.matcher.namespace
	}
	if namespace != "" {
		return Bucket{property: sameNamespace, value: namespace}
	}
	return Bucket{}
}

// Buckets returns the buckets that the object was in before the change, and those that it is in after it, each once.
func (c Change) Buckets() (all []Bucket) {
	for _, o := range []*Object{c.Before, c.After} {
		if o == nil {
			continue
		}
		for _, b := range o.buckets() {
			if !slices.Contains(all, b) {
				all = append(all, b)
			}
		}
	}
	return all
}

// buckets returns the buckets that the object is in.
func (o *Object) buckets() []Bucket {
	all := []Bucket{{}, {property: sameKey, value: o.Key}, {property: sameNamespace, value: o.namespace()}}
	if len(o.Fields) > 0 {
		all = append(all, Bucket{property: sameIndexed, value: o.Fields[0]})
	}
	return all
}
