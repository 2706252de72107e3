package proxy

import (
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

func TestDefinitionsReportWhatChanged(t *testing.T) {
	crd := func(name string, uid types.UID, revision int) any {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid, ResourceVersion: strconv.Itoa(revision)}}
	}
	var got []string
	d := &Schemas{changed: func(gr schema.GroupResource) { got = append(got, gr.String()) }}
	for _, step := range []struct {
		name string
		do   func() error
		want []string
	}{
		{"the first list", func() error { return d.Replace([]any{crd("a.x.io", "1", 1), crd("b.x.io", "2", 1)}, "") }, nil},
		{"nothing new", func() error { return d.Update(crd("a.x.io", "1", 1)) }, nil},
		{"a change, of whatever", func() error { return d.Update(crd("a.x.io", "1", 2)) }, []string{"a.x.io"}},
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

// TestSchemasAgree: what the APIServices say about the kind of a resource is held against the
// definitions.
func TestSchemasAgree(t *testing.T) {
	s := &Schemas{changed: func(schema.GroupResource) {}}
	defined, builtin := schema.GroupResource{Group: "x.io", Resource: "a"}, schema.GroupResource{Resource: "pods"}
	if !s.Agree(defined, false) || !s.Agree(builtin, true) {
		t.Error("definitions that are not known say something")
	}
	crd := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a.x.io"}}
	if err := s.Replace([]any{crd}, ""); err != nil {
		t.Fatal(err)
	}
	for gr, custom := range map[schema.GroupResource]bool{defined: true, builtin: false} {
		if !s.Agree(gr, custom) || s.Agree(gr, !custom) {
			t.Errorf("%s: that it is custom is %v", gr, custom)
		}
	}
}

// TestSchemasVouch: custom resources are answered only while a change would be heard of.
func TestSchemasVouch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Schemas{changed: func(schema.GroupResource) {}}
		expect := func(when string, ready, vouch bool) {
			t.Helper()
			if got := s.Ready(); got != ready {
				t.Errorf("%s: ready %v", when, got)
			}
			if got := s.Vouch(); got != vouch {
				t.Errorf("%s: vouches %v", when, got)
			}
		}
		expect("at first", false, false)
		if err := s.Replace(nil, ""); err != nil {
			t.Fatal(err)
		}
		expect("listed", true, false)
		s.opened(nil)
		expect("just opened", true, false)
		time.Sleep(schemaSettle)
		expect("open", true, true)
		s.opened(nil)
		expect("opened again without a break", true, true)
		s.opened(errors.New("refused"))
		expect("not opened again", true, false)
		s.opened(nil)
		time.Sleep(schemaSettle)
		expect("open again", true, true)
		s.ended(nil)
		expect("ended", true, false)

		s = &Schemas{}
		s.ended(apierrors.NewForbidden(schema.GroupResource{}, "", nil))
		expect("not permitted", true, false)
	})
}
