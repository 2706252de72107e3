package index

import (
	"github.com/google/btree"
)

// degree is the degree of the trees. Smaller nodes make a version cheaper, since each version copies the nodes on the path
// to its change (2.0 KB with 16, 1.6 KB with 8 or 4), and make pages no slower.
const degree = 8

// The bytes that a version takes in addition to its objects: the nodes that it copied in the trees. Where an object comes
// or goes, nodes in ranks, a run of labels, and nodes in the index, if there is one, are copied, too (TestVersionSize).
const (
	replacingSize  = 1650
	membershipSize = 7000
	indexSize      = 5000
)

// Tree is the state of a collection at one revision. It has the objects in the order of their keys, counts of them, their
// labels, and an index by one field if the collection has that. Clones share the nodes that they have in common. Many
// goroutines may read a clone while the original is changed.
type Tree struct {
	objects *btree.BTreeG[*Object]
	ranks   ranks
	labels  labelRuns
	nodes   *btree.BTreeG[nodeKey] // nil if there is no index
}

// nodeKey is an object's place in the index: the value of the indexed field, and the object's key. It does not hold the
// object, so that a new version with the same value leaves the index as it is.
type nodeKey struct{ value, key string }

func (k nodeKey) less(l nodeKey) bool {
	if k.value != l.value {
		return k.value < l.value
	}
	return k.key < l.key
}

// nodeKey returns the object's place in the index, by its first field.
func (o *Object) nodeKey() nodeKey { return nodeKey{o.Fields[0], o.Key} }

// NewTree returns an empty tree. If it is indexed, objects are found by their first field, too.
func NewTree(indexed bool) Tree {
	t := Tree{objects: btree.NewG(degree, objectLess), ranks: newRanks(), labels: newLabelRuns()}
	if indexed {
		t.nodes = btree.NewG(degree, nodeKey.less)
	}
	return t
}

// Clone returns a copy, in O(1). Clone, Set and Remove of one tree must not run at the same time; reads may.
func (t Tree) Clone() Tree {
	c := Tree{objects: t.objects.Clone(), ranks: t.ranks.clone(), labels: t.labels.clone()}
	if t.nodes != nil {
		c.nodes = t.nodes.Clone()
	}
	return c
}

// VersionSize returns the number of bytes that a version takes in addition to its objects. replaces says that it replaces
// an object of the version before; else it has one object more or less.
func (t Tree) VersionSize(replaces bool) int64 {
	switch {
	case replaces:
		return replacingSize
	case t.nodes == nil:
		return membershipSize
	}
	return membershipSize + indexSize
}

// Len returns the number of objects.
func (t Tree) Len() int { return t.objects.Len() }

// Get returns the object with a key.
func (t Tree) Get(key string) (*Object, bool) {
	return t.objects.Get(&Object{Key: key})
}

// Set adds or replaces an object and returns the one it replaces, or nil.
func (t Tree) Set(o *Object) *Object {
	old, replaced := t.objects.ReplaceOrInsert(o)
	if t.nodes != nil && (!replaced || old.Fields[0] != o.Fields[0]) {
		if replaced {
			t.nodes.Delete(old.nodeKey())
		}
		t.nodes.ReplaceOrInsert(o.nodeKey())
	}
	if !replaced || old.Labels != o.Labels {
		t.labels.set(o.Key, o.Labels)
	}
	if replaced {
		return old
	}
	t.ranks.add(o.Key, t.objects)
	return nil
}

// Remove removes an object and returns it, or nil if there was none.
func (t Tree) Remove(key string) *Object {
	old, found := t.objects.Delete(&Object{Key: key})
	if !found {
		return nil
	}
	if t.nodes != nil {
		t.nodes.Delete(old.nodeKey())
	}
	t.labels.remove(key)
	t.ranks.remove(key)
	return old
}

// Ascend calls yield for the objects with from <= key < end in order, until it returns false. An empty end means no end.
func (t Tree) Ascend(from, end string, yield func(*Object) bool) {
	if end == "" {
		t.objects.AscendGreaterOrEqual(&Object{Key: from}, yield)
		return
	}
	t.objects.AscendRange(&Object{Key: from}, &Object{Key: end}, yield)
}

// ascendNode is Ascend for the objects whose indexed field has a value.
func (t Tree) ascendNode(value, from, end string, yield func(*Object) bool) {
	var probe Object
	t.nodes.AscendGreaterOrEqual(nodeKey{value, from}, func(k nodeKey) bool {
		if k.value != value || end != "" && k.key >= end {
			return false
		}
		probe.Key = k.key
		o, found := t.objects.Get(&probe)
		return !found || yield(o)
	})
}

// ascendLabels is Ascend for the objects whose labels m chooses.
func (t Tree) ascendLabels(from, end string, m *matcher, yield func(*Object) bool) {
	var probe Object
	t.labels.scan(from, end, m, func(chosen []string, runLength int) bool {
		probe.Key = chosen[0]
		if len(chosen) > runLength/walkFraction {
			// If many neighbours are chosen, walking over all of them is cheaper than looking up each one.
			return t.ascendChosen(&probe, chosen, yield)
		}
		for _, key := range chosen {
			probe.Key = key
			if o, found := t.objects.Get(&probe); found && !yield(o) {
				return false
			}
		}
		return true
	})
}

// If more than one in walkFraction objects of a run are chosen, all of the run are walked over.
const walkFraction = 8

// ascendChosen calls yield for the objects with the chosen keys, and reports whether it always returned true. from has the
// first of these keys.
func (t Tree) ascendChosen(from *Object, chosen []string, yield func(*Object) bool) (more bool) {
	more = true
	t.objects.AscendGreaterOrEqual(from, func(o *Object) bool {
		if o.Key == chosen[0] {
			chosen = chosen[1:]
			more = yield(o)
		}
		return more && len(chosen) > 0 && o.Key < chosen[len(chosen)-1]
	})
	return more
}

// ascendName is Ascend for the objects with a name. It looks once into each namespace, which has at most one of them.
func (t Tree) ascendName(name, from, end string, yield func(*Object) bool) {
	probe := &Object{Key: from}
	for found := true; found; {
		var next *Object
		t.objects.AscendGreaterOrEqual(probe, func(o *Object) bool { next = o; return false })
		if next == nil || end != "" && next.Key >= end {
			return
		}
		namespace, _ := SplitKey(next.Key)
		if probe.Key = JoinKey(namespace, name); probe.Key >= from && (end == "" || probe.Key < end) {
			if o, found := t.objects.Get(probe); found && !yield(o) {
				return
			}
		}
		probe.Key, found = Scope{Namespace: namespace}.End(), namespace != ""
	}
}

// Any reports whether there is an object with from <= key < end.
func (t Tree) Any(from, end string) bool {
	found := false
	t.Ascend(from, end, func(*Object) bool { found = true; return false })
	return found
}

// Count returns the number of objects with from <= key < end. An empty end means no end.
func (t Tree) Count(from, end string) int64 {
	return t.ranks.count(t, from, end)
}
