package index

import (
	"fmt"
	"slices"
	"testing"

	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
)

// indexedTree has n objects on three nodes.
func indexedTree(n int) Tree {
	state := NewTree(true)
	for i := range n {
		o := NewObject(uint64(i+1), fmt.Sprintf("n/%05d", i), uint64(i+1), nil) // #nosec G115 -- a count
		o.Labels, o.Fields = wire.MustLabels("app", fmt.Sprint(i%7)), []string{fmt.Sprint(i % 3)}
		state.Set(o)
	}
	return state
}

// blot takes the signature of a key's labels away.
func blot(s Tree, key string) {
	r, _ := s.labels.upTo(key, false)
	i, _ := slices.BinarySearch(r.keys, key)
	r.signatures[i] = signature{}
}

// TestIndexesAreChecked: whatever they have that the objects have not, and the other way round.
func TestIndexesAreChecked(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(Tree)
		want   []string
	}{
		{"nothing", func(Tree) {}, nil},
		{"other labels", func(s Tree) {
			s.labels.set("n/00005", wire.MustLabels("app", "other"))
		}, []string{"n/00005 has other labels in the index"}},
		{"a signature", func(s Tree) {
			blot(s, "n/00005")
		}, []string{"n/00005 has other labels in the index"}},
		{"labels of nothing", func(s Tree) {
			s.labels.set("n/00005x", wire.Labels{})
		}, []string{"10 objects have 11 entries in the index of labels"}},
		{"no labels", func(s Tree) {
			s.labels.remove("n/00009")
		}, []string{"10 objects have 9 entries in the index of labels", "n/00009 has other labels in the index"}},
		{"another node", func(s Tree) {
			s.nodes.Delete(nodeKey{"2", "n/00005"})
			s.nodes.ReplaceOrInsert(nodeKey{"1", "n/00005"})
		}, []string{"n/00005 has another value in the index of a field"}},
		{"two nodes", func(s Tree) {
			s.nodes.ReplaceOrInsert(nodeKey{"1", "n/00005"})
		}, []string{"10 objects have 11 entries in the index of a field"}},
		{"a count", func(s Tree) {
			s.ranks.segments.ReplaceOrInsert(segment{first: "n/00007", n: 4})
		}, []string{"10 objects are counted as 11"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			state := indexedTree(10)
			tt.change(state)
			_, got := state.Check("", 20_000)
			expect.Same(t, tt.want, got)
		})
	}
}

// TestIndexesAreCheckedInTurn: so many objects in one check, and all in some.
func TestIndexesAreCheckedInTurn(t *testing.T) {
	const atOnce = 50
	state := indexedTree(2*atOnce + 1)
	wrong := fmt.Sprintf("n/%05d", atOnce+1)
	blot(state, wrong)
	var begins []string
	var found [][]string
	for from := ""; ; {
		next, differences := state.Check(from, atOnce)
		begins, found = append(begins, next), append(found, differences)
		if from = next; from == "" {
			break
		}
	}
	expect.Same(t, []string{fmt.Sprintf("n/%05d", atOnce), fmt.Sprintf("n/%05d", 2*atOnce), ""}, begins)
	expect.Same(t, [][]string{nil, {wrong + " has other labels in the index"}, nil}, found)
}
