package index

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
)

// TestVersionSize: a version takes at most VersionSize bytes of memory, and at least half as many, whether an object is
// replaced, comes or goes.
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
		for name, tt := range map[string]struct {
			// change makes version n of a clone of the version before.
			change   func(version Tree, n int, objects []*Object)
			replaces bool // each change replaces an object; false: an object comes or goes
		}{
			"objects are replaced":                {change: replace, replaces: true},
			"objects are removed":                 {change: remove},
			"objects are removed and added again": {change: removeAndAdd},
		} {
			checkVersionSize(t, fmt.Sprintf("%s, indexed %t", name, indexed), indexed, tt.replaces, tt.change)
		}
	}
}

// checkVersionSize compares VersionSize with the memory that many versions take.
func checkVersionSize(
	t *testing.T, name string, indexed, replaces bool, change func(version Tree, n int, objects []*Object),
) {
	t.Helper()
	const versions = 2_000
	tree := NewTree(indexed)
	objects := make([]*Object, 10_000)
	for i := range objects {
		objects[i] = &Object{Key: fmt.Sprintf("namespace/name-%06d", i), Fields: []string{fmt.Sprintf("node-%03d", i%500)}}
		tree.Set(objects[i])
	}
	var replaced *Object // nil means that the object is new; VersionSize is the same if it goes
	if replaces {
		replaced = objects[0]
	}
	maxSize := tree.VersionSize(replaced, objects[0])
	rand.Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
	kept := make([]Tree, versions)
	before := heapSize()
	for n := range kept {
		tree = tree.Clone()
		change(tree, n, objects)
		kept[n] = tree
	}
	if size := (heapSize() - before) / versions; size < maxSize/2 || size > maxSize {
		t.Errorf("%s: a version takes %d bytes, want %d to %d (VersionSize)", name, size, maxSize/2, maxSize)
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
