package index

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/sharding"

	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
)

// podFrame has some fields of a pod, the indexed one not first.
func podFrame() *wire.Frame {
	nodeName := []string{"spec", "nodeName"}
	return wire.FixedFrame("PodList", "v1", wire.Field{Name: "spec.hostNetwork", Zero: "false"}, wire.Field{Name: "spec.nodeName", JSON: nodeName, Indexed: true},
		wire.Field{Name: "spec.host", JSON: nodeName}, wire.Field{Name: "status.phase"})
}

// TestSelectedPages holds pages under selectors against the simplest way to make them: look at
// every object in order, stop when the page is full.
func TestSelectedPages(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 7))
	pick := func(from ...string) string { return from[rnd.IntN(len(from))] }
	frame := podFrame()
	frame.Namespaces = true
	state := NewTree(true)
	sets := map[string]fields.Set{}
	labelled := map[string]labels.Set{}
	put := func(namespace, name string) {
		node, phase, host := pick("", "n1", "n2", "n3"), pick("Running", "Pending"), pick("true", "false")
		set := labels.Set{}
		var pairs []string
		for _, key := range []string{"app", "tier", "x/y"} {
			if rnd.IntN(2) == 0 {
				set[key] = pick("a", "b", "1", "20", "")
				pairs = append(pairs, key, set[key])
			}
		}
		key := JoinKey(namespace, name)
		state.Set(&Object{Key: key, Labels: wire.MustLabels(pairs...), Fields: []string{node, host, node, phase}})
		labelled[key] = set
		sets[key] = fields.Set{
			"metadata.name": name, "metadata.namespace": namespace,
			"spec.nodeName": node, "spec.host": node, "spec.hostNetwork": host, "status.phase": phase,
		}
	}
	for range 600 {
		namespace, name := pick("a", "a-b", "a0", "b"), fmt.Sprintf("p%d", rnd.IntN(60))
		if key := JoinKey(namespace, name); rnd.IntN(4) == 0 {
			state.Remove(key)
			delete(sets, key)
			delete(labelled, key)
		} else {
			put(namespace, name)
		}
	}
	keys := make([]string, 0, len(sets))
	for key := range sets {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	if state.nodes.Len() != len(keys) {
		t.Fatalf("%d objects in the index, %d in all", state.nodes.Len(), len(keys))
	}

	for range 5000 {
		labelText := pick("", "", "", "app", "!app", "app=a", "app==b,tier!=a", "app in (a,b)", "tier notin (b),x/y", "tier>3", "app=", "x/y<9")
		fieldText := pick("", "", "", "spec.nodeName=n1", "spec.nodeName=", "spec.nodeName!=n2", "status.phase=Running,spec.nodeName=n3",
			"metadata.name=p7", "metadata.name!=p7", "metadata.namespace=a", "metadata.namespace!=a-b,spec.hostNetwork=true",
			"spec.nodeName=n1,spec.nodeName=n2", "spec.hostNetwork=false", "metadata.namespace=zz", "spec.nodeName=zz", "spec.host=n2,spec.nodeName!=n1")
		l, err := labels.Parse(labelText)
		expect.NoError(t, err)
		s, err := fields.ParseSelector(fieldText)
		expect.NoError(t, err)
		if !frame.Selects(s) {
			t.Fatalf("%q is not known", fieldText)
		}
		q := Query{
			Scope: Scope{Namespace: pick("", "", "a", "a-b", "a-", "none")}, Limit: int64(rnd.IntN(6)),
			Labels: l, Fields: s, Newest: rnd.IntN(2) == 0,
		}
		name, named := s.RequiresExactMatch("metadata.name")
		if named && q.Scope.Namespace != "" && rnd.IntN(2) == 0 {
			q.Name = name // only that key is read
		} else if q.Limit > 0 && rnd.IntN(2) == 0 {
			q.Start = keys[rnd.IntN(len(keys))][rnd.IntN(2)*len("a/"):]
		}
		node, byNode := s.RequiresExactMatch("spec.nodeName")
		if !byNode {
			node, byNode = s.RequiresExactMatch("spec.host") // another name for it
		}
		var want []string
		next, remaining := "", int64(0)
		prefix := ""
		if q.Scope.Namespace != "" {
			prefix = q.Scope.Namespace + "/"
		}
		for _, key := range keys {
			switch full := q.Limit > 0 && int64(len(want)) == q.Limit; {
			case key < prefix+q.Start || !strings.HasPrefix(key, prefix), q.Name != "" && key != prefix+q.Name:
			case full && q.Newest && byNode && sets[key]["spec.nodeName"] != node: // the page ends where the index ends
			case full:
				next = (want[len(want)-1] + "\x00")[len(prefix):]
				remaining++
			case l.Matches(labelled[key]) && s.Matches(sets[key]):
				want = append(want, key)
			}
		}
		page := state.Page(frame, q, nil)
		var got []string
		for _, o := range page.Objects {
			got = append(got, o.Key)
		}
		counted := labelText == "" && fieldText == "" && next != ""
		if _, narrowed := s.RequiresExactMatch("metadata.namespace"); narrowed && q.Limit > 0 && q.Scope.Namespace == "" {
			continue // this is the upstream's (policy)
		}
		if diff := cmp.Diff(want, got); diff != "" || page.Next != next || page.Counted != counted || counted && page.Remaining != remaining {
			t.Fatalf("%+v with %q and %q: next %q counted %v, %d, want %q, %v, %d; -want +got:\n%s",
				q.Scope, labelText, fieldText, page.Next, page.Counted, page.Remaining, next, counted, remaining, diff)
		}
	}
}

// TestSieve: what a selector chooses passes, and most of what it does not choose does not.
func TestSieve(t *testing.T) {
	rnd := rand.New(rand.NewPCG(8, 8))
	var sets []wire.Labels
	for i := range 3000 {
		sets = append(sets, wire.MustLabels("app", fmt.Sprint("app-", rnd.IntN(50)), "hash", fmt.Sprintf("%x", rnd.Uint32()),
			"version", fmt.Sprint(rnd.IntN(20)), "team", fmt.Sprint("team-", rnd.IntN(9)), "name", fmt.Sprint("pod-", i)))
	}
	var many []string
	for i := range wire.ManyLabels + 3 {
		many = append(many, fmt.Sprint("key-", i), "value")
	}
	sets = append(sets, wire.Labels{}, wire.MustLabels("only", ""), wire.MustLabels(many...))
	for _, text := range []string{
		"app=app-7", "app==app-7,team!=team-1", "app in (app-7,app-8)", "name=pod-77", "version>17", "version<2,app=app-1", "app=none", "only", "key-3=value", "hash",
		"!app", "app notin (app-7)", "key-3 in (value,x)", "only=", "nothing",
	} {
		selector, err := labels.Parse(text)
		expect.NoError(t, err)
		s, chosen, passed := newSieve(selector), 0, 0
		for _, set := range sets {
			passes := s.mayPass(signatureOf(set))
			if selector.Matches(set) {
				chosen++
				if !passes {
					pairs, _ := set.Pairs()
					t.Fatalf("%q does not let %q pass", text, pairs)
				}
			}
			if passes {
				passed++
			}
		}
		// What excludes is not told by signatures.
		if equal := strings.Contains(text, "=app") || strings.Contains(text, "=pod"); equal && passed > chosen+len(sets)/30 {
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
