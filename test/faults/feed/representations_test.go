package feed

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
)

const (
	protobufType = "application/vnd.kubernetes.protobuf"
	metadataOf   = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// Every kind in every representation that it has, empty and not, whole and in pages, is written
// as the API server writes it, and so are those that came by a watch.
func TestRepresentations(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	r := newRig(t, shared, rigOptions{})
	ns := r.namespace(t, "representations")
	kinds := []kind{
		configMaps, pods, endpoints, limitRanges, podTemplates, resourceQuotas, claims, controllers,
		deployments, daemonSets, replicaSets, statefulSets, revisions, networkPolicies, budgets,
		endpointSlices, priorityClasses, widgets, gadgets,
	}
	for _, k := range kinds {
		t.Run(k.plural, func(t *testing.T) {
			for i := range 3 {
				r.create(t, k, ns, fmt.Sprintf("representation-%d", i))
			}
			for _, accept := range []string{
				"application/json", protobufType + ",application/json",
				"application/json" + metadataOf, protobufType + metadataOf,
			} {
				r.fromMemory(t, accept, k.list("")+"?resourceVersion=0")
				r.sameIn(t, accept, k, ns, r.touch(t, k, ns, "representation-1", "first "+accept))
				r.sameIn(t, accept, k, ns, r.touch(t, k, ns, "representation-1", "second "+accept))
			}
		})
	}
}

// fromMemory asks until listproxy answers from memory.
func (r *rig) fromMemory(t *testing.T, accept, path string) (got ask.Answer) {
	t.Helper()
	r.until(path+" from memory", func() (err error) {
		if got, err = r.admin.GetAs(t.Context(), accept, path); err == nil && !strings.Contains(got.Source(), "hit") {
			err = fmt.Errorf("%d %s", got.Code, got.Source())
		}
		return err
	})
	return got
}

// sameIn asks for lists at a revision until they are answered from memory, and compares them.
func (r *rig) sameIn(t *testing.T, accept string, k kind, namespace, revision string) {
	t.Helper()
	for _, q := range []url.Values{
		exactly(revision),
		firstPage(revision),
		query("resourceVersion="+revision, "resourceVersionMatch=Exact", "labelSelector=none"),
	} {
		r.same(t, accept, k.list(namespace), q)
	}
}

// same asks for a list until it is answered from memory, and holds it against the API server's.
func (r *rig) same(t *testing.T, accept, list string, q url.Values) {
	t.Helper()
	path := list + "?" + q.Encode()
	got := r.fromMemory(t, accept, path)
	want, err := r.direct.GetAs(t.Context(), accept, path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Body, want.Body) || want.Code != http.StatusOK {
		t.Errorf("%s as %s: listproxy and the API server differ\n got: %q\nwant: %d %q", path, accept, got.Body, want.Code, want.Body)
	}
	for _, name := range []string{"Content-Type", "Warning", "Cache-Control"} {
		if fmt.Sprint(got.Header.Values(name)) != fmt.Sprint(want.Header.Values(name)) {
			t.Errorf("%s as %s: %s is %q, and %q directly", path, accept, name, got.Header.Values(name), want.Header.Values(name))
		}
	}
}
