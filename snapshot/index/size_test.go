package index

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
)

// TestVersionSize: VersionSize is at least the memory that a version takes, and at most twice as much, whether an object is
// replaced, comes or goes.
func TestVersionSize(t *testing.T) {
	replace := func(version Tree, _ int, o *Object) { version.Set(o) }
	remove := func(version Tree, _ int, o *Object) { version.Remove(o.Key) }
	var removed *Object
	removeAndAdd := func(version Tree, n int, o *Object) {
		if n%2 == 1 {
			version.Set(removed)
			return
		}
		version.Remove(o.Key)
		removed = o
	}
	for _, indexed := range []bool{false, true} {
		for name, tt := range map[string]struct {
			change   func(version Tree, n int, o *Object) // changes o, to make the n-th version
			replaces bool                                 // change replaces o; false: o comes or goes
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
func checkVersionSize(t *testing.T, name string, indexed, replaces bool, change func(version Tree, n int, o *Object)) {
	t.Helper()
	const objects, versions = 10_000, 2_000
	tree := NewTree(indexed)
	all := make([]*Object, objects)
	for i := range all {
		all[i] = &Object{Key: fmt.Sprintf("namespace/name-%06d", i), Fields: []string{fmt.Sprintf("node-%03d", i%500)}}
		tree.Set(all[i])
	}
	var replaced *Object
	if replaces {
		replaced = all[0]
	}
	want := tree.VersionSize(replaced, all[0])
	kept := make([]Tree, versions)
	order := rand.Perm(objects)
	before := heapSize()
	for n := range kept {
		tree = tree.Clone()
		change(tree, n, all[order[n]])
		kept[n] = tree
	}
	if got := (heapSize() - before) / versions; got > want || got < want/2 {
		t.Errorf("%s: a version takes %d bytes, want %d to %d (VersionSize)", name, got, want/2, want)
	}
	runtime.KeepAlive(kept)
	runtime.KeepAlive(all)
}

// heapSize returns the number of bytes in use, after a garbage collection.
func heapSize() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) // #nosec G115 -- a size
}
