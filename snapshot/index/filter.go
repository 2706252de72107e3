package index

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/listproxy/listproxy/snapshot/wire"
)

// Filter chooses the objects that a watch is about. It is for one goroutine. It is small, since there may be thousands.
type Filter struct {
	prefix string
	key    string // the key of the only object; empty if there may be several
	m      *matcher
}

// NewFilter returns the filter of the scope and the selectors of q. Envelope.Selects must be true for q.Fields.
func NewFilter(f *wire.Envelope, q Query) Filter {
	filter := Filter{prefix: q.Scope.Prefix(), m: newMatcher(f, q)}
	if q.Name != "" {
		filter.key = filter.prefix + q.Name
	}
	if filter.m != nil {
		filter.m.known = nil
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
	return f.m == nil || f.m.matches(o)
}

// Event returns the type and the object of the event that a watch with this filter gets for a change; "" and nil if it
// gets none. If the object does not match any more, that is the object from before the change, which must be sent with the
// revision of the change.
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

// BucketKind is the property by which objects are put into buckets.
type BucketKind uint8

// The kinds of buckets, from the widest to the narrowest.
const (
	OfAll BucketKind = iota
	OfNamespace
	OfLabel
	OfLabelInNamespace
	OfNode
	OfName
	OfKey
	BucketKinds // the number of kinds
)

// Bucket is a set of objects, for example those of one namespace, or of one node. Each filter is in one bucket. A change of
// an object outside that bucket does not concern the filter.
type Bucket struct {
	Kind BucketKind
	// Name is the namespace, node, name or key that all objects have; in a bucket of a label, the label's key.
	Name string
	// Value is the label's value. Namespace is the namespace of all objects in a bucket of OfLabelInNamespace.
	Value, Namespace string
}

// HasLabelOf reports whether the object is in a bucket of labels.
func (o *Object) HasLabelOf(b Bucket) bool {
	if b.Kind != OfLabel && b.Kind != OfLabelInNamespace {
		return false
	}
	value, found := o.Labels.Lookup(b.Name)
	namespace, _ := SplitKey(o.Key)
	return found && value == b.Value && (b.Kind == OfLabel || b.Namespace == namespace)
}

// Bucket returns the narrowest bucket that contains all objects of the filter.
func (f *Filter) Bucket() Bucket {
	if f.key != "" {
		return Bucket{Kind: OfKey, Name: f.key}
	}
	namespace := ""
	if f.prefix != "" {
		namespace = f.prefix[:len(f.prefix)-1]
	}
	if f.m != nil {
		if namespace == "" {
			namespace = f.m.namespace
		}
		key, value, ok := demandedLabel(f.m.labels)
		switch {
		case f.m.name != "":
			return Bucket{Kind: OfName, Name: f.m.name}
		case f.m.hasNode:
			return Bucket{Kind: OfNode, Name: f.m.node}
		case ok && namespace != "":
			return Bucket{Kind: OfLabelInNamespace, Name: key, Value: value, Namespace: namespace}
		case ok:
			return Bucket{Kind: OfLabel, Name: key, Value: value}
		}
	}
	if namespace != "" {
		return Bucket{Kind: OfNamespace, Name: namespace}
	}
	return Bucket{}
}

// demandedLabel returns a label that an object must have to be chosen by the selector; ok is false if none is found.
func demandedLabel(s labels.Selector) (key, value string, ok bool) {
	if s == nil {
		return "", "", false
	}
	requirements, _ := s.Requirements()
	for _, r := range requirements {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			if values := r.Values(); values.Len() == 1 {
				return r.Key(), values.UnsortedList()[0], true
			}
		}
	}
	return "", "", false
}

// EachBucket calls yield with each bucket that the object is in and whose kind is wanted, that is not 0. It returns false
// if the object has too many labels to visit each: then HasLabelOf must be asked for each bucket of a label.
func (o *Object) EachBucket(wanted *[BucketKinds]int, yield func(Bucket)) (all bool) {
	yield(Bucket{})
	if wanted[OfKey] > 0 {
		yield(Bucket{Kind: OfKey, Name: o.Key})
	}
	namespace, name := SplitKey(o.Key)
	if wanted[OfName] > 0 {
		yield(Bucket{Kind: OfName, Name: name})
	}
	if wanted[OfNamespace] > 0 {
		yield(Bucket{Kind: OfNamespace, Name: namespace})
	}
	if wanted[OfNode] > 0 && len(o.Fields) > 0 {
		yield(Bucket{Kind: OfNode, Name: o.Fields[0]})
	}
	if wanted[OfLabel]+wanted[OfLabelInNamespace] == 0 {
		return true
	}
	return o.Labels.Each(func(key, value string) {
		if wanted[OfLabel] > 0 {
			yield(Bucket{Kind: OfLabel, Name: key, Value: value})
		}
		if wanted[OfLabelInNamespace] > 0 {
			yield(Bucket{Kind: OfLabelInNamespace, Name: key, Value: value, Namespace: namespace})
		}
	})
}
