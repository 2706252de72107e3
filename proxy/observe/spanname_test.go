package observe

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// podsOnly knows one group/version, and in it pods and namespaces.
func podsOnly(group, version, resource string) bool {
	return group == "" && version == "v1" && (resource == "pods" || resource == "namespaces")
}

func TestRoute(t *testing.T) {
	known := func(gvr schema.GroupVersionResource) bool { return podsOnly(gvr.Group, gvr.Version, gvr.Resource) }
	for _, tt := range []struct{ method, target, want string }{
		{http.MethodGet, "/api/v1/pods", "/api/v1/pods"},
		{http.MethodGet, "/api/v1/namespaces/team-a/pods?labelSelector=a%3Db", "/api/v1/namespaces/{namespace}/pods"},
		{http.MethodDelete, "/api/v1/namespaces/team-a/pods/web-0", "/api/v1/namespaces/{namespace}/pods/{name}"},
		{http.MethodGet, "/api/v1/namespaces/team-a/pods/web-0/log", "/api/v1/namespaces/{namespace}/pods/{name}/log"},
		{http.MethodGet, "/api/v1/namespaces/team-a/pods/web-0/made-up", "/api/v1/namespaces/{namespace}/pods/{name}/{subresource}"},
		{http.MethodGet, "/api/v1/namespaces/team-a", "/api/v1/namespaces/{name}"},
		{http.MethodGet, "/api/v1/namespaces", "/api/v1/namespaces"},
		{http.MethodGet, "/api/v1/secret-of-alice", "/api/{version}/{resource}"},
		{http.MethodPost, "/apis/made.up/v9/namespaces/x/things/y/z", "/apis/{group}/{version}/namespaces/{namespace}/{resource}/{name}/{subresource}"},
		{http.MethodGet, "/healthz", ""},
		{http.MethodGet, "/metrics/anything", ""},
	} {
		if got := route(httptest.NewRequest(tt.method, tt.target, nil), known); got != tt.want {
			t.Errorf("%s %s: %q, want %q", tt.method, tt.target, got, tt.want)
		}
	}
	if got := route(httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil), func(schema.GroupVersionResource) bool { return false }); got != "/api/{version}/{resource}" {
		t.Errorf("where nothing is known: %q", got)
	}
}
