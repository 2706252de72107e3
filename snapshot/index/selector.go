package index

import (
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/sharding"

	"github.com/listproxy/listproxy/snapshot/wire"
)

// matcher decides which objects a query's selectors choose. It is for one goroutine if it remembers results (known).
type matcher struct {
	labels labels.Selector // nil chooses all
	// demands is the signature of the labels that the selector demands.
	demands signature
	terms   []fieldTerm
	// shards are ranges of the hash of a field, which readSharded reads. An object is chosen if its hash is in any of
	// them, or there are none.
	shards      []sharding.ShardRangeRequirement
	readSharded func(*Object) string
	// indexed is the value that the indexed field must have, if hasIndexed.
	indexed    string
	hasIndexed bool
	// namespace is the one that all chosen objects have; empty if the field selector does not demand any.
	namespace string
}

// fieldTerm is one term of a field selector, as in "spec.nodeName!=a".
type fieldTerm struct {
	read  func(*Object) string // returns the value of the field
	value string
	not   bool
}

// newMatcher returns the matcher of a query. It remembers no results. Envelope.CanSelect must be true for q.Fields.
func newMatcher(f *wire.Envelope, q Query) *matcher {
	m := &matcher{}
	if q.Labels != nil && !q.Labels.Empty() {
		m.labels = q.Labels
		m.demands = demandedBy(q.Labels)
	}
	if q.Fields != nil {
		for _, term := range q.Fields.Requirements() {
			m.add(f, term)
		}
	}
	if q.Shards != nil {
		m.shards = q.Shards.Requirements()
		m.readSharded = (*Object).namespace
		if m.shards[0].Key == wire.UIDField {
			m.readSharded = fieldReader(f.Paths.Find(wire.UIDField))
		}
	}
	return m
}

// add adds a term of the field selector.
func (m *matcher) add(f *wire.Envelope, term fields.Requirement) {
	t := fieldTerm{value: term.Value, not: term.Operator == selection.NotEquals}
	switch term.Field {
	case wire.NameField:
		t.read = (*Object).name
	case wire.NamespaceField:
		t.read = (*Object).namespace
		if !t.not {
			m.namespace = t.value
		}
	default:
		i := f.Paths.Find(term.Field)
		t.read = fieldReader(i)
		if !t.not && !m.hasIndexed && f.Paths.IsIndexed(i) {
			m.indexed, m.hasIndexed = t.value, true
		}
	}
	m.terms = append(m.terms, t)
}

// fieldReader returns a function that returns the value of field i of an object.
func fieldReader(i int) func(*Object) string {
	return func(o *Object) string { return o.Fields[i] }
}

// matches reports whether an object is chosen. It reads none of the object's bytes.
func (m *matcher) matches(o *Object) bool { return m.matchesLabels(o.Labels) && m.matchesFields(o) }

// matchesLabels reports whether the label selector chooses a set of labels.
func (m *matcher) matchesLabels(set wire.Labels) bool {
	return m.labels == nil || m.labels.Matches(set)
}

// matchesFields reports whether the field selector and the selector of shards choose an object.
func (m *matcher) matchesFields(o *Object) bool {
	for _, t := range m.terms {
		if (t.read(o) == t.value) == t.not {
			return false
		}
	}
	return len(m.shards) == 0 || m.inShards(o)
}

// inShards reports whether the hash of the object's field is in one of the ranges.
func (m *matcher) inShards(o *Object) bool {
	hash := "0x" + sharding.HashField(m.readSharded(o))
	return slices.ContainsFunc(m.shards, func(r sharding.ShardRangeRequirement) bool {
		return !sharding.HexLess(hash, r.Start) && sharding.HexLess(hash, r.End)
	})
}
