package snapshot

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// benchCollection holds n objects of about 6.6 KB, live.
func benchCollection(n int) *Collection {
	c := newCollection(Resource{}, Limits{History: time.Minute, Silence: time.Hour}, &budget{})
	state := newTree()
	body := []byte(strings.Repeat("x", 6600))
	for i := range n {
		state.set(&Object{Key: benchKey(i), Revision: 1, Bytes: body})
	}
	c.open(state, 0, 1, &Frame{kind: "PodList", apiVersion: "v1"})
	return c
}

func benchKey(i int) string { return fmt.Sprintf("ns-%03d/pod-%06d", i%100, i) }

// BenchmarkApply is one event's way into a new view, with the history growing behind it.
func BenchmarkApply(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := benchCollection(n)
			body := []byte(strings.Repeat("y", 6600))
			b.ReportAllocs()
			rev := uint64(1)
			for b.Loop() {
				rev++
				key := benchKey(int(rev*7919) % n)
				if err := c.apply(change{kind: modified, key: key, revision: rev, object: &Object{Key: key, Revision: rev, Bytes: body}}); err != nil {
					b.Fatal(err)
				}
				if rev%150_000 == 0 {
					c.shorten()
				}
			}
		})
	}
}

// BenchmarkPage is a page of 500 in the middle of a collection, with its count of what remains.
func BenchmarkPage(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			snap, _ := benchCollection(n).view.Load().latest(time.Now(), time.Hour, 0)
			var buf []*Object
			b.ReportAllocs()
			for b.Loop() {
				page := snap.Page(Scope{}, "ns-002/", 500, buf[:0])
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
		if _, err := decodeEvent(line); err != nil {
			b.Fatal(err)
		}
	}
}
