package index

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
)

// TestVersionSize: a version takes at most VersionSize bytes of memory, and at least half as many, whether an object is
// replaced, added or removed.
func TestVersionSize(t *testing.T) {
	replace := func(version Tree, n int, objects []*Object) { version.Set(objects[n]) }
	remove := func(version Tree, n int, objects []*Object) { version.Remove(objects[n].Key) }
	removeAndAdd := func(version Tree, n int, objects []*Object) {
		if n%2 == 0 {
			version.Remove(objects[n].Key)
		} else {
			version.Set(objects[n-1]) // which the version before has removed
		}
	}
	for _, indexed := range []bool{false, true} {
		for name, tt := range map[string]changes{
			"objects are replaced":                {apply: replace, replace: true},
			"objects are removed":                 {apply: remove},
			"objects are removed and added again": {apply: removeAndAdd},
		} {
			t.Run(fmt.Sprintf("%s, indexed %t", name, indexed), func(t *testing.T) { checkVersionSize(t, indexed, tt) })
		}
	}
}

// changes are the changes that lead from each version to the next.
type changes struct {
	// apply makes version n of a clone of the version before.
	apply   func(version Tree, n int, objects []*Object)
	replace bool // Each change replaces an object; false: it adds or removes one.
}

// checkVersionSize compares VersionSize with the memory that many versions take.
func checkVersionSize(t *testing.T, indexed bool, c changes) {
	t.Helper()
	const versions = 2_000
	tree := NewTree(indexed)
	objects := make([]*Object, 10_000)
	for i := range objects {
		objects[i] = &Object{Key: fmt.Sprintf("namespace/name-%06d", i), Fields: []string{fmt.Sprintf("node-%03d", i%500)}}
		tree.Set(objects[i])
	}
	var replaced *Object // nil means that the object is added; VersionSize is the same if it is removed
	if c.replace {
		replaced = objects[0]
	}
	maxSize := tree.VersionSize(replaced, objects[0])
	rand.Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
	kept := make([]Tree, versions)
	before := heapSize()
	for n := range kept {
		tree = tree.Clone()
		c.apply(tree, n, objects)
		kept[n] = tree
	}
	if size := (heapSize() - before) / versions; size < maxSize/2 || size > maxSize {
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
