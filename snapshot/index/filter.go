package index

import (
	"slices"
	"strings"

	"github.com/listproxy/listproxy/snapshot/wire"
)

// Filter chooses the objects of a watch, and makes its events from changes. It is safe for concurrent use.
type Filter struct {
	prefix  string // All chosen objects have keys with this prefix.
	key     string // Only the object with this key is chosen. If it is empty, there may be several.
	matcher matcher
}

// NewFilter returns the filter of a query's scope, name and selectors. Envelope.CanSelect must be true for q.Fields.
func NewFilter(envelope *wire.Envelope, q Query) Filter {
	filter := Filter{prefix: q.Scope.Prefix(), matcher: *newMatcher(envelope, q)}
	if q.Name != "" {
		filter.key = filter.prefix + q.Name
	}
	return filter
}

// matches reports whether an object is chosen. It reads none of the object's bytes.
func (f *Filter) matches(o *Object) bool {
	if f.key != "" && o.Key != f.key {
		return false
	}
	return strings.HasPrefix(o.Key, f.prefix) && f.matcher.matches(o)
}

// Event returns the type and the object of a watch's event for a change, or "" and nil if the watch gets no event. The event
// must be sent with the revision of the change.
func (f *Filter) Event(c Change) (eventType string, object *Object) {
	// If c.Deleted, c.After is the last state of the deleted object.
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
		return wire.Deleted, c.Before // The client sees the object as it was when it last matched.
	}
	return "", nil
}

// Bucket is a set of objects, for example those of one namespace. The zero Bucket has all objects. Buckets serve to find the filters
// that a change concerns: each filter is kept under its [Filter.NarrowestBucket], and a change concerns only filters under its
// [Change.Buckets].
//
// kube-apiserver dispatches events by the same properties (storage/cacher, its triggers and scopes), and by one more: a
// name in all namespaces.
type Bucket struct {
	kind  bucketKind
	value string
}

// bucketKind says what the value of a bucket is, which its objects have in common.
type bucketKind uint8

const (
	allObjects bucketKind = iota
	ofNamespace
	ofIndexedValue // This is the value of the indexed field, such as the node of a pod.
	ofKey
)

// NarrowestBucket returns the narrowest bucket that has all objects of the filter.
func (f *Filter) NarrowestBucket() Bucket {
	switch {
	case f.key != "":
		return Bucket{kind: ofKey, value: f.key}
	case f.matcher.hasIndexedValue:
		return Bucket{kind: ofIndexedValue, value: f.matcher.indexedValue}
	case f.matcher.namespace != "":
		return Bucket{kind: ofNamespace, value: f.matcher.namespace}
	}
	return Bucket{}
}

// Buckets returns the buckets that have the object before or after the change, each once.
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

// buckets returns the buckets that have the object.
func (o *Object) buckets() []Bucket {
	all := []Bucket{{}, {kind: ofKey, value: o.Key}, {kind: ofNamespace, value: o.namespace()}}
	if len(o.Fields) > 0 {
		all = append(all, Bucket{kind: ofIndexedValue, value: o.Fields[0]}) // the indexed field is the first
	}
	return all
}
