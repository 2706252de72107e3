package index

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"

	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
)

// TestSieve: most of what a selector does not choose does not pass. (What it chooses does: TestTreeAgainstAMap.)
func TestSieve(t *testing.T) {
	rnd := rand.New(rand.NewPCG(8, 8))
	var sets []wire.Labels
	for i := range 3000 {
		sets = append(sets, wire.MustLabels("app", fmt.Sprint("app-", rnd.IntN(50)), "hash", fmt.Sprintf("%x", rnd.Uint32()),
			"version", fmt.Sprint(rnd.IntN(20)), "team", fmt.Sprint("team-", rnd.IntN(9)), "name", fmt.Sprint("pod-", i)))
	}
	for _, text := range []string{"app=app-7", "app==app-7,team!=team-1", "app in (app-7,app-8)", "name=pod-77", "version<2,app=app-1"} {
		selector, err := labels.Parse(text)
		expect.NoError(t, err)
		s, chosen, passed := newSieve(selector), 0, 0
		for _, set := range sets {
			if selector.Matches(set) {
				chosen++
			}
			if s.mayPass(signatureOf(set)) {
				passed++
			}
		}
		if passed > chosen+len(sets)/30 {
			t.Errorf("%q chooses %d of %d, and %d pass", text, chosen, len(sets), passed)
		}
	}
	if s := newSieve(labels.Nothing()); !s.mayPass(signature{}) {
		t.Error("what chooses nothing has nothing to be told by")
	}
}

// TestShards: any of the ranges chooses, as the API server's own code says, also at their ends.
func TestShards(t *testing.T) {
	envelope := wire.FixedEnvelope("PodList", "v1")
	envelope.Paths = envelope.Paths.WithUID()
	state, pods := NewTree(false), map[string]*metav1.PartialObjectMetadata{}
	bounds := []string{"0x0000000000000000", "0x10000000000000000", "0x" + sharding.HashField("a")}
	for i := range 10 {
		uid := fmt.Sprint("uid-", i)
		key := JoinKey("a", uid)
		state.Set(&Object{Key: key, Fields: []string{uid}})
		pods[key] = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "a", UID: types.UID(uid)}}
		bounds = append(bounds, "0x"+sharding.HashField(uid))
	}
	for _, field := range []string{wire.UIDField, "object.metadata.namespace"} {
		for _, start := range bounds {
			for _, end := range bounds {
				q := Query{Shards: sharding.NewSelector(sharding.ShardRangeRequirement{Key: field, Start: start, End: end},
					sharding.ShardRangeRequirement{Key: field, Start: bounds[3], End: bounds[4]})}
				page := state.Page(envelope, q, nil)
				for key, pod := range pods {
					want, err := q.Shards.Matches(pod)
					expect.NoError(t, err)
					if got := slices.ContainsFunc(page.Objects, func(o *Object) bool { return o.Key == key }); got != want {
						t.Errorf("%s chooses %s: %t", q.Shards, key, got)
					}
				}
			}
		}
	}
}
