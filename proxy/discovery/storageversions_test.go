package discovery

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/proxy/internal/proxytest"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/logbuffer"
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

func runStorageVersions(t *testing.T, f *proxytest.FakeAPI, log *slog.Logger) *storageVersionsHeard {
	t.Helper()
	heard := &storageVersionsHeard{}
	s, err := newStorageVersions(f.Config(),
		func(gr schema.GroupResource, disagree bool) { heard.tell("%s disagree %v", gr, disagree) },
		func(gr schema.GroupResource) { heard.tell("%s rewritten", gr) }, log)
	expect.NoError(t, err)
	proxytest.RunInBubble(t, s.run)
	return heard
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
		heard := runStorageVersions(t, f, proxytest.DiscardLog())
		heard.expect(t, "the first list", "deployments.apps disagree true", "ingresses.networking.k8s.io disagree true", "jobs.batch disagree true")

		for _, step := range []struct {
			name, event, object string
			want                []string
		}{
			{"nothing new", "MODIFIED", storageVersion("core.configmaps", "v1"), nil},
			{"still disagreement", "MODIFIED", storageVersion("apps.deployments", ""), nil},
			{"agreement", "MODIFIED", storageVersion("apps.deployments", "apps/v1"), []string{"deployments.apps disagree false"}},
			{"another version without a disagreement", "MODIFIED", storageVersion("core.configmaps", "v2"), []string{"configmaps rewritten"}},
			{"disagreement", "MODIFIED", storageVersion("core.configmaps", ""), []string{"configmaps disagree true"}},
			{"a disagreement goes", "DELETED", storageVersion("core.configmaps", ""), []string{"configmaps disagree false"}},
			{"a new agreement", "ADDED", storageVersion("core.configmaps", "v1"), nil},
			{"an agreement goes", "DELETED", storageVersion("core.configmaps", "v1"), nil},
			{"a new disagreement", "ADDED", storageVersion("core.configmaps", ""), []string{"configmaps disagree true"}},
		} {
			f.Event(storageVersionsPath, step.event, step.object)
			heard.expect(t, step.name, step.want...)
		}

		// While the stream is away nothing changes; then the list is held against what there was.
		f.Answer(http.StatusForbidden, "watch "+storageVersionsPath)
		f.Answer(http.StatusForbidden, "list "+storageVersionsPath)
		f.Cut(storageVersionsPath)
		time.Sleep(time.Hour)
		heard.expect(t, "the stream is away")
		f.Mu.Lock()
		c.Objects = []string{
			storageVersion("apps.deployments", "apps/v2"),              // another version
			storageVersion("networking.k8s.io.ingresses", ""),          // as before
			storageVersion("core.configmaps", "v1"),                    // agreed
			storageVersion("core.pods", ""),                            // new
			storageVersion("batch.cronjobs", "batch/v1"),               // as before
			storageVersion("internal.apiserver.k8s.io.things", "v1/a"), // of no interest
		} // batch.jobs went
		f.Mu.Unlock()
		f.Answer(0, "watch "+storageVersionsPath, "list "+storageVersionsPath)
		time.Sleep(2 * refusedRetry)
		heard.expect(t, "the stream is back", "configmaps disagree false", "deployments.apps rewritten", "jobs.batch disagree false", "pods disagree true")

		// An upstream that does not serve them any more has nothing to say.
		f.Answer(http.StatusNotFound, "watch "+storageVersionsPath, "list "+storageVersionsPath)
		f.Cut(storageVersionsPath)
		time.Sleep(time.Hour)
		heard.expect(t, "not served", "ingresses.networking.k8s.io disagree false", "pods disagree false")
	})
}

// TestStorageVersionsNotServed: most upstreams have none, and need not hear of it.
func TestStorageVersionsNotServed(t *testing.T) {
	for status, lines := range map[int]int{http.StatusNotFound: 0, http.StatusForbidden: 1} {
		synctest.Test(t, func(t *testing.T) {
			f := proxytest.NewFakeAPI()
			f.Collections[storageVersionsPath] = &proxytest.FakeCollection{Kind: "StorageVersionList"}
			f.Answer(status, "list "+storageVersionsPath, "watch "+storageVersionsPath)
			var logged logbuffer.Buffer
			heard := runStorageVersions(t, f, slog.New(slog.NewTextHandler(&logged, nil)))
			time.Sleep(time.Hour)
			heard.expect(t, "not there")
			if got := strings.Count(logged.String(), "\n"); got != lines {
				t.Errorf("%d: want %d lines, got:\n%s", status, lines, logged.String())
			}
			if got := f.Asked("list " + storageVersionsPath); got > 21 {
				t.Errorf("asked %d times in an hour", got)
			}
		})
	}
}
