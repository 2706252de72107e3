package index

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/sharding"

	"github.com/listproxy/listproxy/snapshot/wire"
)

// Filter chooses the objects of a query. It also turns changes into the events of a watch. It is safe for concurrent use.
//
// A chosen object meets all of the conditions below: prefix, key, labels, terms and shards.
type Filter struct {
	prefix string          // The object's key has this prefix.
	key    string          // The object has this key; "" allows all keys.
	labels labels.Selector // The selector matches the object's labels; nil matches all.
	terms  []fieldTerm     // The object matches each of these terms of the field selector.
	// shards are ranges of hashes. The hash of the value that hashedField returns for the object is in at least one of them.
	// Without shards, all objects are chosen.
	shards      []sharding.ShardRangeRequirement
	hashedField func(*Object) string // nil if there are no shards

	// The fields below follow from the conditions, and all chosen objects have these properties. Tree.Page uses them to skip
	// objects quickly, and NarrowestBucket to choose a bucket.

	// required is the signature of the labels that the label selector requires: a bit pattern that the signatures of all chosen
	// objects have (signature.go).
	required signature
	// indexedValue is the value that the field selector requires of the indexed field, provided hasIndexedValue is true.
	indexedValue    string
	hasIndexedValue bool
	// namespace is the namespace that the scope or the field selector requires; empty if they require none.
	namespace string
}

// NewFilter returns the filter of a query. envelope has the fields by which the upstream can select. Its CanSelect must be true
// for q.Fields.
func NewFilter(envelope *wire.Envelope, q Query) Filter {
	f := Filter{prefix: q.Scope.Prefix(), namespace: q.Scope.Namespace}
	if q.Name != "" {
		f.key = f.prefix + q.Name
	}
	if q.Labels != nil && !q.Labels.Empty() {
		f.labels = q.Labels
		f.required = requiredSignature(q.Labels)
	}
	if q.Fields != nil {
		for _, term := range q.Fields.Requirements() {
			f.addTerm(envelope, term)
		}
	}
	if q.Shards != nil {
		f.shards = q.Shards.Requirements()
		f.hashedField = (*Object).namespace
		if f.shards[0].Key == wire.UIDField { // There is at least one range, and all have the same key.
			f.hashedField = fieldReader(envelope.Paths.Find(wire.UIDField))
		}
	}
	return f
}

// addTerm adds a term of the field selector.
func (f *Filter) addTerm(envelope *wire.Envelope, r fields.Requirement) {
	term := fieldTerm{value: r.Value, isNegated: r.Operator == selection.NotEquals}
	switch r.Field {
	case wire.NameField:
		term.read = (*Object).name
	case wire.NamespaceField:
		term.read = (*Object).namespace
		if !term.isNegated && f.namespace == "" {
			f.namespace = term.value
		}
	default:
		i := envelope.Paths.Find(r.Field)
		term.read = fieldReader(i)
		if !term.isNegated && !f.hasIndexedValue && envelope.Paths.IsIndexed(i) {
			f.indexedValue = term.value
			f.hasIndexedValue = true
		}
	}
	f.terms = append(f.terms, term)
}

// fieldTerm is one term of a field selector, such as "spec.nodeName!=a".
type fieldTerm struct {
	read      func(*Object) string // Returns the value of the field.
	value     string
	isNegated bool // The term is field!=value.
}

// matches reports whether the term chooses an object.
func (t fieldTerm) matches(o *Object) bool {
	hasValue := t.read(o) == t.value
	return hasValue != t.isNegated
}

// fieldReader returns a function that reads the value of field i, an index in Object.Fields.
func fieldReader(i int) func(*Object) string {
	return func(o *Object) string { return o.Fields[i] }
}

// matches reports whether an object is chosen. It reads none of the object's bytes.
func (f *Filter) matches(o *Object) bool {
	isInScope := strings.HasPrefix(o.Key, f.prefix) && (f.key == "" || o.Key == f.key)
	return isInScope && f.matchesLabels(o.Labels) && f.matchesFields(o)
}

// matchesLabels reports whether the label selector chooses a set of labels.
func (f *Filter) matchesLabels(set wire.Labels) bool { return f.labels == nil || f.labels.Matches(set) }

// matchesFields reports whether the field selector and the selector of shards choose an object.
func (f *Filter) matchesFields(o *Object) bool {
	for _, term := range f.terms {
		if !term.matches(o) {
			return false
		}
	}
	return len(f.shards) == 0 || f.isInShards(o)
}

// isInShards reports whether the hash of the object's hashedField is in one of the ranges. A range has its start, but not its
// end.
func (f *Filter) isInShards(o *Object) bool {
	hash := "0x" + sharding.HashField(f.hashedField(o)) // as Start and End are written
	return slices.ContainsFunc(f.shards, func(r sharding.ShardRangeRequirement) bool {
		return !sharding.HexLess(hash, r.Start) && sharding.HexLess(hash, r.End)
	})
}

// Event returns the type and the object of the event that a watch with this filter gets for a change. It returns "" and nil if
// the watch gets no event. The caller must send the object with the revision of the change. For example, a watch of app=a gets
// DELETED when the labels of an object change from app=a to app=b, and ADDED when they change back.
func (f *Filter) Event(c Change) (eventType string, object *Object) {
	matchedBefore := c.Before != nil && f.matches(c.Before)
	matchesNow := c.After != nil && !c.Deleted && f.matches(c.After) // After a deletion, c.After is the object's last state.
	switch {
	case matchesNow && matchedBefore:
		return wire.Modified, c.After
	case matchesNow:
		return wire.Added, c.After
	case matchedBefore && c.Deleted:
		return wire.Deleted, c.After
	case matchedBefore: // The object exists, but is not chosen any more.
		return wire.Deleted, c.Before // The client sees the object as it was when it was last chosen.
	}
	return "", nil
}
