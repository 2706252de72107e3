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
		for name, tt := range map[string]struct {
			// change makes the n-th version: it changes o, or undoes what was done to previous.
			change   func(version Tree, n int, o, previous *Object)
			replaces bool // changes replace objects
		}{
			"objects are replaced": {
				change: func(version Tree, _ int, o, _ *Object) { version.Set(o) }, replaces: true,
			},
			"objects are removed": {
				change: func(version Tree, _ int, o, _ *Object) { version.Remove(o.Key) },
			},
			"objects are removed and added again": {
				change: func(version Tree, n int, o, previous *Object) {
					if n%2 == 0 {
						version.Remove(o.Key)
					} else {
						version.Set(previous)
					}
				},
			},
		} {
			tree, all := NewTree(indexed), make([]*Object, objects)
			for i := range all {
				all[i] = &Object{Key: fmt.Sprintf("namespace/name-%06d", i), Fields: []string{fmt.Sprintf("node-%03d", i%500)}}
				tree.Set(all[i])
			}
			order, kept := rand.Perm(objects), make([]Tree, versions)
			var replaced *Object
			if tt.replaces {
				replaced = all[0]
			}
			want := tree.VersionSize(replaced, all[0])
			before := heapSize()
			previous := all[0]
			for i := range kept {
				tree = tree.Clone()
				tt.change(tree, i, all[order[i]], previous)
				previous = all[order[i]]
				kept[i] = tree
			}
			if got := (heapSize() - before) / versions; got > want || got < want/2 {
				t.Errorf("indexed %t, %s: a version takes %d bytes, want %d to %d (VersionSize)", indexed, name, got, want/2, want)
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
