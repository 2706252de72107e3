package index

import (
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/sharding"

	"github.com/listproxy/listproxy/snapshot/wire"
)

// matcher decides which objects a query's selectors choose: those that match the labels, all terms, and one of the shards. It is
// immutable.
type matcher struct {
	labels labels.Selector // nil matches all objects
	terms  []fieldTerm
	// shards are ranges of hashes. An object matches a shard if the hash of its value from readSharded is in the range. If there
	// are none, all objects match.
	shards      []sharding.ShardRangeRequirement
	readSharded func(*Object) string // nil if there are no shards

	// All chosen objects have the properties below. Page skips objects without them, and a Filter is kept in the bucket of the
	// objects that have one of them.

	// required is the signature of the labels that the label selector requires.
	required signature
	// indexedValue is the value that the field selector requires of the indexed field, provided hasIndexedValue is true.
	indexedValue    string
	hasIndexedValue bool
	// namespace is the namespace that the scope or the field selector requires; empty if they require none.
	namespace string
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

// newMatcher returns the matcher of a query. Envelope.CanSelect must be true for q.Fields.
func newMatcher(envelope *wire.Envelope, q Query) *matcher {
	m := &matcher{namespace: q.Scope.Namespace}
	if q.Labels != nil && !q.Labels.Empty() {
		m.labels = q.Labels
		m.required = requiredSignature(q.Labels)
	}
	if q.Fields != nil {
		for _, term := range q.Fields.Requirements() {
			m.addTerm(envelope, term)
		}
	}
	if q.Shards != nil {
		m.shards = q.Shards.Requirements()
		switch m.shards[0].Key { // There is at least one range, and all have the same key.
		case wire.UIDField:
			m.readSharded = fieldReader(envelope.Paths.Find(wire.UIDField))
		default:
			m.readSharded = (*Object).namespace
		}
	}
	return m
}

// addTerm adds a term of the field selector.
func (m *matcher) addTerm(envelope *wire.Envelope, r fields.Requirement) {
	term := fieldTerm{value: r.Value, isNegated: r.Operator == selection.NotEquals}
	switch r.Field {
	case wire.NameField:
		term.read = (*Object).name
	case wire.NamespaceField:
		term.read = (*Object).namespace
		if !term.isNegated && m.namespace == "" {
			m.namespace = term.value
		}
	default:
		i := envelope.Paths.Find(r.Field)
		term.read = fieldReader(i)
		if !term.isNegated && !m.hasIndexedValue && envelope.Paths.IsIndexed(i) {
			m.indexedValue = term.value
			m.hasIndexedValue = true
		}
	}
	m.terms = append(m.terms, term)
}

// fieldReader returns a function that returns the value of field i of an object.
func fieldReader(i int) func(*Object) string {
	return func(o *Object) string { return o.Fields[i] }
}

// matches reports whether all selectors choose an object. It reads none of the object's bytes.
func (m *matcher) matches(o *Object) bool { return m.matchesLabels(o.Labels) && m.matchesFields(o) }

// matchesLabels reports whether the label selector chooses a set of labels.
func (m *matcher) matchesLabels(set wire.Labels) bool {
	return m.labels == nil || m.labels.Matches(set)
}

// matchesFields reports whether the field selector and the selector of shards choose an object.
func (m *matcher) matchesFields(o *Object) bool {
	for _, term := range m.terms {
		if !term.matches(o) {
			return false
		}
	}
	return len(m.shards) == 0 || m.isInShards(o)
}

// isInShards reports whether the hash of the object's field is in one of the ranges.
func (m *matcher) isInShards(o *Object) bool {
	hash := "0x" + sharding.HashField(m.readSharded(o)) // as Start and End are written
	return slices.ContainsFunc(m.shards, func(r sharding.ShardRangeRequirement) bool {
		return !sharding.HexLess(hash, r.Start) && sharding.HexLess(hash, r.End)
	})
}
