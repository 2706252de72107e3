package feed

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
)

const (
	fwdUpstream     = "listproxy; fwd=bypass; detail=upstream"
	fwdReview       = "listproxy; fwd=bypass; detail=review-failed"
	serverLeases    = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
	storageVersions = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions"
)

// compared is true for a page of a comparison, and not for the one that belongs to a load.
func compared(q url.Values) bool {
	return q.Get("resourceVersionMatch") == "Exact" && q.Get("limit") != "2"
}

// Rules 6 and 7: when an API server is restarted, lists come from memory as soon as it reviews rights,
// and nothing is loaded more than once.
func TestAPIServerRestarted(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	r := newRig(t, ownCluster(t), rigOptions{})
	ns := r.namespace(t, "restarted")
	kinds := []kind{configMaps, limitRanges, widgets}
	for _, k := range kinds {
		for i := range 3 {
			r.create(t, k, ns, fmt.Sprintf("object-%d", i))
		}
		r.await(hitAny, k.Path(ns), anyVersion())
	}
	expect.NoError(t, r.StopAPIServer())
	started := make(chan error, 1)
	go func() { started <- r.StartAPIServer(t.Context()) }()
	for _, k := range kinds[:2] { // definitions are listed again before widgets come from memory
		r.until(k.Path(ns)+" to be answered", func() error {
			a, err := r.try(k.Path(ns), anyVersion())
			switch {
			case err == nil && a.Source() == fwdReview: // rights cannot be reviewed yet
				err = errors.New(a.String())
			case err == nil && a.Code == http.StatusOK && a.Source() != hitAny:
				t.Errorf("the first answer is of %q", a.Source())
			case err == nil && a.Code != http.StatusOK:
				err = errors.New(a.String())
			}
			return err
		})
	}
	expect.NoError(t, <-started)
	for _, k := range kinds {
		// The first may have come before the state was loaded anew.
		r.await(hitNotOlderThan, k.Path(ns), notOlderThan(r.touch(t, k, ns, "object-0", "later")))
		last := r.touch(t, k, ns, "object-0", "last")
		r.await(hitNotOlderThan, k.Path(ns), notOlderThan(last))
		r.expect(hitExact, k.Path(ns), exactly(last))
		if got := r.count(k, fullLoad); got > 2 {
			t.Errorf("%s were loaded %d times", k.Plural, got)
		}
	}
}

// Rule 7: the Leases of the API servers tell that there is another one, or one less, or that one
// was started again. Then all is compared, and goes on to be answered. That a Lease is renewed is no
// news.
func TestAPIServersComeAndGo(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	r := newRig(t, ownCluster(t), rigOptions{})
	ns := r.namespace(t, "come-and-go")
	r.create(t, configMaps, ns, "one")
	list := configMaps.Path(ns)
	r.await(hitAny, list, anyVersion())
	verified := func(because string, after int) {
		r.until("a comparison because of "+because, func() error {
			r.expect(hitAny, list, anyVersion())
			if r.count(configMaps, compared) <= after {
				return errors.New("nothing was compared")
			}
			return nil
		})
	}
	held := func(holder string) fieldsOf { return serverLease(ns, holder) }
	for _, step := range []struct {
		name, method, path string
		object             any
	}{
		{"another API server", http.MethodPost, serverLeases, held("another_1")},
		{"one that is started again", http.MethodPatch, serverLeases + "/" + ns, held("another_2")},
		{"one that ends", http.MethodDelete, serverLeases + "/" + ns, nil},
		{"one more", http.MethodPost, serverLeases, held("another_3")},
	} {
		before := r.count(configMaps, compared)
		r.write(t, step.method, step.path, step.object)
		verified(step.name, before)
	}
	before := r.count(configMaps, compared)
	renewed := held("another_3")
	renewed["spec"] = fieldsOf{"renewTime": "2100-01-01T00:00:10.000000Z"}
	r.write(t, http.MethodPatch, serverLeases+"/"+ns, renewed)
	// A Lease without the label comes later on the same stream, and is nobody's.
	other := held("somebody")
	other["metadata"] = fieldsOf{"name": "somebody-" + ns}
	r.write(t, http.MethodPost, serverLeases, other)
	for range 20 {
		later := r.touch(t, configMaps, ns, "one", "later")
		r.await(hitNotOlderThan, list, notOlderThan(later))
	}
	if got := r.count(configMaps, compared); got != before {
		t.Error("a renewal was taken for a change")
	}
	expect.NoError(t, r.loaded(configMaps, 1))
}

// serverLease is the Lease of an API server that does not exist.
func serverLease(name, holder string) fieldsOf {
	return fieldsOf{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
		"metadata": fieldsOf{"name": name, "labels": fieldsOf{"apiserver.kubernetes.io/identity": "kube-apiserver"}},
		"spec":     fieldsOf{"holderIdentity": holder, "leaseDurationSeconds": 3600, "renewTime": "2100-01-01T00:00:00.000000Z"},
	}
}

// Rule 7: /version tells of other API servers as well.
func TestVersionChanges(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	r := newRig(t, shared, rigOptions{})
	ns := r.namespace(t, "version")
	r.create(t, configMaps, ns, "one")
	r.await(hitAny, configMaps.Path(ns), anyVersion())
	r.onFault(func(w http.ResponseWriter, req *http.Request) bool {
		if req.URL.Path != "/version" {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"major":"1","minor":"99","gitVersion":"v1.99.0"}`)
		return true
	})
	r.until("a comparison because of it", func() error {
		r.expect(hitAny, configMaps.Path(ns), anyVersion())
		if r.count(configMaps, compared) == 0 {
			return errors.New("nothing was compared")
		}
		return nil
	})
}

// Rule 9: while the API servers do not agree in which version they store a resource, it is
// forwarded. They are asked when they have changed, and again and again while they do not agree.
//
// kube-apiserver writes these objects when it starts, before it is ready, and again every ten
// minutes: what the test writes stays for its time.
func TestStorageVersions(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	r := newRig(t, ownCluster(t, "--feature-gates=StorageVersionAPI=true,APIServerIdentity=true",
		"--runtime-config=internal.apiserver.k8s.io/v1alpha1=true"), rigOptions{})
	r.unhurried(t, configMaps, r.namespace(t, "storage-versions"), func(r *rig, ns string) error {
		return storageVersionsMove(t, r, ns)
	})
}

// storageVersionsMove returns an error if configmaps are loaded while there is no agreement, or more
// than once for one.
func storageVersionsMove(t *testing.T, r *rig, ns string) error {
	t.Helper()
	r.agree(t, "v1", "v1") // which is no change, unless a look before this one left another
	for _, k := range []kind{configMaps, widgets} {
		r.create(t, k, ns, "one")
		r.await(hitAny, k.Path(ns), anyVersion())
	}
	list := configMaps.Path(ns)
	loads := func() int { return r.count(configMaps, fullLoad) }
	disagree := func(server string) {
		r.agree(t, "v1", "v1beta1")
		r.write(t, http.MethodPost, serverLeases, serverLease(server+"-"+ns, "a"))
		r.until("configmaps to be forwarded, and nothing else", func() error {
			for path, source := range map[string]string{list: fwdUpstream, widgets.Path(ns): hitAny} {
				if a, err := r.try(path, anyVersion()); err != nil || a.Source() != source {
					return fmt.Errorf("%s came from %q: %w", path, a.Source(), err)
				}
			}
			return nil
		})
	}

	disagree("second")
	before := loads()
	for range 20 {
		r.touch(t, configMaps, ns, "one", "in between")
		r.expect(fwdUpstream, list, anyVersion())
	}
	if got := loads(); got != before {
		return fmt.Errorf("loaded %d times while there was no agreement", got-before)
	}
	r.agree(t, "v1beta1", "v1beta1")
	r.await(hitAny, list, anyVersion())
	if got := loads(); got != before+1 {
		return fmt.Errorf("loaded %d times after the agreement, not once", got-before)
	}

	// Whatever is said about a resource ends with the object that says it.
	disagree("third")
	r.write(t, http.MethodDelete, storageVersions+"/core.configmaps", nil)
	r.await(hitAny, list, anyVersion())
	return nil
}

// agree makes the API server say in which version it stores configmaps, and what another one,
// which does not exist, says.
func (r *rig) agree(t *testing.T, is, other string) {
	t.Helper()
	path := storageVersions + "/core.configmaps"
	r.until("the storage version to be written", func() error {
		a, err := r.direct.Get(t.Context(), path)
		if err != nil {
			return err
		}
		var object struct {
			Status struct {
				StorageVersions []map[string]any
			}
		}
		if err := json.Unmarshal(a.Body, &object); err != nil || len(object.Status.StorageVersions) == 0 {
			return fmt.Errorf("%s: %w", a, err)
		}
		said := object.Status.StorageVersions[:1]
		said[0]["encodingVersion"] = is
		said[0]["decodableVersions"] = []string{"v1", "v1beta1"}
		said = append(said, map[string]any{
			"apiServerID": "apiserver-other", "encodingVersion": other, "decodableVersions": []string{"v1", "v1beta1"},
		})
		equal, common := "False", any(nil)
		if is == other {
			equal, common = "True", is
		}
		_, err = r.direct.Do(t.Context(), http.MethodPatch, path+"/status", fieldsOf{"status": fieldsOf{
			"storageVersions": said, "commonEncodingVersion": common,
			"conditions": []any{fieldsOf{
				"type": "AllEncodingVersionsEqual", "status": equal, "reason": "Test", "message": "made up",
				"lastTransitionTime": "2026-01-01T00:00:00Z",
			}},
		}})
		return err
	})
}
