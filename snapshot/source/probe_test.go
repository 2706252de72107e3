package source

import (
	"net/http"
	"net/url"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/snapshot/wire"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/inmemory"
)

// TestProbe: Probe lists one name that cannot exist, and returns the list's revision. For such a list, kube-apiserver looks
// up one key, however many objects there are. The list takes one seat of API priority and fairness.
func TestProbe(t *testing.T) {
	for resource, tt := range map[string]struct {
		namespaced bool
		wantPath   string
	}{
		"configmaps": {namespaced: true, wantPath: "/api/v1/namespaces/" + probeNamespace + "/configmaps"},
		"nodes":      {wantPath: "/api/v1/nodes"},
	} {
		key := CollectionKey{
			GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: resource},
			Namespaced:           tt.namespaced, Representation: media.JSON,
		}
		s := newTestSource(key, func(r *http.Request) *http.Response {
			expect.Same(t, tt.wantPath, r.URL.Path)
			expect.Same(t, url.Values{"fieldSelector": {"metadata.name=" + probeName + ",spec.nodeName="}}, r.URL.Query())
			return inmemory.Answer(r, http.StatusOK, `{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`)
		})
		_, revision, err := s.Probe(t.Context(), wire.Field{Name: "spec.nodeName"})
		expect.NoError(t, err)
		expect.Same(t, uint64(7), revision)
	}
}
