package index

import "github.com/google/btree"

// Tree is the state of a collection at one revision: the objects in the order of their keys, and an index by one field if the
// collection has an indexed field (such as spec.nodeName of pods).
//
// A variable of type Tree is a handle, like a map: after b := a, Set and Remove of a also change b. Clone makes another tree. A
// change of one of them does not change the other. They share the memory of the parts that are equal.
//
// The objects are in runs of up to maxRun neighbours (run.go). A change copies one run, and the path to this run in the tree:
//
//	before  [a b c] [d e f]    after d has changed  [a b c] [d' e f]
//
// Both states share the run [a b c]. Objects are counted by the lengths of runs, without visiting the objects.
type Tree struct {
	// runs has the runs in the order of their first keys. There is always a run that begins at "".
	runs *btree.BTreeG[run]
	// byField is the index; nil if there is none.
	byField *btree.BTreeG[indexEntry]
}

// indexEntry is an object's entry in the index: the value of the indexed field, and the object's key. It does not hold the
// object, so most updates of the object leave the index as it is.
type indexEntry struct{ value, key string }

// degree is the degree of the trees. Nodes are small, since the first change of an object after a Clone copies every node on
// the path to it.
const degree = 4

// less orders the entries by value, and those with the same value by key.
func (e indexEntry) less(other indexEntry) bool {
	return e.value < other.value || (e.value == other.value && e.key < other.key)
}

// indexEntry returns the object's entry in the index, which is by the first field.
func (o *Object) indexEntry() indexEntry { return indexEntry{value: o.Fields[0], key: o.Key} }

// NewTree returns an empty tree. If indexed is true, it has an index by the objects' first field.
func NewTree(indexed bool) Tree {
	t := Tree{runs: btree.NewG(degree, func(a, b run) bool { return a.first < b.first })}
	t.runs.ReplaceOrInsert(newRun("", nil, nil))
	if indexed {
		t.byField = btree.NewG(degree, indexEntry.less)
	}
	return t
}

// Clone returns a copy, in O(1). Only one of Clone, Set and Remove may run on a tree at a time. While Set or Remove runs, its
// clones may be read, but not the tree itself.
func (t Tree) Clone() Tree {
	c := Tree{runs: t.runs.Clone()}
	if t.byField != nil {
		c.byField = t.byField.Clone()
	}
	return c
}

// runOf returns the run to which a key belongs: the last run whose first key is not above it.
func (t Tree) runOf(key string) (found run) {
	t.runs.DescendLessOrEqual(run{first: key}, func(r run) bool {
		found = r
		return false
	})
	return found
}

// Len returns the number of objects.
func (t Tree) Len() int { return int(t.Count("", "")) }

// Get returns the object with a key, and reports whether there is one.
func (t Tree) Get(key string) (*Object, bool) {
	r := t.runOf(key)
	i, found := r.search(key)
	if !found {
		return nil, false
	}
	return r.objects[i], true
}

// Set adds an object, or replaces the object with its key. It returns the replaced object, or nil if there was none.
func (t Tree) Set(o *Object) (old *Object) {
	r := t.runOf(o.Key)
	i, found := r.search(o.Key)
	if found {
		old = r.objects[i]
	}
	switch {
	case !found: // The run grows, and may be split.
		next := r.replace(i, 0, o)
		if next.n > maxRun {
			low, high := t.split(next, i)
			t.runs.ReplaceOrInsert(low)
			next = high
		}
		t.runs.ReplaceOrInsert(next)
	case old.Labels != o.Labels: // The object and its signature change.
		t.runs.ReplaceOrInsert(r.replace(i, 1, o))
	default: // Only the object changes, so the new run shares the signatures.
		c := *r.columns
		c.objects = splice(r.objects, i, 1, o)
		t.runs.ReplaceOrInsert(run{first: r.first, n: r.n, columns: &c})
	}
	if t.byField != nil && (old == nil || old.Fields[0] != o.Fields[0]) {
		if old != nil {
			t.byField.Delete(old.indexEntry())
		}
		t.byField.ReplaceOrInsert(o.indexEntry())
	}
	return old
}

// split splits a run that has become too long. newIndex is the index of the new object that has made it too long. The run is
// split in the middle, except if objects are added in order, as a load does: then full runs stay full.
func (t Tree) split(r run, newIndex int) (low, high run) {
	cut := r.n / 2
	last, _ := t.runs.Max() // There is always a run.
	if newIndex == r.n-1 && r.first == last.first {
		cut = newIndex // The new object is the tree's last, so it begins a new run.
	}
	return r.part(r.first, 0, cut), r.part(r.objects[cut].Key, cut, r.n)
}

// Remove removes the object with a key and returns it, or nil if there is none. If the object's run becomes small, it is joined
// to the run before it, unless both together are too long.
func (t Tree) Remove(key string) *Object {
	r := t.runOf(key)
	i, found := r.search(key)
	if !found {
		return nil
	}
	old := r.objects[i]
	next := r.replace(i, 1)
	isSmall := next.n < maxRun/4
	if before, hasBefore := t.runBefore(r); isSmall && hasBefore && before.n+next.n <= maxRun {
		t.runs.Delete(r)
		next = before.replace(before.n, 0, next.objects...)
	}
	t.runs.ReplaceOrInsert(next)
	if t.byField != nil {
		t.byField.Delete(old.indexEntry())
	}
	return old
}

// runBefore returns the run before r, if there is one.
func (t Tree) runBefore(r run) (before run, found bool) {
	t.runs.DescendLessOrEqual(r, func(other run) bool { // r comes first, and then the run before it
		before = other
		found = other.first != r.first
		return !found
	})
	return before, found
}

// ascendRuns calls yield for the runs that may have objects with from <= key < end, in order, until yield returns false. In a
// run r, these objects are r.objects[low:high]. An empty end means no end.
func (t Tree) ascendRuns(from, end string, yield func(r run, low, high int) bool) {
	var last run // the run to which end belongs
	if end != "" {
		if from >= end {
			return
		}
		last = t.runOf(end)
	}
	t.runs.AscendGreaterOrEqual(t.runOf(from), func(r run) bool {
		isLast := end != "" && r.first == last.first
		low, high := 0, r.n
		if r.first < from {
			low, _ = r.search(from)
		}
		if isLast {
			high, _ = r.search(end)
		}
		return yield(r, low, high) && !isLast
	})
}

// Ascend calls yield for the objects with from <= key < end, in order, until yield returns false. An empty end means no end.
func (t Tree) Ascend(from, end string, yield func(*Object) bool) {
	const noLabels = signature(0)
	t.ascendRequired(noLabels, from, end, yield)
}

// ascendRequired is Ascend for the objects whose signature has all bits of required. It skips whole runs without such objects.
func (t Tree) ascendRequired(required signature, from, end string, yield func(*Object) bool) {
	t.ascendRuns(from, end, func(r run, low, high int) bool {
		if !r.union.has(required) {
			return true
		}
		for i := low; i < high; i++ {
			if r.signatures[i].has(required) && !yield(r.objects[i]) {
				return false
			}
		}
		return true
	})
}

// ascendIndex is Ascend for the objects whose indexed field has a value. It visits no other objects.
func (t Tree) ascendIndex(value, from, end string, yield func(*Object) bool) {
	t.byField.AscendGreaterOrEqual(indexEntry{value: value, key: from}, func(e indexEntry) bool {
		isPastEnd := end != "" && e.key >= end
		if e.value != value || isPastEnd {
			return false
		}
		o, _ := t.Get(e.key) // It is always found: the index has only keys of the tree.
		return yield(o)
	})
}

// Count returns the number of objects with from <= key < end. An empty end means no end.
func (t Tree) Count(from, end string) (n int64) {
	t.ascendRuns(from, end, func(_ run, low, high int) bool {
		n += int64(high - low)
		return true
	})
	return n
}
