package index

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
)

// TestVersionSize: what is counted for a version is at least what it takes, and not twice as much, whether an object is
// replaced, comes or goes.
func TestVersionSize(t *testing.T) {
	const objects, versions = 10_000, 2_000
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc) // #nosec G115 -- a size
	}
	for _, indexed := range []bool{false, true} {
		for name, replaces := range map[string]bool{"replaced": true, "gone": false, "gone and come": false} {
			tree, all := NewTree(indexed), make([]*Object, objects)
			for i := range all {
				all[i] = &Object{Key: fmt.Sprintf("namespace/name-%06d", i), Fields: []string{fmt.Sprintf("node-%03d", i%500)}}
				tree.Set(all[i])
			}
			order, kept := rand.Perm(objects), make([]Tree, versions)
			counted := tree.VersionSize(replaces)
			before := heap()
			for i := range kept {
				o := all[order[i]]
				kept[i] = tree.Clone()
				switch {
				case replaces, name == "gone and come" && i%2 == 1:
					if i%2 == 1 {
						o = all[order[i-1]]
					}
					kept[i].Set(o)
				default:
					kept[i].Remove(o.Key)
				}
				tree = kept[i]
			}
			taken := (heap() - before) / versions
			if taken > counted || taken < counted/2 {
				t.Errorf("indexed %t, %s: a version takes %d bytes, counted are %d", indexed, name, taken, counted)
			}
			runtime.KeepAlive(kept)
			runtime.KeepAlive(all)
		}
	}
}
