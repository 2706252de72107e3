package discovery

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

const storageVersionsPath = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions"

// storageVersion is what API servers say together about a resource.
func storageVersion(name, common string) string {
	status := `{"conditions":[{"type":"AllEncodingVersionsEqual","status":"False"}]}`
	if common != "" {
		status = fmt.Sprintf(`{"commonEncodingVersion":%q,"conditions":[{"type":"AllEncodingVersionsEqual","status":"True"}]}`, common)
	}
	return storageVersionStatus(name, status)
}

func storageVersionStatus(name, status string) string {
	return fmt.Sprintf(`{"kind":"StorageVersion","apiVersion":"internal.apiserver.k8s.io/v1alpha1","metadata":{"name":%q,"resourceVersion":"1"},"spec":{},"status":%s}`, name, status)
}

// storageVersionsHeard is what StorageVersions told.
type storageVersionsHeard struct {
	mu   sync.Mutex
	told []string
}

func (h *storageVersionsHeard) tell(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = append(h.told, fmt.Sprintf(format, args...))
}

// expect holds what was told since the last call against what should have been, in any order.
func (h *storageVersionsHeard) expect(t *testing.T, when string, want ...string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.Sort(h.told)
	if diff := cmp.Diff(want, h.told); diff != "" {
		t.Errorf("%s (-want +got):\n%s", when, diff)
	}
	h.told = nil
}

func runStorageVersions(t *testing.T, f *proxytest.FakeAPI) (*storageVersions, *storageVersionsHeard) {
	t.Helper()
	heard := &storageVersionsHeard{}
	s, err := newStorageVersions(f.Config(), func(gr schema.GroupResource, disagree bool) { heard.tell("%s disagree %v", gr, disagree) }, proxytest.DiscardLog())
	expect.NoError(t, err)
	proxytest.RunInBubble(t, s.run)
	return s, heard
}

func TestStorageVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := proxytest.NewFakeAPI()
		c := &proxytest.FakeCollection{Kind: "StorageVersionList", Objects: []string{
			storageVersion("core.configmaps", "v1"),
			storageVersion("apps.deployments", ""),
			storageVersionStatus("networking.k8s.io.ingresses", `{}`),
			storageVersionStatus("batch.jobs", `{"commonEncodingVersion":"batch/v1","conditions":[{"type":"Other","status":"False"},{"type":"AllEncodingVersionsEqual","status":"False"}]}`),
			storageVersionStatus("batch.cronjobs", `{"commonEncodingVersion":"batch/v1","conditions":[{"type":"Other","status":"False"}]}`),
		}}
		f.Collections[storageVersionsPath] = c
		s, heard := runStorageVersions(t, f)
		heard.expect(t, "at the start", "deployments.apps disagree true", "ingresses.networking.k8s.io disagree true", "jobs.batch disagree true")
		say := func(objects ...string) {
			f.Mu.Lock()
			defer f.Mu.Unlock()
			c.Objects = objects
		}
		say(storageVersion("apps.deployments", "apps/v1"), storageVersion("core.configmaps", "v2"), storageVersion("batch.jobs", ""))
		time.Sleep(snapshot.Skew + time.Second)
		heard.expect(t, "some agree, or are gone", "deployments.apps disagree false", "ingresses.networking.k8s.io disagree false")
		time.Sleep(time.Minute)
		say()
		time.Sleep(snapshot.Skew)
		heard.expect(t, "none is left", "jobs.batch disagree false")

		// Nobody asks while there is no reason to.
		asked := f.Asked("list " + storageVersionsPath)
		say(storageVersion("core.configmaps", ""))
		time.Sleep(time.Hour)
		heard.expect(t, "nobody asks")
		if got := f.Asked("list "+storageVersionsPath) - asked; got != 0 {
			t.Errorf("asked %d times", got)
		}
		s.serversChanged()
		synctest.Wait()
		heard.expect(t, "the servers changed", "configmaps disagree true")

		// What cannot be asked now is asked again, and says nothing.
		f.Answer(http.StatusServiceUnavailable, "list "+storageVersionsPath)
		time.Sleep(time.Hour)
		heard.expect(t, "nobody answers")
		f.Answer(0, "list "+storageVersionsPath)
		say(storageVersion("core.configmaps", "v1"))
		time.Sleep(time.Minute)
		heard.expect(t, "agreement", "configmaps disagree false")

		// A server that has just started may say what it does a little later.
		s.serversChanged()
		time.Sleep(time.Second)
		say(storageVersion("core.configmaps", ""))
		time.Sleep(snapshot.Skew)
		heard.expect(t, "a late disagreement", "configmaps disagree true")

		// An upstream that does not serve them any more has nothing to say.
		f.Answer(http.StatusNotFound, "list "+storageVersionsPath)
		time.Sleep(time.Hour)
		heard.expect(t, "not served", "configmaps disagree false")
	})
}

// TestStorageVersionsNotServed: most upstreams have none.
func TestStorageVersionsNotServed(t *testing.T) {
	for _, status := range []int{http.StatusNotFound, http.StatusForbidden} {
		synctest.Test(t, func(t *testing.T) {
			f := proxytest.NewFakeAPI()
			f.Collections[storageVersionsPath] = &proxytest.FakeCollection{Kind: "StorageVersionList"}
			f.Answer(status, "list "+storageVersionsPath)
			_, heard := runStorageVersions(t, f)
			time.Sleep(time.Hour)
			heard.expect(t, "not there")
			if got := f.Asked("list " + storageVersionsPath); got != 2 {
				t.Errorf("asked %d times in an hour", got)
			}
		})
	}
}
