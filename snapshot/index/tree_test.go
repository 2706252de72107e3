package index

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/samples"
)

// TestTreeAgainstAMap: while objects come, go and change at random, pages and counts are what looking at every object
// in order makes of a map. Clones stay as they were.
func TestTreeAgainstAMap(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := newTreeModel(seed)
			type past struct {
				tree Tree
				all  map[string]object
			}
			var kept []past
			for step := range 12000 {
				// The number of objects goes up, down to nearly none, and up again.
				if grow := step/4000 != 1; m.rnd.IntN(10) < 8 == grow {
					m.set()
				} else {
					m.remove()
				}
				if step%1000 == 999 {
					kept = append(kept, past{m.tree.Clone(), maps.Clone(m.all)})
					m.check(t)
				}
			}
			for key := range m.all {
				delete(m.all, key)
				m.tree.Remove(key)
			}
			m.check(t) // no more segments and runs are left than of few objects
			for _, p := range kept {
				m.tree, m.all = p.tree, p.all
				m.check(t)
			}
		})
	}
}

// treeModel is a tree of pods, and the same in a map.
type treeModel struct {
	rnd      *rand.Rand
	envelope *wire.Envelope
	tree     Tree
	all      map[string]object
}

// object is a pod, and what selectors see of it.
type object struct {
	labels labels.Set
	fields fields.Set
}

func newTreeModel(seed uint64) *treeModel {
	nodeName := []string{"spec", "nodeName"}
	m := &treeModel{
		rnd: rand.New(rand.NewPCG(seed, 7)), tree: NewTree(true), all: map[string]object{},
		envelope: samples.Envelope("PodList", "v1", wire.Field{Name: "spec.hostNetwork", Zero: "false"}, wire.Field{Name: "spec.nodeName", JSON: nodeName, Indexed: true},
			wire.Field{Name: "spec.host", JSON: nodeName}, wire.Field{Name: "status.phase"}),
	}
	m.envelope.HasNamespaceField = true
	return m
}

func (m *treeModel) pick(from ...string) string { return from[m.rnd.IntN(len(from))] }

func (m *treeModel) key() (namespace, name string) {
	return m.pick("a", "a-b", "a0", "b"), fmt.Sprintf("p%d", m.rnd.IntN(900))
}

func (m *treeModel) set() {
	namespace, name := m.key()
	node, phase, host := m.pick("", "n1", "n2", "n3"), m.pick("Running", "Pending"), m.pick("true", "false")
	o := object{labels: labels.Set{}, fields: fields.Set{
		"metadata.name": name, "metadata.namespace": namespace,
		"spec.nodeName": node, "spec.host": node, "spec.hostNetwork": host, "status.phase": phase,
	}}
	var pairs []string
	for _, key := range []string{"app", "tier", "x/y", "owner"} {
		if m.rnd.IntN(2) == 0 {
			o.labels[key] = m.pick("a", "b", "1", "20", "")
			if key == "owner" {
				o.labels[key] = fmt.Sprint(m.rnd.IntN(200))
			}
			pairs = append(pairs, key, o.labels[key])
		}
	}
	if m.rnd.IntN(50) == 0 {
		for i := range 40 {
			o.labels[fmt.Sprint("key-", i)] = "x"
			pairs = append(pairs, fmt.Sprint("key-", i), "x")
		}
	}
	key := JoinKey(namespace, name)
	m.all[key] = o
	m.tree.Set(&Object{Key: key, Labels: samples.Labels(pairs...), Fields: []string{node, host, node, phase}})
}

func (m *treeModel) remove() {
	key := JoinKey(m.key())
	delete(m.all, key)
	m.tree.Remove(key)
}

// checkIndexes compares what is kept beside the objects with the objects.
func checkIndexes(t *testing.T, tree Tree) {
	t.Helper()
	expect.Same(t, tree.Len(), tree.byField.Len())
	tree.runs.Ascend(func(r run) bool {
		if r.n > maxRun || r.n != len(r.objects) || r.n != len(r.signatures) {
			t.Fatalf("a run of %d objects with %d signatures", len(r.objects), len(r.signatures))
		}
		for i, o := range r.objects {
			if o.Key < r.first || r.signatures[i] != signatureOf(o.Labels) {
				t.Fatalf("%s has another signature in the run that begins at %q", o.Key, r.first)
			}
			if !tree.byField.Has(o.indexEntry()) {
				t.Fatalf("%s has another value in the index of a field", o.Key)
			}
		}
		return true
	})
}

// check compares the tree with the map.
func (m *treeModel) check(t *testing.T) {
	t.Helper()
	if m.tree.Len() != len(m.all) {
		t.Fatalf("%d objects, want %d", m.tree.Len(), len(m.all))
	}
	checkIndexes(t, m.tree)
	// A page costs what it holds: what follows is counted by runs.
	if runs, most := m.tree.runs.Len(), 2+len(m.all)/(maxRun/8); runs > most {
		t.Fatalf("%d objects in %d runs, want at most %d", len(m.all), runs, most)
	}
	keys := slices.Sorted(maps.Keys(m.all))
	for range 50 {
		from, end := "", Scope{Namespace: m.pick("", "a", "a-b", "b", "none")}.End()
		if m.rnd.IntN(5) > 0 {
			from = JoinKey(m.key())
		}
		want := len(keys) - sort.SearchStrings(keys, from)
		if end != "" {
			want = max(0, want-len(keys)+sort.SearchStrings(keys, end))
		}
		if got := m.tree.Count(from, end); got != int64(want) {
			t.Fatalf("from %q to %q there are %d, not %d", from, end, got, want)
		}
	}
	for range 30 {
		m.checkPage(t, keys)
	}
}

// checkPage makes a page, and makes it in the simplest way: it looks at every object, and stops when the page is full.
func (m *treeModel) checkPage(t *testing.T, keys []string) {
	t.Helper()
	labelText := m.pick("", "", "", "app", "!app", "app=a", "app==b,tier!=a", "app in (a,b)", "tier notin (b),x/y", "tier>3", "app=", "x/y<9",
		"owner=7", "owner in (7,8,9),app=a", "none", "key-3=x", "key-3 in (x,y)", "!key-3")
	fieldText := m.pick("", "", "", "spec.nodeName=n1", "spec.nodeName=", "spec.nodeName!=n2", "status.phase=Running,spec.nodeName=n3",
		"metadata.name=p7", "metadata.name!=p7", "metadata.namespace=a", "metadata.namespace!=a-b,spec.hostNetwork=true",
		"spec.nodeName=n1,spec.nodeName=n2", "spec.hostNetwork=false", "metadata.namespace=zz", "spec.nodeName=zz", "spec.host=n2,spec.nodeName!=n1")
	chosen, err := labels.Parse(labelText)
	expect.NoError(t, err)
	selected := fields.ParseSelectorOrDie(fieldText)
	q := Query{
		Scope: Scope{Namespace: m.pick("", "", "a", "a-b", "a-", "none")}, Limit: int64([]int{0, 1, 2, 5, 300}[m.rnd.IntN(5)]),
		Labels: chosen, Fields: selected, EndsWithIndex: m.rnd.IntN(2) == 0,
	}
	if _, narrowed := selected.RequiresExactMatch("metadata.namespace"); narrowed && q.Limit > 0 && q.Scope.Namespace == "" {
		return // which is forwarded (policy)
	}
	if !m.envelope.CanSelect(selected) {
		t.Fatalf("%q is not known", fieldText)
	}
	name, named := selected.RequiresExactMatch("metadata.name")
	if named && q.Scope.Namespace != "" && m.rnd.IntN(2) == 0 {
		q.Name = name // only that key is read
	} else if q.Limit > 0 && len(keys) > 0 && m.rnd.IntN(2) == 0 {
		q.Start = keys[m.rnd.IntN(len(keys))][m.rnd.IntN(2)*len("a/"):]
	}
	node, byNode := selected.RequiresExactMatch("spec.nodeName")
	if !byNode {
		node, byNode = selected.RequiresExactMatch("spec.host") // another name for it
	}
	var want Page
	var found, got []string
	prefix, counted := q.Scope.Prefix(), labelText == "" && fieldText == ""
	for _, key := range keys {
		switch o, full := m.all[key], q.Limit > 0 && int64(len(found)) == q.Limit; {
		case key < prefix+q.Start || !strings.HasPrefix(key, prefix), q.Name != "" && key != prefix+q.Name:
		case full && q.EndsWithIndex && byNode && o.fields["spec.nodeName"] != node: // the page ends where the index ends
		case full:
			want.Next = (found[len(found)-1] + "\x00")[len(prefix):]
			if counted {
				want.Counted = true
				want.Remaining++
			}
		case chosen.Matches(o.labels) && selected.Matches(o.fields):
			found = append(found, key)
		}
	}
	page := m.tree.Page(m.envelope, q, nil)
	for _, o := range page.Objects {
		got = append(got, o.Key)
	}
	page.Objects = nil
	if !slices.Equal(found, got) {
		t.Fatalf("%+v with %q and %q, from %q: %q, want %q", q.Scope, labelText, fieldText, q.Start, got, found)
	}
	expect.Same(t, want, page)
}

// TestNodeIndexEnds: of the newest state, the last page of a node's pods is the one on which its index ends.
func TestNodeIndexEnds(t *testing.T) {
	m := newTreeModel(0)
	for key, node := range map[string]string{"a/1": "n1", "a/2": "n2"} {
		m.tree.Set(&Object{Key: key, Fields: []string{node, "", node, ""}})
	}
	for newest, want := range map[bool]string{true: "", false: "a/1\x00"} {
		q := Query{Limit: 1, Fields: fields.ParseSelectorOrDie("spec.nodeName=n1"), EndsWithIndex: newest}
		expect.Same(t, want, m.tree.Page(m.envelope, q, nil).Next)
	}
}

// TestCountWalksLittle: what follows a page is counted by runs, and no object of it is looked at.
func TestCountWalksLittle(t *testing.T) {
	const n = 20 * maxRun
	tree := NewTree(false)
	for i := range n {
		tree.Set(&Object{Key: fmt.Sprintf("ns/%06d", i)})
	}
	if runs := tree.runs.Len(); runs > n/maxRun+1 {
		t.Errorf("%d objects that came in order are in %d runs", n, runs)
	}
	tree.runs.Ascend(func(r run) bool {
		if r.first > "ns/000100" && r.first < "ns/001000" {
			r.columns.objects = nil // looking at them would panic
		}
		return true
	})
	for _, end := range []string{"", (Scope{Namespace: "ns"}).End()} {
		expect.Same(t, int64(n-10), tree.Count("ns/000010", end))
	}
}
