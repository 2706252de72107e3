package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/faults/load"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/oracle"
)

var gadgets = kind{APIVersion: "restored.test/v1", Name: "Gadget", Plural: "gadgets", Rest: `{"spec":{}}`}

// gadgetSchema is that of a custom kind. If there is a default, kube-apiserver writes it into
// objects that have an inner object, and into no others: the newest of them need not show that the
// definition has changed.
func gadgetSchema(size fieldsOf) fieldsOf {
	inner := fieldsOf{"type": "object", "properties": fieldsOf{"size": size}}
	return fieldsOf{"type": "object", "properties": fieldsOf{
		"spec": fieldsOf{"type": "object", "properties": fieldsOf{"inner": inner}},
	}}
}

// TestDefinitionAfterRestore changes the definition of custom resources after etcd was restored, at
// a revision below those that listproxy has seen of it. Until kube-apiserver is ready connections
// are refused, upon which client-go's own watches go on at the revision of the lost past.
func TestDefinitionAfterRestore(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	plane, leave, err := broken.enter(context.WithoutCancel(t.Context()))
	t.Cleanup(leave)
	expect.NoError(t, err)
	direct := ask.MustNew(t, plane.RESTConfig(controlplane.Admin), requestTimeout)
	until := func(what string, look func() error) {
		t.Helper()
		expect.NoError(t, poll.Retry(t.Context(), what, look))
	}
	// write writes and returns the object's revision.
	write := func(method, path string, object any) (revision uint64) {
		t.Helper()
		until(method+" "+path, func() error {
			a, err := direct.Do(t.Context(), method, path, object)
			if err != nil {
				return err
			}
			revision, err = a.Revision()
			return err
		})
		return revision
	}
	path := gadgets.Path("default")
	write(http.MethodPost, kinds.Definitions, gadgets.Definition(kinds.Version(gadgetSchema(fieldsOf{"type": "string"}))))
	t.Cleanup(func() { // the stage is others' as well
		if _, err := direct.Do(context.WithoutCancel(t.Context()), http.MethodDelete, gadgets.DefinitionPath(), nil); err != nil {
			t.Error(err)
		}
	})
	hasInner := gadgets
	hasInner.Rest = `{"spec":{"inner":{}}}`
	write(http.MethodPost, path, hasInner.Object("has-inner"))
	write(http.MethodPost, path, gadgets.Object("newest"))
	snapshot, err := plane.SnapshotEtcd(t.Context())
	expect.NoError(t, err)

	door, err := hop.StartBalancer()
	expect.NoError(t, err)
	t.Cleanup(door.Close)
	own := plane.RESTConfig(controlplane.Feed)
	door.Add(strings.TrimPrefix(own.Host, "https://"))
	own.Host = "https://" + door.Address()
	listproxy := harness.RunProxy(t, harness.ProxyOptions{Upstream: own, Binary: *binary, Args: []string{
		"--staleness-bound", load.Bound.String(), "--self-check-interval", "0",
	}})
	via := ask.MustNew(t, listproxy.RESTConfig(plane.RESTConfig(controlplane.Admin)), requestTimeout)
	// same asks for the newest state: it must come from memory and be what kube-apiserver says of
	// that revision.
	same := func() error {
		a, err := via.Get(t.Context(), path+"?"+ask.AnyVersion)
		if err != nil {
			return err
		}
		if !a.FromMemory() {
			return errors.New(a.String())
		}
		l, err := ask.ReadList(ask.JSON, a.Body)
		if err != nil {
			return err
		}
		want, err := direct.Get(t.Context(), path+"?"+ask.Exactly(l.Revision))
		if err != nil {
			return err
		}
		if !bytes.Equal(a.Body, want.Body) {
			return fmt.Errorf("revision %d, listproxy and kube-apiserver: %s", l.Revision, oracle.Difference(a.Body, want.Body))
		}
		return nil
	}
	until("an answer from memory", same)
	lost := write(http.MethodPatch, gadgets.DefinitionPath(), kinds.Touch("0"))
	for turn := 1; turn <= 300; turn++ { // kube-apiserver writes some at its start
		lost = write(http.MethodPatch, gadgets.DefinitionPath(), kinds.Touch(strconv.Itoa(turn)))
	}
	until("an answer from memory after the definition has changed", same)

	expect.NoError(t, door.Refuse())
	expect.NoError(t, plane.RestoreEtcd(t.Context(), snapshot))
	until("the port again", door.Listen)
	until("an answer from memory after etcd was restored", same)
	changed := write(http.MethodPatch, gadgets.DefinitionPath(), fieldsOf{"spec": fieldsOf{"versions": []any{kinds.Version(gadgetSchema(fieldsOf{"type": "string", "default": "small"}))}}})
	if changed >= lost {
		t.Fatalf("the definition was changed at %d, which is not below %d", changed, lost)
	}
	until("the default is there", func() error {
		a, err := direct.Get(t.Context(), path+"/has-inner")
		if err != nil {
			return err
		}
		var o struct {
			Spec struct{ Inner struct{ Size string } }
		}
		if err := json.Unmarshal(a.Body, &o); err != nil || o.Spec.Inner.Size != "small" {
			return fmt.Errorf("%w: %s", errors.Join(err, errors.New("not yet")), a.Body)
		}
		return nil
	})
	until("an answer from memory under the new definition", same)
	for range 20 {
		poll.Pause(t.Context(), pollEvery)
		if err := same(); err != nil {
			t.Error(err)
		}
	}
}
