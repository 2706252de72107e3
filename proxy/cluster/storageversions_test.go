package cluster

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/snapshot"
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

// TestStorageVersions: what API servers do not agree about is not kept, from the first list on, until they
// agree or say nothing of it any more.
func TestStorageVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := proxytest.NewFakeAPI()
		f.Collections[storageVersionsPath] = &proxytest.FakeCollection{Kind: "StorageVersionList", APIVersion: "internal.apiserver.k8s.io/v1alpha1", Objects: []string{
			storageVersion("core.configmaps", "v1"),
			storageVersion("apps.deployments", ""),
			storageVersionStatus("networking.k8s.io.ingresses", `{}`),
			storageVersionStatus("batch.jobs", `{"commonEncodingVersion":"batch/v1","conditions":[{"type":"Other","status":"False"},{"type":"AllEncodingVersionsEqual","status":"False"}]}`),
			storageVersionStatus("batch.cronjobs", `{"commonEncodingVersion":"batch/v1","conditions":[{"type":"Other","status":"False"}]}`),
		}}
		told := &told{}
		runCluster(t, f, told.invalidate, proxytest.DiscardLog())
		said := func(group, resource string, disagree bool) string {
			until := snapshot.Lift()
			if disagree {
				until = snapshot.UntilLifted()
			}
			return invalidated(snapshot.Invalidation{
				Cause: snapshot.Servers, Scope: snapshot.OfResource(schema.GroupResource{Group: group, Resource: resource}), Until: until,
			})
		}
		expectTold := func(when string, want ...string) {
			t.Helper()
			slices.Sort(want)
			if diff := cmp.Diff(want, told.take()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}
		expectTold("at the start", said("apps", "deployments", true), said("networking.k8s.io", "ingresses", true), said("batch", "jobs", true))
		event := func(kind, object string) { f.Event(storageVersionsPath, kind, object) }
		event("MODIFIED", storageVersion("apps.deployments", "apps/v1"))
		event("MODIFIED", storageVersion("core.configmaps", "v2"))
		expectTold("some agree", said("apps", "deployments", false))
		event("DELETED", storageVersion("batch.jobs", ""))
		event("DELETED", storageVersion("batch.cronjobs", "batch/v1"))
		expectTold("some are gone", said("batch", "jobs", false))
		event("MODIFIED", storageVersion("core.configmaps", ""))
		expectTold("a disagreement", said("", "configmaps", true))
		f.Answer(http.StatusServiceUnavailable, "list "+storageVersionsPath, "watch "+storageVersionsPath)
		f.Cut(storageVersionsPath)
		time.Sleep(time.Hour)
		expectTold("nobody answers")
	})
}
