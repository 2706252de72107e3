package index

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
)

// TestVersionSize: VersionSize is at least the memory that a version takes, and at most twice as much, whether an object
// is replaced, comes or goes.
func TestVersionSize(t *testing.T) {
	const objects, versions = 10_000, 2_000
	for _, indexed := range []bool{false, true} {
		for name, change := range map[string]func(version Tree, i int, o, previous *Object){
			"replaced": func(version Tree, _ int, o, _ *Object) { version.Set(o) },
			"gone":     func(version Tree, _ int, o, _ *Object) { version.Remove(o.Key) },
			"gone and come": func(version Tree, i int, o, previous *Object) {
				if i%2 == 0 {
					version.Remove(o.Key)
				} else {
					version.Set(previous)
				}
			},
		} {
			tree, all := NewTree(indexed), make([]*Object, objects)
			for i := range all {
				all[i] = &Object{Key: fmt.Sprintf("namespace/name-%06d", i), Fields: []string{fmt.Sprintf("node-%03d", i%500)}}
				tree.Set(all[i])
			}
			order, kept := rand.Perm(objects), make([]Tree, versions)
			want := tree.VersionSize(name == "replaced")
			before := heapSize()
			previous := all[0]
			for i := range kept {
				tree = tree.Clone()
				change(tree, i, all[order[i]], previous)
				previous = all[order[i]]
				kept[i] = tree
			}
			if got := (heapSize() - before) / versions; got > want || got < want/2 {
				t.Errorf("indexed %t, %s: a version takes %d bytes, VersionSize is %d", indexed, name, got, want)
			}
			runtime.KeepAlive(kept)
			runtime.KeepAlive(all)
		}
	}
}

// heapSize returns the number of bytes in use, after a garbage collection.
func heapSize() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) // #nosec G115 -- a size
}
