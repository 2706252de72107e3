package index

import (
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/sharding"

	"github.com/listproxy/listproxy/snapshot/wire"
)

// knownSets is the number of sets of labels whose results a matcher remembers. Most objects have the same labels as others
// of the same owner.
const knownSets = 512

// matcher decides which objects a query's selectors choose. It is for one goroutine.
type matcher struct {
	labels labels.Selector // nil chooses all
	sieve  sieve
	known  map[wire.Labels]bool // the results for some sets; nil if only the last is remembered
	// last is the last result: neighbours mostly have the same labels.
	last struct {
		labels  wire.Labels
		matches bool
		valid   bool
	}
	terms []fieldTerm
	// shards are ranges of the hash of shardField. An object is chosen if its hash is in any of them, or there are none.
	shards     []sharding.ShardRangeRequirement
	shardField fieldTerm
	// node is the value that the indexed field must have, if hasNode.
	node    string
	hasNode bool
	// namespace and name are those that all chosen objects have; empty if the selector does not demand any.
	namespace, name string
}

// fieldTerm is one term of a field selector.
type fieldTerm struct {
	field int // the index in the envelope's Paths, or nameOfKey or namespaceOfKey
	value string
	not   bool
}

const (
	nameOfKey      = -2
	namespaceOfKey = -3
)

// newMatcher returns the matcher of a query, or nil if it chooses everything. Envelope.Selects must be true for q.Fields.
func newMatcher(f *wire.Envelope, q Query) *matcher {
	if q.ChoosesAll() {
		return nil
	}
	m := &matcher{}
	if q.Labels != nil && !q.Labels.Empty() {
		m.labels = q.Labels
		m.sieve = newSieve(q.Labels)
		m.known = map[wire.Labels]bool{}
	}
	if q.Fields != nil {
		for _, term := range q.Fields.Requirements() {
			m.add(f, term)
		}
	}
	if q.Shards != nil {
		m.shards = q.Shards.Requirements()
		m.shardField.field = namespaceOfKey
		if m.shards[0].Key == wire.UIDField {
			m.shardField.field = f.Paths.Find(wire.UIDField)
		}
	}
	return m
}

// add adds a term of the field selector.
func (m *matcher) add(f *wire.Envelope, term fields.Requirement) {
	t := fieldTerm{value: term.Value, not: term.Operator == selection.NotEquals}
	switch term.Field {
	case wire.NameField:
		t.field = nameOfKey
		if !t.not {
			m.name = t.value
		}
	case wire.NamespaceField:
		t.field = namespaceOfKey
		if !t.not {
			m.namespace = t.value
		}
	default:
		t.field = f.Paths.Find(term.Field)
		if !t.not && !m.hasNode && f.Paths.ReadsIndex(t.field) {
			m.node, m.hasNode = t.value, true
		}
	}
	m.terms = append(m.terms, t)
}

// matches reports whether an object is chosen. It touches none of the object's bytes.
func (m *matcher) matches(o *Object) bool {
	for _, t := range m.terms {
		if (t.valueIn(o) == t.value) == t.not {
			return false
		}
	}
	return (m.labels == nil || m.chooses(o.Labels)) && (len(m.shards) == 0 || m.inShards(o))
}

// inShards reports whether the hash of the object's field is in one of the ranges.
func (m *matcher) inShards(o *Object) bool {
	hash := "0x" + sharding.HashField(m.shardField.valueIn(o))
	return slices.ContainsFunc(m.shards, func(r sharding.ShardRangeRequirement) bool {
		return !sharding.HexLess(hash, r.Start) && sharding.HexLess(hash, r.End)
	})
}

// chooses reports whether the label selector chooses a set of labels.
func (m *matcher) chooses(set wire.Labels) bool {
	if m.last.valid && m.last.labels == set {
		return m.last.matches
	}
	matches, known := m.known[set]
	if !known {
		matches = m.labels.Matches(set)
		if m.known != nil && len(m.known) < knownSets {
			m.known[set] = matches
		}
	}
	m.last.labels, m.last.matches, m.last.valid = set, matches, true
	return matches
}

// valueIn returns the value that the term's field has in an object.
func (t fieldTerm) valueIn(o *Object) string {
	switch t.field {
	case nameOfKey:
		_, name := SplitKey(o.Key)
		return name
	case namespaceOfKey:
		namespace, _ := SplitKey(o.Key)
		return namespace
	default:
		return o.Fields[t.field]
	}
}
