package proxy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

func TestDefinitionsReportWhatChanged(t *testing.T) {
	crd := func(name string, uid types.UID, generation int64) any {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid, Generation: generation}}
	}
	var got []string
	d := &definitions{known: map[string]definition{}, changed: func(gr schema.GroupResource) { got = append(got, gr.String()) }}
	for _, step := range []struct {
		name string
		do   func() error
		want []string
	}{
		{"the first list", func() error { return d.Replace([]any{crd("a.x.io", "1", 1), crd("b.x.io", "2", 1)}, "") }, nil},
		{"a change of status", func() error { return d.Update(crd("a.x.io", "1", 1)) }, nil},
		{"a change of spec", func() error { return d.Update(crd("a.x.io", "1", 2)) }, []string{"a.x.io"}},
		{"a new one", func() error { return d.Add(crd("c.y.io", "3", 1)) }, []string{"c.y.io"}},
		{"gone", func() error { return d.Delete(crd("c.y.io", "3", 1)) }, []string{"c.y.io"}},
		{"a gap in which nothing changed", func() error { return d.Replace([]any{crd("a.x.io", "1", 2), crd("b.x.io", "2", 1)}, "") }, nil},
		{"a gap in which one was made again", func() error { return d.Replace([]any{crd("a.x.io", "9", 2), crd("b.x.io", "2", 1)}, "") }, []string{"a.x.io"}},
		{"a gap in which one went", func() error { return d.Replace([]any{crd("a.x.io", "9", 2)}, "") }, []string{"b.x.io"}},
	} {
		got = nil
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}
