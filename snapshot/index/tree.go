package index

import (
	"github.com/google/btree"
)

// degree of the trees. Smaller nodes make a version cheaper, since each copies the path to what it
// changes (2.0 KB with 16, 1.6 KB with 8 or 4), and pages of them no slower.
const degree = 8

// What a version needs in addition to its objects: the paths that it copied in the trees. Where an object comes or goes,
// that is also in ranks, in a run of labels, and in the index, if there is one (TestVersionSize).
const (
	replacingSize  = 1650
	membershipSize = 7000
	indexSize      = 5000
)

// Tree is the state of a collection at one revision: its objects in key order, how many there
// are from any key on, their labels, and where a field is indexed, in the order of that field.
// Clones share what they have in common; a clone that is only read may be read by many while the
// original changes.
type Tree struct {
	objects *btree.BTreeG[*Object]
	ranks   ranks
	labels  labelRuns
	nodes   *btree.BTreeG[nodeKey] // nil: no index
}

// nodeKey is an object's place in the index: the value of the indexed field, and the key. Since it
// does not hold the object, a new version with the same value leaves the index as it is.
type nodeKey struct{ value, key string }

func (k nodeKey) less(l nodeKey) bool {
	if k.value != l.value {
		return k.value < l.value
	}
	return k.key < l.key
}

// nodeKey is the object's place in the index, by its first field.
func (o *Object) nodeKey() nodeKey { return nodeKey{o.Fields[0], o.Key} }

// NewTree returns an empty tree. If it is indexed, objects are found by their first field, too.
func NewTree(indexed bool) Tree {
	t := Tree{objects: btree.NewG(degree, objectLess), ranks: newRanks(), labels: newLabelRuns()}
	if indexed {
		t.nodes = btree.NewG(degree, nodeKey.less)
	}
	return t
}

// Clone is O(1). Clone, Set and Remove must not run at the same time on the same tree; reads may.
func (t Tree) Clone() Tree {
	c := Tree{objects: t.objects.Clone(), ranks: t.ranks.clone(), labels: t.labels.clone()}
	if t.nodes != nil {
		c.nodes = t.nodes.Clone()
	}
	return c
}

// VersionSize returns the number of bytes that a version needs in addition to its objects, which replaces one, or else has one more
// or less than the version before it.
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
	t.ranks.added(o.Key, t.objects)
	return nil
}

// Remove takes an object out and returns it, or nil if there was none.
func (t Tree) Remove(key string) *Object {
	old, found := t.objects.Delete(&Object{Key: key})
	if !found {
		return nil
	}
	if t.nodes != nil {
		t.nodes.Delete(old.nodeKey())
	}
	t.labels.remove(key)
	t.ranks.removed(key)
	return old
}

// Ascend calls yield for the objects with from <= key < end in order, until it says no.
// An empty end is none.
func (t Tree) Ascend(from, end string, yield func(*Object) bool) {
	if end == "" {
		t.objects.AscendGreaterOrEqual(&Object{Key: from}, yield)
		return
	}
	t.objects.AscendRange(&Object{Key: from}, &Object{Key: end}, yield)
}

// ascendNode is ascend for the objects whose indexed field has a value.
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

// ascendLabels is ascend for the objects whose labels m chooses.
func (t Tree) ascendLabels(from, end string, m *matcher, yield func(*Object) bool) {
	var probe Object
	t.labels.scan(from, end, m, func(chosen []string, of int) bool {
		probe.Key = chosen[0]
		if len(chosen) > of/walkFrom {
			// Most neighbours: to go from one to the next is cheaper than to look each one up.
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

// walkFrom is what part of a run's objects must be chosen to walk over all of them: one in so many.
const walkFrom = 8

// ascendChosen calls yield for the objects of the chosen keys, and says whether it always said yes. from has the
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

// ascendName is ascend for the objects of a name. It visits each namespace once, which has at most one of them.
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

// Count returns how many objects have from <= key < end. An empty end is none.
func (t Tree) Count(from, end string) int64 {
	return t.ranks.count(t, from, end)
}
