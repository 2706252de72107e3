package snapshot

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
)

func benchKey(i int) string { return fmt.Sprintf("ns-%03d/pod-%06d", i%100, i) }

// BenchmarkHistoryForms compares keeping a tree of each version, as a collection does, with keeping
// one of so many and the changes between them: what a version costs in memory, and what it takes to
// find the tree of a version, half-way between two that are kept. (The newest tree has to be a
// clone for each event in either case: it is read while the next event is applied.)
func BenchmarkHistoryForms(b *testing.B) {
	const n, events = 100_000, 30_000
	for _, every := range []int{1, 16, 64, 512} {
		b.Run(fmt.Sprintf("one tree of %d", every), func(b *testing.B) {
			for b.Loop() {
				newest := index.NewTree(false)
				for i := range n {
					newest.Set(&index.Object{Key: benchKey(i), Revision: 1})
				}
				changes := make([]change, events)
				for i := range changes {
					o := &index.Object{Key: benchKey((i * 7919) % n), Revision: uint64(i + 2)}
					changes[i] = change{kind: wire.Modified, key: o.Key, revision: o.Revision, object: o}
				}
				var kept []index.Tree
				before := heap()
				begun := time.Now()
				for i, ch := range changes {
					newest = newest.Clone()
					if _, err := ch.apply(newest); err != nil {
						b.Fatal(err)
					}
					if i%every == 0 {
						kept = append(kept, newest)
					}
				}
				applied := time.Since(begun)
				// Beside the trees, a version is an entry in a list either way.
				b.ReportMetric(float64(heap()-before)/events, "B/version")
				b.ReportMetric(float64(applied.Nanoseconds())/events, "ns/apply")
				const finds = 200
				begun = time.Now()
				for i := range finds {
					at := i % (len(kept) - 1)
					found := kept[at].Clone()
					for _, ch := range changes[at*every+1:][:every/2] {
						_, _ = ch.apply(found)
					}
				}
				b.ReportMetric(float64(time.Since(begun).Nanoseconds())/finds, "ns/find")
				runtime.KeepAlive(kept)
				runtime.KeepAlive(changes)
			}
		})
	}
}

// heap is how many bytes are in use after a collection.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
