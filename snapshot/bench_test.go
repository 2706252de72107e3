package snapshot

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/snapshot/budget"
	"github.com/listproxy/listproxy/snapshot/freshness"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
)

// benchCollection holds n objects of about 6.6 KB, live.
func benchCollection(n int) *Collection { return benchCollectionOf(n, false) }

// benchCollectionOf has an index of nodes or none.
func benchCollectionOf(n int, indexed bool) *Collection {
	c := newCollection(Resource{}, Limits{History: time.Minute, Staleness: time.Hour}, &budget.Bound{}, nil, &freshness.Numbers{})
	state := index.NewTree(indexed)
	body := []byte(strings.Repeat("x", 6600))
	for i := range n {
		state.Set(&index.Object{Key: benchKey(i), Revision: 1, Bytes: body, Fields: benchFields(i)})
	}
	c.load(state, 1)
	return c
}

func benchFields(i int) []string { return []string{fmt.Sprintf("node-%04d", i%997)} }

func benchKey(i int) string { return fmt.Sprintf("ns-%03d/pod-%06d", i%100, i) }

// BenchmarkApply is one event's way into a new view, with the history growing behind it.
func BenchmarkApply(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		for name, indexed := range map[string]bool{"": false, "/indexed": true} {
			b.Run(fmt.Sprint(n)+name, func(b *testing.B) {
				c := benchCollectionOf(n, indexed)
				body := []byte(strings.Repeat("y", 6600))
				b.ReportAllocs()
				rev := uint64(1)
				for b.Loop() {
					rev++
					i := int(rev*7919) % n
					o := &index.Object{Key: benchKey(i), Revision: rev, Bytes: body, Fields: benchFields(i)}
					expect.NoError(b, c.apply(change{kind: wire.Modified, key: o.Key, revision: rev, object: o}))
					if rev%150_000 == 0 {
						c.shorten()
					}
				}
			})
		}
	}
}

// BenchmarkPage is a page of 500 in the middle of a collection, with its count of what remains.
func BenchmarkPage(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			snap, _ := benchCollection(n).view.Load().latest(time.Now(), time.Hour, 0)
			var buf []*index.Object
			b.ReportAllocs()
			for b.Loop() {
				page := snap.Page(index.Query{Start: "ns-002/", Limit: 500}, buf[:0])
				buf = page.Objects
			}
		})
	}
}

// BenchmarkDecodeEvent is one line of a watch, taken apart.
func BenchmarkDecodeEvent(b *testing.B) {
	line := []byte(`{"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"b","resourceVersion":"7"},"spec":{"x":"` +
		strings.Repeat(`abc \" def `, 550) + `"}}}` + "\n")
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := wire.EncodingOf(media.JSON).Event(line); err != nil {
			b.Fatal(err)
		}
	}
}

// benchLabels are those of a pod in a cluster where most is installed by charts: one of a hundred
// applications, of which each has many versions.
func benchLabels(i int) wire.Labels {
	return wire.MustLabels("app", fmt.Sprintf("app-%d", i%100),
		"app.kubernetes.io/component", fmt.Sprintf("component-%d", i%7),
		"app.kubernetes.io/instance", fmt.Sprintf("instance-%d", i%300),
		"app.kubernetes.io/managed-by", "Helm",
		"app.kubernetes.io/part-of", fmt.Sprintf("part-%d", i%20),
		"app.kubernetes.io/version", fmt.Sprintf("1.%d.%d", i%17, i%13),
		"pod-template-hash", fmt.Sprintf("%x", i%400*7919),
		"tier", fmt.Sprintf("tier-%d", i%4))
}

// BenchmarkSelect is a list of all that a selector chooses of many: one in a hundred.
func BenchmarkSelect(b *testing.B) {
	for _, n := range []int{20_000, 100_000} {
		state := index.NewTree(true)
		// As a load finds them: in the order of their keys.
		order := make([]int, n)
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(i, j int) int { return strings.Compare(benchKey(i), benchKey(j)) })
		for _, i := range order {
			state.Set(&index.Object{Key: benchKey(i), Labels: benchLabels(i), Fields: []string{fmt.Sprintf("node-%d", i/37%100), "false", "", "Running"}})
		}
		snap := Snapshot{tree: state, Frame: wire.FixedFrame("PodList", "v1", wire.Field{Name: "spec.nodeName", Indexed: true},
			wire.Field{Name: "spec.hostNetwork"}, wire.Field{Name: "spec.host"}, wire.Field{Name: "status.phase"})}
		byLabel, err := labels.Parse("app=app-7,tier in (tier-0,tier-2)")
		expect.NoError(b, err)
		for _, bb := range []struct {
			name string
			q    index.Query
		}{
			{"label", index.Query{Labels: byLabel}},
			{"name", index.Query{Fields: fields.OneTermEqualSelector("metadata.name", "pod-000007")}},
			{"node", index.Query{Fields: fields.OneTermEqualSelector("spec.nodeName", "node-7")}},
			{"field", index.Query{Fields: fields.OneTermEqualSelector("status.phase", "Pending")}},
		} {
			b.Run(fmt.Sprintf("%s/%d", bb.name, n), func(b *testing.B) {
				var buf []*index.Object
				b.ReportAllocs()
				for b.Loop() {
					buf = snap.Page(bb.q, buf[:0]).Objects
				}
			})
		}
	}
}

// BenchmarkHistory says what a version costs in memory beside its object: the figures behind
// versionOverhead.
func BenchmarkHistory(b *testing.B) {
	const n, events = 100_000, 50_000
	for name, indexed := range map[string]bool{"plain": false, "indexed": true} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				c := benchCollectionOf(n, indexed)
				body := []byte(strings.Repeat("y", 6600))
				objects := make([]*index.Object, events)
				for i := range objects {
					at := (i * 7919) % n
					objects[i] = &index.Object{Key: benchKey(at), Revision: uint64(i + 2), Bytes: body, Fields: benchFields(at)}
				}
				before := heap()
				for _, o := range objects {
					expect.NoError(b, c.apply(change{kind: wire.Modified, key: o.Key, revision: o.Revision, object: o}))
				}
				b.ReportMetric(float64(heap()-before)/events, "B/version")
				runtime.KeepAlive(c)
				runtime.KeepAlive(objects)
			}
		})
	}
}

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
