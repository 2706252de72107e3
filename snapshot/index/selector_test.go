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

// TestShards: Page chooses the objects whose hash is in any of the ranges, as apimachinery's own selector does, also
// where a hash is the start or the end of a range.
func TestShards(t *testing.T) {
	envelope := samples.Envelope("PodList", "v1")
	envelope.Paths = envelope.Paths.WithUID()
	tree, pods := NewTree(false), map[string]*metav1.PartialObjectMetadata{}
	bounds := []string{"0x0000000000000000", "0x10000000000000000", "0x" + sharding.HashField("a")}
	for i := range 10 {
		uid := fmt.Sprint("uid-", i)
		key := JoinKey("a", uid)
		tree.Set(&Object{Key: key, Fields: []string{uid}})
		pods[key] = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "a", UID: types.UID(uid)}}
		bounds = append(bounds, "0x"+sharding.HashField(uid))
	}
	for _, field := range []string{wire.UIDField, "object.metadata.namespace"} {
		for _, start := range bounds {
			for _, end := range bounds {
				q := Query{Shards: sharding.NewSelector(
					sharding.ShardRangeRequirement{Key: field, Start: start, End: end},
					sharding.ShardRangeRequirement{Key: field, Start: bounds[3], End: bounds[4]},
				)}
				page := tree.Page(envelope, q, nil)
				for key, pod := range pods {
					want, err := q.Shards.Matches(pod)
					expect.NoError(t, err)
					got := slices.ContainsFunc(page.Objects, func(o *Object) bool { return o.Key == key })
					if got != want {
						t.Errorf("%s chooses %s: %t, want %t", q.Shards, key, got, want)
					}
				}
			}
		}
	}
}
