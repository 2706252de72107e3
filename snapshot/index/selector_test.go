package index

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/sharding"

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

// TestShards: a range has its start and not its end; any of them chooses.
func TestShards(t *testing.T) {
	frame := wire.FixedFrame("PodList", "v1")
	frame.Paths = frame.Paths.WithUID()
	state := NewTree(false)
	for i := range 10 {
		state.Set(&Object{Key: JoinKey("a", fmt.Sprint(i)), Fields: []string{fmt.Sprint("uid-", i)}})
	}
	const first, last = "0x0000000000000000", "0x10000000000000000"
	hash := "0x" + sharding.HashField("uid-4")
	of := func(key string, ranges ...string) (names []string) {
		q := Query{Shards: sharding.NewSelector(sharding.ShardRangeRequirement{Key: key, Start: ranges[0], End: ranges[1]})}
		if len(ranges) > 2 {
			q.Shards = sharding.NewSelector(append(q.Shards.Requirements(), sharding.ShardRangeRequirement{Key: key, Start: ranges[2], End: ranges[3]})...)
		}
		for _, o := range state.Page(frame, q, nil).Objects {
			names = append(names, o.Key)
		}
		return names
	}
	below, from := of(wire.UIDField, first, hash), of(wire.UIDField, hash, last)
	if slices.Contains(below, "a/4") || !slices.Contains(from, "a/4") || len(below)+len(from) != 10 || len(below) == 0 {
		t.Errorf("below the hash: %v, from it on: %v", below, from)
	}
	if all := of(wire.UIDField, first, hash, hash, last); len(all) != 10 {
		t.Errorf("both: %v", all)
	}
	in := "0x" + sharding.HashField("a")
	if none, all := of("object.metadata.namespace", first, in), of("object.metadata.namespace", in, last); len(none) != 0 || len(all) != 10 {
		t.Errorf("by namespace: %v, %v", none, all)
	}
}
