package index

import (
	"slices"
	"strings"

	"github.com/google/btree"
)

// Tree is the state of a collection at one revision: the objects in the order of their keys, and an index by one field if the
// collection has an indexed field. Clones share what they have in common, and may be read while the original is changed.
//
// The objects are in runs of up to maxRun neighbours. A change copies one run, and the path to this run in the tree:
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

// run has the objects from its first key up to the next run's first key. It is immutable.
type run struct {
	first string
	// n is the number of objects. It stands here so that Count need not read the columns.
	n int
	*columns
}

// columns has the objects of a run, and at the same indexes the signatures of their labels. So a search for a label reads
// only the objects that probably have the label.
type columns struct {
	objects    []*Object
	signatures []signature
	// union has the bits of all signatures. Neighbours mostly have the same labels, so a search often skips a whole run.
	union signature
}

// indexEntry is an object's entry in the index: the value of the indexed field, and the object's key. It does not hold the
// object, so most updates of the object leave the index as it is.
type indexEntry struct{ value, key string }

const (
	// degree is the degree of the trees. Small nodes make a version cheap: it copies the nodes on the path to its change.
	degree = 4
	// maxRun is the largest number of objects in a run.
	maxRun = 64
)

// The number of bytes that a version takes in addition to its objects, as TestVersionSize measures it.
const (
	replacingSize  = 2000 // An object was replaced: its run and nodes of the tree are copied.
	membershipSize = 2700 // An object came or went: signatures are copied, too.
	indexSize      = 3000 // The object came to the index or left it, too: nodes of the index are copied.
)

func (e indexEntry) less(f indexEntry) bool {
	if e.value != f.value {
		return e.value < f.value
	}
	return e.key < f.key
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

// VersionSize returns the number of bytes of a version, without its objects, after the object before was replaced by the
// object after. before is nil for a new object, and after is nil for a removed one.
func (t Tree) VersionSize(before, after *Object) int64 {
	switch {
	case before != nil && after != nil:
		return replacingSize
	case t.byField == nil:
		return membershipSize
	}
	return membershipSize + indexSize
}

// runOf returns the run to which a key belongs.
func (t Tree) runOf(key string) (found run) {
	t.runs.DescendLessOrEqual(run{first: key}, func(r run) bool {
		found = r
		return false
	})
	return found
}

// search returns the index of the first object whose key is at least key. found reports whether the keys are equal.
func (r run) search(key string) (i int, found bool) {
	return slices.BinarySearchFunc(r.objects, key, func(o *Object, key string) int { return strings.Compare(o.Key, key) })
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
	case !found:
		next := r.splice(i, 0, o)
		if next.n > maxRun {
			low, high := t.split(next, i)
			t.runs.ReplaceOrInsert(low)
			next = high
		}
		t.runs.ReplaceOrInsert(next)
	case old.Labels != o.Labels:
		t.runs.ReplaceOrInsert(r.splice(i, 1, o))
	default:
		c := *r.columns // The signatures stay.
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

// split splits a run that has become too long because of the object at the index added.
func (t Tree) split(r run, added int) (low, high run) {
	at := r.n / 2
	last, _ := t.runs.Max()
	if added == r.n-1 && r.first == last.first {
		at = added // A load adds objects in order. Runs that were split in the middle would stay half empty.
	}
	return r.slice(r.first, 0, at), r.slice(r.objects[at].Key, at, r.n)
}

// Remove removes the object with a key and returns it, or nil if there is none. A run that becomes small joins the run before
// it.
func (t Tree) Remove(key string) *Object {
	r := t.runOf(key)
	i, found := r.search(key)
	if !found {
		return nil
	}
	old := r.objects[i]
	next := r.splice(i, 1)
	isSmall := next.n < maxRun/4
	if before, hasBefore := t.runBefore(r); isSmall && hasBefore && before.n+next.n <= maxRun {
		t.runs.Delete(r)
		next = before.splice(before.n, 0, next.objects...)
	}
	t.runs.ReplaceOrInsert(next)
	if t.byField != nil {
		t.byField.Delete(old.indexEntry())
	}
	return old
}

// runBefore returns the run before r, if there is one.
func (t Tree) runBefore(r run) (before run, found bool) {
	t.runs.DescendLessOrEqual(r, func(other run) bool {
		before = other
		found = other.first != r.first
		return !found
	})
	return before, found
}

// newRun returns a run with these columns.
func newRun(first string, objects []*Object, signatures []signature) run {
	c := &columns{objects: objects, signatures: signatures}
	for _, s := range signatures {
		c.union |= s
	}
	return run{first: first, n: len(objects), columns: c}
}

// splice returns a copy of the run in which the objects added replace those from i to i+removed.
func (r run) splice(i, removed int, added ...*Object) run {
	signatures := make([]signature, len(added))
	for n, o := range added {
		signatures[n] = signatureOf(o.Labels)
	}
	return newRun(r.first, splice(r.objects, i, removed, added...), splice(r.signatures, i, removed, signatures...))
}

// slice returns a run with copies of the columns from low to high.
func (r run) slice(first string, low, high int) run {
	return newRun(first, slices.Clone(r.objects[low:high]), slices.Clone(r.signatures[low:high]))
}

// splice returns a copy of s in which the elements added replace those from i to i+removed.
func splice[T any](s []T, i, removed int, added ...T) []T {
	return slices.Concat(s[:i], added, s[i+removed:])
}

// ascendRuns calls yield for the runs that may have objects with from <= key < end, in order, until yield returns false. The
// objects at the indexes low <= i < high of the run have such keys. An empty end means no end.
func (t Tree) ascendRuns(from, end string, yield func(r run, low, high int) bool) {
	var last run // the run to which end belongs
	if end != "" {
		if from >= end {
			return
		}
		last = t.runOf(end)
	}
	t.runs.AscendGreaterOrEqual(t.runOf(from), func(r run) bool {
		isLast := r.columns == last.columns // The pointer identifies a run. It is nil in last if there is no end.
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
	t.ascendRequired(0, from, end, yield)
}

// ascendRequired is Ascend for the objects whose labels have all bits of a signature. It skips runs without such objects.
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

// ascendIndex is Ascend for the objects whose indexed field has a value.
func (t Tree) ascendIndex(value, from, end string, yield func(*Object) bool) {
	t.byField.AscendGreaterOrEqual(indexEntry{value: value, key: from}, func(e indexEntry) bool {
		isBehindEnd := end != "" && e.key >= end
		if e.value != value || isBehindEnd {
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
