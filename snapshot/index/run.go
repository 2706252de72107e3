package index

import (
	"slices"
	"strings"
)

// run is a part of a tree: the objects from the run's first key up to the next run's first key. It is immutable.
type run struct {
	first string // The first key that belongs to the run, whether or not there is an object with this key.
	// n is the number of objects. It is here and not in columns, so that Count need not read the memory of columns.
	n int
	*columns
}

// columns has the objects of a run, and at the same indexes the signatures of their labels. A search for a label compares only
// the signatures (see signature), and reads only the objects that probably have the label.
type columns struct {
	objects    []*Object
	signatures []signature
	// union has the bits of all signatures. If it lacks a bit of a label, no object has the label, and a search skips the whole
	// run. This happens often, since neighbours mostly have the same labels.
	union signature
}

// maxRun is the largest number of objects in a run.
const maxRun = 64

// newRun returns a run with these columns.
func newRun(first string, objects []*Object, signatures []signature) run {
	c := &columns{objects: objects, signatures: signatures}
	for _, s := range signatures {
		c.union |= s
	}
	return run{first: first, n: len(objects), columns: c}
}

// search returns the index of the first object whose key is at least key. found reports whether the keys are equal.
func (r run) search(key string) (i int, found bool) {
	return slices.BinarySearchFunc(r.objects, key, func(o *Object, key string) int { return strings.Compare(o.Key, key) })
}

// replace returns a copy of the run. In the copy, the objects of added are in place of r.objects[i:i+removed].
func (r run) replace(i, removed int, added ...*Object) run {
	signatures := make([]signature, len(added))
	for n, o := range added {
		signatures[n] = signatureOf(o.Labels)
	}
	return newRun(r.first, splice(r.objects, i, removed, added...), splice(r.signatures, i, removed, signatures...))
}

// part returns a run of r.objects[low:high], with columns of its own.
func (r run) part(first string, low, high int) run {
	return newRun(first, slices.Clone(r.objects[low:high]), slices.Clone(r.signatures[low:high]))
}

// splice returns a copy of s. In the copy, the elements of added are in place of s[i:i+removed].
func splice[T any](s []T, i, removed int, added ...T) []T {
	return slices.Concat(s[:i], added, s[i+removed:])
}
