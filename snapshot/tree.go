package snapshot

import (
	"github.com/google/btree"
)

// degree of the object trees. design.md ("History") has the measurement behind it.
const degree = 16

// tree is the state of a collection at one revision: its objects in key order, and how many
// there are from any key on. Clones share what they have in common; a clone that is only read
// may be read by many while the original changes.
type tree struct {
	objects *btree.BTreeG[*Object]
	ranks   ranks
}

func newTree() tree {
	return tree{objects: btree.NewG(degree, objectLess), ranks: newRanks()}
}

// clone is O(1). It must not run at the same time as another call on the same tree.
func (t tree) clone() tree {
	return tree{objects: t.objects.Clone(), ranks: t.ranks.clone()}
}

func (t tree) len() int { return t.objects.Len() }

func (t tree) get(key string) (*Object, bool) {
	return t.objects.Get(&Object{Key: key})
}

// set adds or replaces an object and returns the one it replaces, or nil.
func (t tree) set(o *Object) *Object {
	old, replaced := t.objects.ReplaceOrInsert(o)
	if replaced {
		return old
	}
	t.ranks.added(o.Key, t.objects)
	return nil
}

// remove takes an object out and returns it, or nil if there was none.
func (t tree) remove(key string) *Object {
	old, found := t.objects.Delete(&Object{Key: key})
	if !found {
		return nil
	}
	t.ranks.removed(key)
	return old
}

// ascend calls yield for the objects with from <= key < end in order, until it says no.
// An empty end is none.
func (t tree) ascend(from, end string, yield func(*Object) bool) {
	if end == "" {
		t.objects.AscendGreaterOrEqual(&Object{Key: from}, yield)
		return
	}
	t.objects.AscendRange(&Object{Key: from}, &Object{Key: end}, yield)
}

// count says how many objects have from <= key < end. An empty end is none.
func (t tree) count(from, end string) int64 {
	return t.ranks.count(t, from, end)
}
