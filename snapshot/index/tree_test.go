package index

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/samples"
)

// TestTreeAgainstAMap: a tree and a map get the same random changes. Page and Count of the tree return what a walk over the
// sorted map finds. A Clone of the tree does not change with it.
func TestTreeAgainstAMap(t *testing.T) {
	const steps = 12_000
	for seed := range uint64(2) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			m := newCheckedTree(seed)
			var clones []checkedTree
			for step := range steps {
				// The number of objects grows, shrinks to nearly none, and grows again.
				additionsOfTen := 8
				if step >= steps/3 && step < 2*steps/3 {
					additionsOfTen = 2
				}
				if m.random.IntN(10) < additionsOfTen {
					m.set()
				} else {
					m.remove(JoinKey(m.pickName()))
				}
				if isCheckpoint := step%1000 == 999; isCheckpoint {
					clone := *m
					clone.tree = m.tree.Clone()
					clone.objects = maps.Clone(m.objects)
					clones = append(clones, clone)
					m.check(t)
				}
			}
			for key := range m.objects {
				m.remove(key)
			}
			m.check(t)
			for _, clone := range clones {
				clone.check(t)
			}
		})
	}
}

// Arguments of NewTree.
const withIndex, withoutIndex = true, false

// noBuffer is the argument of Page for a page whose objects get memory of their own.
var noBuffer []*Object

// checkedTree is a tree of pods, and a map with the same pods as its model.
type checkedTree struct {
	random   *rand.Rand
	envelope *wire.Envelope
	tree     Tree
	objects  map[string]selectable // by key
}

// selectable is what selectors see of a pod.
type selectable struct {
	labels labels.Set
	fields fields.Set
}

func newCheckedTree(seed uint64) *checkedTree {
	nodeName := []string{"spec", "nodeName"}
	m := &checkedTree{
		random:  rand.New(rand.NewPCG(seed, 7)),
		tree:    NewTree(withIndex),
		objects: map[string]selectable{},
		envelope: samples.Envelope("PodList", "v1",
			wire.Field{Name: "spec.nodeName", JSON: nodeName, Indexed: true},
			wire.Field{Name: "spec.hostNetwork", Zero: "false"},
			wire.Field{Name: "spec.host", JSON: nodeName},
			wire.Field{Name: "status.phase"},
		),
	}
	m.envelope.HasNamespaceField = true
	return m
}

// pick returns one of these texts at random.
func (m *checkedTree) pick(from ...string) string { return from[m.random.IntN(len(from))] }

func (m *checkedTree) flipCoin() bool { return m.random.IntN(2) == 0 }

// pickName returns a random namespace and name. Keys are "namespace/name", and in ASCII '/' is between '-' and '0'. So the
// order of keys is a-b/p1, a/p1, a0/p1.
func (m *checkedTree) pickName() (namespace, name string) {
	return m.pick("a", "a-b", "a0", "b"), fmt.Sprint("p", m.random.IntN(900))
}

// set adds or replaces a random pod.
func (m *checkedTree) set() {
	namespace, name := m.pickName()
	node := m.pick("", "n1", "n2", "n3")
	phase := m.pick("Running", "Pending")
	hostNetwork := m.pick("true", "false")
	o := selectable{labels: labels.Set{}, fields: fields.Set{
		"metadata.name":      name,
		"metadata.namespace": namespace,
		"spec.nodeName":      node,
		"spec.host":          node,
		"spec.hostNetwork":   hostNetwork,
		"status.phase":       phase,
	}}
	for _, key := range []string{"app", "tier", "x/y"} {
		if m.flipCoin() {
			o.labels[key] = m.pick("a", "b", "1", "20", "")
		}
	}
	if m.flipCoin() {
		o.labels["owner"] = fmt.Sprint(m.random.IntN(200)) // mostly unlike the neighbours'
	}
	if m.random.IntN(50) == 0 {
		for i := range 40 {
			o.labels[fmt.Sprint("key-", i)] = "x" // so many that signatures have nearly all bits
		}
	}
	var pairs []string
	for key, value := range o.labels {
		pairs = append(pairs, key, value)
	}
	key := JoinKey(namespace, name)
	// The map and the tree get the same pod.
	m.objects[key] = o
	m.tree.Set(&Object{
		Key:    key,
		Labels: samples.Labels(pairs...),
		Fields: []string{node, hostNetwork, node, phase}, // in the order of Envelope.Paths
	})
}

func (m *checkedTree) remove(key string) {
	delete(m.objects, key)
	m.tree.Remove(key)
}

// check compares the tree with the map.
func (m *checkedTree) check(t *testing.T) {
	t.Helper()
	if m.tree.Len() != len(m.objects) {
		t.Fatalf("got %d objects, want %d", m.tree.Len(), len(m.objects))
	}
	m.checkRuns(t)
	keys := slices.Sorted(maps.Keys(m.objects))
	for range 50 {
		end := Scope{Namespace: m.pick("", "a", "a-b", "b", "none")}.End()
		from := ""
		if m.random.IntN(5) > 0 {
			from = JoinKey(m.pickName())
		}
		want := int64(0)
		for _, key := range keys {
			if key >= from && (end == "" || key < end) {
				want++
			}
		}
		if got := m.tree.Count(from, end); got != want {
			t.Fatalf("got %d objects from %q to %q, want %d", got, from, end, want)
		}
	}
	for range 30 {
		m.checkPage(t, keys)
	}
}

// checkRuns compares the runs and the index of the tree with its objects. A run has up to maxRun objects with successive keys,
// and for each of them a signature: a few bits that depend on the labels. Runs must be at least an eighth full on average,
// since Count visits each run.
func (m *checkedTree) checkRuns(t *testing.T) {
	t.Helper()
	expect.Same(t, m.tree.Len(), m.tree.byField.Len())
	if runs, limit := m.tree.runs.Len(), 2+len(m.objects)/(maxRun/8); runs > limit {
		t.Fatalf("%d objects in %d runs, want at most %d", len(m.objects), runs, limit)
	}
	m.tree.runs.Ascend(func(r run) bool {
		if r.n > maxRun {
			t.Fatalf("a run has %d objects, want at most %d", r.n, maxRun)
		}
		expect.Same(t, r.n, len(r.objects))
		expect.Same(t, r.n, len(r.signatures))
		for i, o := range r.objects {
			if o.Key < r.first {
				t.Fatalf("%s is in the run from %q, want it in a run before", o.Key, r.first)
			}
			if got, want := r.signatures[i], signatureOf(o.Labels); got != want || !r.union.has(want) {
				t.Fatalf("%s has the signature %x, and its run %x, want %x in both", o.Key, got, r.union, want)
			}
			if !m.tree.byField.Has(o.indexEntry()) {
				t.Fatalf("%s is not in the index under its node %q", o.Key, o.Fields[0])
			}
		}
		return true
	})
}

// labelSelectors and fieldSelectors are the selectors of random pages.
var (
	labelSelectors = []string{
		"", "", "", // most lists have none
		"app", "!app", "none", // one label, by key
		"app=a", "app=", "tier>3", "x/y<9", "app in (a,b)", // one label, by value
		"app==b,tier!=a", "tier notin (b),x/y", // two labels
		"owner=7", "owner in (7,8,9),app=a", // values that few objects have
		"key-3=x", "key-3 in (x,y)", "!key-3", // objects with many labels
	}
	fieldSelectors = []string{
		"", "", "", // most lists have none
		"spec.nodeName=n1", "spec.nodeName=", "spec.nodeName=zz", "spec.nodeName!=n2", // the indexed field
		"spec.nodeName=n1,spec.nodeName=n2", "status.phase=Running,spec.nodeName=n3", // the indexed field and another term
		"spec.host=n2,spec.nodeName!=n1",                                                         // another name of the indexed field
		"metadata.name=p7", "metadata.name!=p7", "metadata.namespace=a", "metadata.namespace=zz", // fields of the key
		"metadata.namespace!=a-b,spec.hostNetwork=true", "spec.hostNetwork=false", // a field that is not indexed
	}
)

// checkPage compares a random page with the one that findPage finds.
func (m *checkedTree) checkPage(t *testing.T, keys []string) {
	t.Helper()
	q := m.randomQuery(t, keys)
	want, wantKeys := m.findPage(q, keys)
	page := m.tree.Page(m.envelope, q, noBuffer)
	var gotKeys []string
	for _, o := range page.Objects {
		gotKeys = append(gotKeys, o.Key)
	}
	if !slices.Equal(wantKeys, gotKeys) {
		t.Fatalf("%+v: got %q, want %q", q, gotKeys, wantKeys)
	}
	page.Objects = nil
	expect.Same(t, want, page)
}

// randomQuery returns a random query. keys are the keys of all pods.
func (m *checkedTree) randomQuery(t *testing.T, keys []string) Query {
	t.Helper()
	labelSelector, err := labels.Parse(m.pick(labelSelectors...))
	expect.NoError(t, err)
	q := Query{
		Scope:         Scope{Namespace: m.pick("", "", "a", "a-b", "a-", "none")},
		Limit:         []int64{0, 1, 2, 5, 300}[m.random.IntN(5)],
		Labels:        labelSelector,
		Fields:        fields.ParseSelectorOrDie(m.pick(fieldSelectors...)),
		EndsWithIndex: m.flipCoin(),
	}
	expect.Same(t, true, m.envelope.CanSelect(q.Fields))
	_, inOneNamespace := q.Fields.RequiresExactMatch("metadata.namespace")
	if inOneNamespace && q.Scope.Namespace == "" {
		q.Limit = 0 // Package policy forwards the pages of such a list.
	}
	name, hasName := q.Fields.RequiresExactMatch("metadata.name")
	mayUseName := m.flipCoin()
	mayStartLater := m.flipCoin()
	switch {
	case mayUseName && hasName && q.Scope.Namespace != "":
		q.Name = name
	case mayStartLater && q.Limit > 0 && len(keys) > 0:
		// The start is relative to the scope. In a list of all namespaces it is a key, and in a list of one namespace it is a
		// name. But any text is allowed, so both are tried in both.
		key := m.pick(keys...)
		q.Start = m.pick(key, key[len("a/"):])
	}
	return q
}

// findPage finds the page of a query by a walk over all objects of the map, whose sorted keys are keys. It returns the page
// without its objects, and the objects' keys.
func (m *checkedTree) findPage(q Query, keys []string) (page Page, found []string) {
	node, byNode := q.Fields.RequiresExactMatch("spec.nodeName")
	if !byNode {
		node, byNode = q.Fields.RequiresExactMatch("spec.host") // another name of the same field
	}
	prefix := q.Scope.Prefix()
	for _, key := range keys {
		o := m.objects[key]
		isInRange := strings.HasPrefix(key, prefix) && key >= prefix+q.Start && (q.Name == "" || key == prefix+q.Name)
		isFull := q.Limit > 0 && int64(len(found)) == q.Limit
		// With EndsWithIndex, only objects of the node count as following the page.
		isOfOtherNode := q.EndsWithIndex && byNode && o.fields["spec.nodeName"] != node
		if !isInRange || (isFull && isOfOtherNode) {
			continue
		}
		switch {
		case isFull: // The object follows the page.
			page.Next = strings.TrimPrefix(found[len(found)-1], prefix) + "\x00"
			if q.ChoosesAll() {
				page.Remaining++
			}
		case q.Labels.Matches(o.labels) && q.Fields.Matches(o.fields):
			found = append(found, key)
		}
	}
	return page, found
}

// TestNodeIndexEnds: a list of a node's pods is read in pages. With EndsWithIndex, the page with the node's last pod is the
// last page. Without it, another page follows if any other pod follows.
func TestNodeIndexEnds(t *testing.T) {
	m := newCheckedTree(0)
	for key, node := range map[string]string{"a/1": "n1", "a/2": "n2"} {
		m.tree.Set(&Object{Key: key, Fields: []string{node, "", node, ""}})
	}
	for endsWithIndex, wantNext := range map[bool]string{true: "", false: "a/1\x00"} {
		q := Query{Limit: 1, Fields: fields.ParseSelectorOrDie("spec.nodeName=n1"), EndsWithIndex: endsWithIndex}
		expect.Same(t, wantNext, m.tree.Page(m.envelope, q, noBuffer).Next)
	}
}

// TestCountWalksLittle: Count looks only at objects of the first and the last run of its range. Of the runs between them, it
// reads only the lengths. (Set puts objects that come in order into full runs.)
func TestCountWalksLittle(t *testing.T) {
	const objects, skipped = 20 * maxRun, 10 // skipped is the number of objects before the range
	tree := NewTree(withoutIndex)
	for i := range objects {
		tree.Set(&Object{Key: fmt.Sprintf("ns/%06d", i)})
	}
	if runs, most := tree.runs.Len(), objects/maxRun+1; runs > most {
		t.Errorf("%d objects are in %d runs, want at most %d", objects, runs, most)
	}
	tree.runs.Ascend(func(r run) bool {
		if isBetween := r.first > "ns/000100" && r.first < "ns/001000"; isBetween {
			r.columns.objects = nil // If Count looked at them, it would panic.
		}
		return true
	})
	for _, end := range []string{"", (Scope{Namespace: "ns"}).End()} {
		expect.Same(t, int64(objects-skipped), tree.Count(fmt.Sprintf("ns/%06d", skipped), end))
	}
}
