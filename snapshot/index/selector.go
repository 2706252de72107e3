package index

import (
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/sharding"

	"github.com/listproxy/listproxy/snapshot/wire"
)

const (
	// knownSets is how many sets of labels a matcher remembers results for. Most objects share their
	// labels with others of the same owner.
	knownSets = 512
)

// matcher decides which objects a query's selectors choose. It is for one goroutine.
type matcher struct {
	labels labels.Selector // nil: all
	sieve  sieve
	known  map[wire.Labels]bool // nil: nothing is remembered but the last
	// last is the last result: neighbours mostly have the same labels.
	last struct {
		labels  wire.Labels
		matches bool
		valid   bool
	}
	terms []fieldTerm
	// shards are ranges of the hash of a field, any of which chooses; none: all.
	shards  []sharding.ShardRangeRequirement
	shardOf fieldTerm
	// node is the value of the indexed field that is asked for, if hasNode.
	node    string
	hasNode bool
	// namespace that all chosen objects are in, and the name that they have, if not empty.
	namespace, name string
}

// fieldTerm is one term of a field selector.
type fieldTerm struct {
	field int // in the envelope's Paths; or one of those below
	value string
	not   bool
}

const (
	theName      = -2
	theNamespace = -3
)

// newMatcher returns the matcher of a query, or nil if it chooses everything. Envelope.Selects has
// said yes to the fields.
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
		m.shardOf.field = theNamespace
		if m.shards[0].Key == wire.UIDField {
			m.shardOf.field = f.Paths.Find(wire.UIDField)
		}
	}
	return m
}

func (m *matcher) add(f *wire.Envelope, term fields.Requirement) {
	t := fieldTerm{value: term.Value, not: term.Operator == selection.NotEquals}
	switch term.Field {
	case wire.NameField:
		t.field = theName
		if !t.not {
			m.name = t.value
		}
	case wire.NamespaceField:
		t.field = theNamespace
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
		if (t.of(o) == t.value) == t.not {
			return false
		}
	}
	return (m.labels == nil || m.chooses(o.Labels)) && (len(m.shards) == 0 || m.inShards(o))
}

// inShards reports whether the hash of the object's field is in one of the ranges.
func (m *matcher) inShards(o *Object) bool {
	hash := "0x" + sharding.HashField(m.shardOf.of(o))
	return slices.ContainsFunc(m.shards, func(r sharding.ShardRangeRequirement) bool {
		return !sharding.HexLess(hash, r.Start) && sharding.HexLess(hash, r.End)
	})
}

// chooses reports whether labels are chosen.
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

// of is the value that a field has in an object.
func (t fieldTerm) of(o *Object) string {
	switch t.field {
	case theName:
		_, name := SplitKey(o.Key)
		return name
	case theNamespace:
		namespace, _ := SplitKey(o.Key)
		return namespace
	default:
		return o.Fields[t.field]
	}
}
