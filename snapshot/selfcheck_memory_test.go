package snapshot

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/policy/media"
)

// indexedTree has n objects on three nodes.
func indexedTree(t *testing.T, n int) tree {
	t.Helper()
	state := newTree(true)
	for i := range n {
		o := newObject(uint64(i+1), fmt.Sprintf("n/%05d", i), uint64(i+1), nil) // #nosec G115 -- a count
		var err error
		if o.labels, err = makeLabels([]string{"app", fmt.Sprint(i % 7)}); err != nil {
			t.Fatal(err)
		}
		o.fields = []string{fmt.Sprint(i % 3)}
		state.set(o)
	}
	return state
}

// blot takes the signature of a key's labels away.
func blot(s tree, key string) {
	r, _ := s.labels.upTo(key, false)
	i, _ := slices.BinarySearch(r.keys, key)
	r.signatures[i] = signature{}
}

// TestIndexesAreChecked: whatever they have that the objects have not, and the other way round.
func TestIndexesAreChecked(t *testing.T) {
	other, err := makeLabels([]string{"app", "other"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		change func(tree)
		want   []string
	}{
		{"nothing", func(tree) {}, nil},
		{"other labels", func(s tree) {
			s.labels.set("n/00005", other)
		}, []string{"n/00005 has other labels in the index"}},
		{"a signature", func(s tree) {
			blot(s, "n/00005")
		}, []string{"n/00005 has other labels in the index"}},
		{"a run's signature", func(s tree) {
			r, _ := s.labels.upTo("n/00005", false)
			r.all = r.signatures[0]
		}, []string{
			"n/00001 has other labels in the index", "n/00002 has other labels in the index", "n/00003 has other labels in the index",
			"n/00004 has other labels in the index", "n/00005 has other labels in the index",
		}},
		{"labels of nothing", func(s tree) {
			s.labels.set("n/00005x", labelSet{})
		}, []string{"10 objects have 11 entries in the index of labels"}},
		{"no labels", func(s tree) {
			s.labels.remove("n/00009")
		}, []string{"10 objects have 9 entries in the index of labels", "n/00009 has other labels in the index"}},
		{"another node", func(s tree) {
			s.nodes.Delete(nodeKey{"2", "n/00005"})
			s.nodes.ReplaceOrInsert(nodeKey{"1", "n/00005"})
		}, []string{"n/00005 has another value in the index of a field"}},
		{"two nodes", func(s tree) {
			s.nodes.ReplaceOrInsert(nodeKey{"1", "n/00005"})
		}, []string{"10 objects have 11 entries in the index of a field"}},
		{"a count", func(s tree) {
			s.ranks.segments.ReplaceOrInsert(segment{first: "n/00007", n: 4})
		}, []string{"10 objects are counted as 11"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			state := indexedTree(t, 10)
			tt.change(state)
			_, got := state.checkIndexes("", indexedAtOnce)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestIndexesAreCheckedInTurn: so many objects in one check, and all in some.
func TestIndexesAreCheckedInTurn(t *testing.T) {
	const atOnce = 50
	state := indexedTree(t, 2*atOnce+1)
	wrong := fmt.Sprintf("n/%05d", atOnce+1)
	blot(state, wrong)
	var begins []string
	var found [][]string
	for from := ""; ; {
		next, differences := state.checkIndexes(from, atOnce)
		begins, found = append(begins, next), append(found, differences)
		if from = next; from == "" {
			break
		}
	}
	if diff := cmp.Diff([]string{fmt.Sprintf("n/%05d", atOnce), fmt.Sprintf("n/%05d", 2*atOnce), ""}, begins); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([][]string{nil, {wrong + " has other labels in the index"}, nil}, found); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestObjectsAreWhatTheirBytesSay, in each of what stands beside these.
func TestObjectsAreWhatTheirBytesSay(t *testing.T) {
	c := &comparison{source: source{resource: Resource{Representation: media.JSON}}}
	frame := &Frame{paths: newFieldPaths([]Field{{Name: "spec.nodeName", JSON: []string{"spec", "nodeName"}, Indexed: true}})}
	var many strings.Builder
	for i := range manyLabels {
		fmt.Fprintf(&many, `"l%d":"v",`, i)
	}
	for _, labels := range []string{`"app":"x"`, many.String() + `"app":"x"`} {
		body := []byte(`{"metadata":{"name":"a","namespace":"n","resourceVersion":"5","labels":{` + labels + `}},"spec":{"nodeName":"n1"}}`)
		m, err := c.source.encoding().item(body)
		if err != nil {
			t.Fatal(err)
		}
		other, err := makeLabels([]string{"app", "y"})
		if err != nil {
			t.Fatal(err)
		}
		for name, change := range map[string]func(*Object){
			"":         func(*Object) {},
			"labels":   func(o *Object) { o.labels = other },
			"a field":  func(o *Object) { o.fields = []string{"n2"} },
			"revision": func(o *Object) { o.Revision++ },
			"key":      func(o *Object) { o.Key = "n/b" },
			"bytes":    func(o *Object) { o.Bytes = o.Bytes[1:] },
		} {
			o := newObject(1, "n/a", 5, body)
			o.labels, o.fields = m.labels, []string{"n1"}
			change(o)
			if got := c.checkObjects(frame, []*Object{o}); (len(got) == 0) != (name == "") {
				t.Errorf("%q changed: %q", name, got)
			}
		}
	}
}

// TestCompressedIsChecked: what is kept compressed is found to be another one, whatever is wrong.
func TestCompressedIsChecked(t *testing.T) {
	const n = 400
	for _, tt := range []struct {
		name   string
		change func(c *Compressor, frame *Frame, objects []*Object)
		want   string
	}{
		{"nothing", func(*Compressor, *Frame, []*Object) {}, ""},
		{"a segment is damaged", func(c *Compressor, frame *Frame, objects []*Object) {
			s := c.segment(frame, objects[:segmentLength(objects)], true)
			s.deflated[len(s.deflated)/2] ^= 0x10
		}, "after its compression"},
		{"a checksum", func(c *Compressor, frame *Frame, objects []*Object) {
			c.segment(frame, objects[:segmentLength(objects)], true).crc++
		}, "cannot be read after its compression: gzip: invalid checksum"},
		{"a segment has the version before", func(_ *Compressor, _ *Frame, objects []*Object) {
			o := *objects[3]
			o.Bytes = append([]byte{'{', ' '}, o.Bytes[1:]...)
			objects[3] = &o
		}, "ns/object-000003 has other bytes after its compression"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newTestCompressor(t, 8<<20)
			objects := someObjects(1, n, 1<<10)
			compressed(t, c, objects)
			c.segments.Wait()
			s := Fixed(7, "PodList", "v1", nil)
			tt.change(c, s.Frame, objects)
			got := strings.Join(c.check(s, Page{Objects: objects}), "; ")
			if (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
