package index

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"

	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/samples"
)

// TestShards: with a shard selector, Page returns the objects whose hash is in at least one of the selector's ranges. These are
// the objects that apimachinery's own selector chooses, even if a hash is exactly the start or the end of a range.
func TestShards(t *testing.T) {
	envelope := samples.Envelope("PodList", "v1")
	envelope.Paths = envelope.Paths.WithUID()
	tree := NewTree(withoutIndex)
	metadataOf := map[string]*metav1.PartialObjectMetadata{}
	hashOf := func(value string) string { return "0x" + sharding.HashField(value) }
	const least, afterGreatest = "0x0000000000000000", "0x10000000000000000"
	bounds := []string{least, afterGreatest, hashOf("a")} // All objects are in the namespace a.
	for i := range 10 {
		uid := fmt.Sprint("uid-", i)
		key := JoinKey("a", uid)
		tree.Set(&Object{Key: key, Fields: []string{uid}})
		metadataOf[key] = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "a", UID: types.UID(uid)}}
		bounds = append(bounds, hashOf(uid))
	}
	// checkTwoRanges requires that Page chooses as apimachinery does, by the range from start to end and a second, fixed range.
	checkTwoRanges := func(field, start, end string) {
		t.Helper()
		q := Query{Shards: sharding.NewSelector(
			sharding.ShardRangeRequirement{Key: field, Start: start, End: end},
			sharding.ShardRangeRequirement{Key: field, Start: hashOf("uid-0"), End: hashOf("uid-1")},
		)}
		page := tree.Page(envelope, q, noBuffer)
		for key, metadata := range metadataOf {
			want, err := q.Shards.Matches(metadata)
			expect.NoError(t, err)
			got := slices.ContainsFunc(page.Objects, func(o *Object) bool { return o.Key == key })
			if got != want {
				t.Errorf("%s: %s is on the page: got %t, want %t as apimachinery", q.Shards, key, got, want)
			}
		}
	}
	for _, field := range []string{wire.UIDField, "object.metadata.namespace"} {
		for _, start := range bounds {
			for _, end := range bounds {
				checkTwoRanges(field, start, end)
			}
		}
	}
}
