package snapshot

import (
	"fmt"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/snapshot/index"
	"github.com/listproxy/listproxy/snapshot/source"
	"github.com/listproxy/listproxy/snapshot/wire"
)

// TestObjectsAreWhatTheirBytesSay, in each of what stands beside these.
func TestObjectsAreWhatTheirBytesSay(t *testing.T) {
	c := &comparison{source: source.Source{Resource: Resource{Representation: media.JSON}}}
	frame := wire.FixedFrame("PodList", "v1", wire.Field{Name: "spec.nodeName", JSON: []string{"spec", "nodeName"}, Indexed: true})
	var many strings.Builder
	for i := range wire.ManyLabels {
		fmt.Fprintf(&many, `"l%d":"v",`, i)
	}
	for _, labels := range []string{`"app":"x"`, many.String() + `"app":"x"`} {
		body := []byte(`{"metadata":{"name":"a","namespace":"n","resourceVersion":"5","labels":{` + labels + `}},"spec":{"nodeName":"n1"}}`)
		m, err := c.source.Encoding().Item(body)
		if err != nil {
			t.Fatal(err)
		}
		other, err := wire.MakeLabels([]string{"app", "y"})
		if err != nil {
			t.Fatal(err)
		}
		for name, change := range map[string]func(*index.Object){
			"":         func(*index.Object) {},
			"labels":   func(o *index.Object) { o.Labels = other },
			"a field":  func(o *index.Object) { o.Fields = []string{"n2"} },
			"revision": func(o *index.Object) { o.Revision++ },
			"key":      func(o *index.Object) { o.Key = "n/b" },
			"bytes":    func(o *index.Object) { o.Bytes = o.Bytes[1:] },
		} {
			o := index.NewObject(1, "n/a", 5, body)
			o.Labels, o.Fields = m.Labels, []string{"n1"}
			change(o)
			if got := c.checkObjects(frame, []*index.Object{o}); (len(got) == 0) != (name == "") {
				t.Errorf("%q changed: %q", name, got)
			}
		}
	}
}
