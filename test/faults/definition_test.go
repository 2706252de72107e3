package faults

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strconv"
	"testing"

	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/oracle"
)

var gadgets = kind{APIVersion: "restored.test/v1", Name: "Gadget", Plural: "gadgets", Rest: `{"spec":{}}`}

// gadgetVersion is that of a custom kind. If there is a default, kube-apiserver writes it into
// objects that have an inner object, and into no others: the newest of them need not show that the
// definition has changed.
func gadgetVersion(size fieldsOf) fieldsOf {
	inner := fieldsOf{"type": "object", "properties": fieldsOf{"size": size}}
	return kinds.Version(fieldsOf{"type": "object", "properties": fieldsOf{
		"spec": fieldsOf{"type": "object", "properties": fieldsOf{"inner": inner}},
	}})
}

// TestDefinitionAfterRestore changes the definition of custom resources after etcd was restored, at
// a revision below those that listproxy has seen of it. Until kube-apiserver is ready connections
// are refused, upon which client-go's own watches go on at the revision of the lost past.
func TestDefinitionAfterRestore(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	s := newScene(t, broken, "definition", *binary)
	mend(s)
	until := func(what string, look func() error) {
		t.Helper()
		s.must(poll.Retry(t.Context(), what, look))
	}
	// write writes and returns the object's revision.
	write := func(method, path string, object any) (revision uint64) {
		t.Helper()
		until(method+" "+path, func() error {
			a, err := s.direct.Do(t.Context(), method, path, object)
			if err != nil {
				return err
			}
			revision, err = a.Revision()
			return err
		})
		return revision
	}
	path := gadgets.Path("default")
	write(http.MethodPost, kinds.Definitions, gadgets.Definition(gadgetVersion(fieldsOf{"type": "string"})))
	t.Cleanup(func() { // the stage is others' as well
		if _, err := s.direct.Do(context.WithoutCancel(t.Context()), http.MethodDelete, gadgets.DefinitionPath(), nil); err != nil {
			t.Error(err)
		}
	})
	hasInner := gadgets
	hasInner.Rest = `{"spec":{"inner":{}}}`
	write(http.MethodPost, path, hasInner.Object("has-inner"))
	write(http.MethodPost, path, gadgets.Object("newest"))
	snapshot, err := s.plane.SnapshotEtcd(t.Context())
	s.must(err)

	s.openDoor(address(s.plane))
	s.args = []string{"--self-check-interval", "0"}
	s.start()
	defer s.proxies.Stop(s)
	// same asks for any state: it must come from memory and be what kube-apiserver says of that
	// revision.
	same := func() error {
		a, err := s.via.Get(t.Context(), path+"?"+ask.AnyVersion)
		if err != nil {
			return err
		}
		if !a.FromMemory() {
			return errors.New(a.String())
		}
		revision, err := a.Revision()
		if err != nil {
			return err
		}
		want, err := s.direct.Get(t.Context(), path+"?"+ask.Exactly(revision))
		if err == nil && !bytes.Equal(a.Body, want.Body) {
			err = errors.New("listproxy and kube-apiserver: " + oracle.Difference(a.Body, want.Body))
		}
		return err
	}
	until("an answer from memory", same)
	lost := uint64(0)
	for turn := range 301 { // kube-apiserver writes some at its start
		lost = write(http.MethodPatch, gadgets.DefinitionPath(), kinds.Touch(strconv.Itoa(turn)))
	}
	until("an answer from memory after the definition was written", same)

	s.must(s.door.Refuse())
	s.must(s.plane.RestoreEtcd(t.Context(), snapshot))
	until("the port again", s.door.Listen)
	until("an answer from memory after etcd was restored", same)
	changed := write(http.MethodPatch, gadgets.DefinitionPath(), fieldsOf{"spec": fieldsOf{"versions": []any{
		gadgetVersion(fieldsOf{"type": "string", "default": "small"}),
	}}})
	if changed >= lost {
		t.Fatalf("the definition was changed at %d, which is not below %d", changed, lost)
	}
	until("the default is there", func() error {
		a, err := s.direct.Get(t.Context(), path+"/has-inner")
		if err == nil && !bytes.Contains(a.Body, []byte(`"inner":{"size":"small"}`)) {
			err = errors.New(a.String())
		}
		return err
	})
	until("an answer from memory under the new definition", same)
	for range 20 {
		poll.Pause(t.Context(), pollEvery)
		if err := same(); err != nil {
			t.Error(err)
		}
	}
}
