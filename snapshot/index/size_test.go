package index

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
)

// TestVersionSize: VersionSize returns no less than the memory that a version takes in addition to its objects, and at most
// twice as much, whether an object is replaced, added or removed.
func TestVersionSize(t *testing.T) {
	replace := func(tree Tree, n int, objects []*Object) { tree.Set(objects[n]) }
	remove := func(tree Tree, n int, objects []*Object) { tree.Remove(objects[n].Key) }
	removeAndAdd := func(tree Tree, n int, objects []*Object) {
		if isEven := n%2 == 0; isEven {
			tree.Remove(objects[n].Key)
		} else {
			tree.Set(objects[n-1]) // Change n-1 has removed it.
		}
	}
	for _, indexed := range []bool{false, true} {
		for name, tt := range map[string]changes{
			"objects are replaced":                {apply: replace, replaceObjects: true},
			"objects are removed":                 {apply: remove},
			"objects are removed and added again": {apply: removeAndAdd},
		} {
			t.Run(fmt.Sprintf("%s, indexed %t", name, indexed), func(t *testing.T) { checkVersionSize(t, indexed, tt) })
		}
	}
}

// changes are the changes that lead from each version of a tree to the next.
type changes struct {
	// apply makes change n of a tree. objects has the objects that the first version has, in random order.
	apply          func(tree Tree, n int, objects []*Object)
	replaceObjects bool // Each change replaces an object; false: each adds or removes one.
}

// checkVersionSize makes many versions of a tree, and compares the memory that they take with VersionSize.
func checkVersionSize(t *testing.T, indexed bool, c changes) {
	t.Helper()
	// The first version.
	tree := NewTree(indexed)
	objects := make([]*Object, 10_000)
	for i := range objects {
		objects[i] = &Object{Key: fmt.Sprintf("namespace/name-%06d", i), Fields: []string{fmt.Sprintf("node-%03d", i%500)}}
		tree.Set(objects[i])
	}
	var before *Object // the object that is replaced; nil: an object is added or removed, for which VersionSize is the same
	if c.replaceObjects {
		before = objects[0]
	}
	maxSize := tree.VersionSize(before, objects[0])
	rand.Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })

	// The other versions, which are all kept.
	const versions = 2_000
	kept := make([]Tree, versions)
	heapBefore := heapSize()
	for n := range kept {
		tree = tree.Clone()
		c.apply(tree, n, objects)
		kept[n] = tree
	}
	if size := (heapSize() - heapBefore) / versions; size < maxSize/2 || size > maxSize {
		t.Errorf("a version takes %d bytes, want %d to %d (VersionSize)", size, maxSize/2, maxSize)
	}
	runtime.KeepAlive(kept)
	runtime.KeepAlive(objects)
}

// heapSize returns the number of bytes in use, after a garbage collection.
func heapSize() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) // #nosec G115 -- a size
}
