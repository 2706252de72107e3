package source

import (
	"net/http"
	"net/url"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestProbe: a probe is the list of one name that cannot exist, which costs kube-apiserver the lookup of
// one key and one seat, however many objects there are.
func TestProbe(t *testing.T) {
	for want, resource := range map[string]CollectionKey{
		"/api/v1/namespaces/" + probeNamespace + "/configmaps": {
			GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Namespaced: true,
		},
		"/api/v1/nodes": {GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "nodes"}},
	} {
		resource.Representation = media.JSON
		s := sourceOf(resource, func(r *http.Request) *http.Response {
			expect.Same(t, want, r.URL.Path)
			expect.Same(t, url.Values{"fieldSelector": {"metadata.name=" + probeName + ",spec.nodeName="}}, r.URL.Query())
			return proxytest.JSONResponse(r, http.StatusOK, `{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`)
		})
		_, revision, err := s.Probe(t.Context(), "spec.nodeName")
		expect.NoError(t, err)
		expect.Same(t, uint64(7), revision)
	}
}
