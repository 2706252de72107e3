package discovery

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/listproxy/listproxy/proxy/internal/proxytest"
	"github.com/listproxy/listproxy/snapshot/wire"
)

func TestDefinitionsReportWhatChanged(t *testing.T) {
	crd := func(name string, uid types.UID, revision int) any {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid, ResourceVersion: strconv.Itoa(revision)}}
	}
	var got []string
	d := (&Schemas{changed: func(gr schema.GroupResource) { got = append(got, gr.String()) }}).store()
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
	if !s.agreeLocked(defined, false) || !s.agreeLocked(builtin, true) {
		t.Error("definitions that are not known say something")
	}
	crd := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a.x.io"}}
	if err := s.store().Replace([]any{crd}, ""); err != nil {
		t.Fatal(err)
	}
	for gr, custom := range map[schema.GroupResource]bool{defined: true, builtin: false} {
		if !s.agreeLocked(gr, custom) || s.agreeLocked(gr, !custom) {
			t.Errorf("%s: that it is custom is %v", gr, custom)
		}
	}
}

const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// definitionObject is the metadata of a CustomResourceDefinition.
func definitionObject(name string, revision int) string {
	return fmt.Sprintf(`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":%q,"resourceVersion":"%d"}}`, name, revision)
}

// runSchemas runs Schemas in the bubble, on an API server with one definition. changes is how many
// it has told of.
func runSchemas(t *testing.T, f *proxytest.FakeAPI) (s *Schemas, changes func() int) {
	t.Helper()
	f.Collections[definitionsPath] = &proxytest.FakeCollection{
		Kind: "PartialObjectMetadataList", Objects: []string{definitionObject("a.x.io", 1)},
	}
	var changed atomic.Int32
	s, err := newSchemas(f.Config(), func(schema.GroupResource) { changed.Add(1) }, proxytest.DiscardLog())
	if err != nil {
		t.Fatal(err)
	}
	proxytest.RunInBubble(t, s.run)
	return s, func() int { return int(changed.Load()) }
}

func (s *Schemas) vouch() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.vouchLocked()
}

// TestSchemasVouch: custom resources are answered only while a change would be heard of. That a
// stream was opened is no sign of that, nor that one stays open which tells nothing.
func TestSchemasVouch(t *testing.T) {
	for _, tt := range []struct {
		name  string
		plain bool // there are no streaming lists
	}{{"streaming lists", false}, {"plain lists", true}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := proxytest.NewFakeAPI()
				f.Plain = tt.plain
				s, changes := runSchemas(t, f)
				f.Silence(definitionsPath, true)
				expect := func(when string, vouch bool) {
					t.Helper()
					synctest.Wait()
					if got := s.vouch(); got != vouch || !s.Ready() {
						t.Errorf("%s: vouches %v, ready %v", when, got, s.Ready())
					}
				}
				bookmark := func() { f.Event(definitionsPath, "BOOKMARK", definitionObject("", 7)) }

				expect("listed", true)
				for range 10 {
					time.Sleep(time.Minute)
					bookmark()
				}
				expect("with a bookmark every minute", true)
				f.Stall(definitionsPath)
				time.Sleep(streamSilence)
				expect("silent for a while", true)
				time.Sleep(silenceLook)
				expect("silent for too long", false)
				f.Flow(definitionsPath)
				expect("listed again", true)
				time.Sleep(time.Minute)
				f.Event(definitionsPath, "MODIFIED", definitionObject("a.x.io", 8))
				time.Sleep(time.Minute)
				expect("an event in place of a bookmark", true)

				f.Refuse(true)
				f.Cut(definitionsPath)
				expect("cut", false)
				time.Sleep(soonest)
				expect("not opened again", false)

				// The definition has changed. What tells it is held back.
				f.Stall(definitionsPath)
				f.Refuse(false)
				before := changes()
				for range 100 {
					time.Sleep(5 * time.Second)
					expect("opened again, and silent", false)
				}
				f.Collections[definitionsPath].Objects[0] = definitionObject("a.x.io", 9)
				f.Flow(definitionsPath)
				expect("listed again", true)
				if got := changes() - before; got != 1 {
					t.Errorf("told of %d changes", got)
				}
			})
		})
	}
}

// TestSchemasOfAStreamThatEnded: what a stream has listed counts only while it is open, also if its
// end is noticed before its list is taken.
func TestSchemasOfAStreamThatEnded(t *testing.T) {
	opened := func(follows bool) func(*Schemas) { return func(s *Schemas) { s.opened(follows) } }
	listed := func(s *Schemas) { _ = s.store().Replace(nil, "") }
	for name, tt := range map[string]struct {
		steps []func(*Schemas)
		vouch bool
	}{
		"a streaming list":              {[]func(*Schemas){opened(false), listed}, true},
		"that has told nothing":         {[]func(*Schemas){opened(false), listed, opened(false)}, false},
		"that ended":                    {[]func(*Schemas){opened(false), listed, (*Schemas).lost}, false},
		"that ended before its list":    {[]func(*Schemas){opened(false), (*Schemas).lost, listed}, false},
		"a list":                        {[]func(*Schemas){listed}, false},
		"a list and a watch":            {[]func(*Schemas){listed, (*Schemas).lost, opened(true)}, true},
		"a list and a watch that ended": {[]func(*Schemas){listed, (*Schemas).lost, opened(true), (*Schemas).lost}, false},
	} {
		s := &Schemas{changed: func(schema.GroupResource) {}}
		s.heard.note()
		for _, step := range tt.steps {
			step(s)
		}
		if got := s.vouch(); got != tt.vouch {
			t.Errorf("%s: vouches %v", name, got)
		}
	}
}

// TestSchemasListAtEachTimeout: the watch that came to its timeout is followed by a list, since the
// header of another watch would not say that nothing is pending.
func TestSchemasListAtEachTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := proxytest.NewFakeAPI()
		s, _ := runSchemas(t, f)
		time.Sleep(11 * time.Minute) // client-go asks for 5 to 10
		f.Stall(definitionsPath)
		f.End(definitionsPath)
		time.Sleep(2 * time.Second)
		if s.vouch() {
			t.Error("vouches for definitions of before the timeout")
		}
		f.Flow(definitionsPath)
		synctest.Wait()
		if !s.vouch() {
			t.Error("does not vouch for what was listed")
		}
	})
}

// TestSchemasRefused: where definitions may not be read, nobody waits for them, and nothing is
// vouched for.
func TestSchemasRefused(t *testing.T) {
	s := &Schemas{}
	s.ended(apierrors.NewForbidden(schema.GroupResource{}, "", nil))
	if !s.Ready() || s.vouch() {
		t.Errorf("ready %v, vouches %v", s.Ready(), s.vouch())
	}
}

// suspended is a reading of the clock from before the machine stood still for some whole seconds,
// which the wall clock has counted and the monotonic one has not. Nothing in package time makes
// one: it holds the seconds of the wall clock above 30 bits of nanoseconds, beside the monotonic
// reading.
func suspended(at time.Time, seconds uint64) time.Time {
	*(*uint64)(unsafe.Pointer(&at)) -= seconds << 30 // #nosec G103 -- the first field
	return at
}

// TestHeardBeforeASuspension: what was heard before the machine stood still is as old as the wall
// clock says.
func TestHeardBeforeASuspension(t *testing.T) {
	s := &Schemas{up: true, known: map[string]definition{}}
	if s.vouch() {
		t.Error("vouches before anything was heard")
	}
	s.heard.note()
	if !s.vouch() {
		t.Error("does not vouch for what was heard just now")
	}
	before := s.heard.at
	s.heard.at = suspended(before, 3600)
	if d := before.Round(0).Sub(s.heard.at.Round(0)); d != time.Hour || s.heard.at.Sub(before) != 0 {
		t.Fatalf("not a suspension: by the wall clock %v, by the other %v", d, s.heard.at.Sub(before))
	}
	if s.vouch() {
		t.Error("vouches for definitions from before the suspension")
	}
}

func TestSelectableFields(t *testing.T) {
	path := func(p any) any { return map[string]any{"jsonPath": p} }
	definition := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"versions": []any{
		map[string]any{"name": "v1", "selectableFields": []any{
			path(".spec.color"), path(".status.deep.er_x-1"), path(".spec.list[0]"), path(".spec['a']"), path(`.spec.a\.b`), path("spec"), path("."), path(1), "x",
		}},
		map[string]any{"name": "v2", "selectableFields": []any{path(".spec.hue")}},
		map[string]any{"name": "v3"},
		"not a version",
	}}}}
	for version, want := range map[string][]wire.Field{
		"v1": {{Name: "spec.color", JSON: []string{"spec", "color"}}, {Name: "status.deep.er_x-1", JSON: []string{"status", "deep", "er_x-1"}}},
		"v2": {{Name: "spec.hue", JSON: []string{"spec", "hue"}}},
		"v3": nil,
		"v4": nil,
	} {
		if diff := cmp.Diff(want, selectableFields(definition, version)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", version, diff)
		}
	}
	if got := selectableFields(&unstructured.Unstructured{}, "v1"); got != nil {
		t.Errorf("an empty definition: %v", got)
	}
}
