package kubehttp

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// TestLoggable: what is of use in a line is in it, and what may be a credential is not, wherever in
// a path somebody has put it.
func TestLoggable(t *testing.T) {
	const (
		bootstrap = "abcdef.0123456789abcdef"
		id        = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
		drawn     = "vlx3q7h2m5k8n4p6"
	)
	for path, want := range map[string][2]string{
		"/api/v1/pods":                                 {"list pods v1", ""},
		"/api/v1/namespaces":                           {"list namespaces v1", ""},
		"/api/v1/namespaces/team-a/pods":               {"list pods v1", "team-a"},
		"/api/v1/namespaces/team-a/pods/web-1/log":     {"get pods log v1", "team-a"},
		"/api/v1/namespaces/kube-system/secrets/" + id: {"get secrets v1", "kube-system"},
		"/apis/apps/v1/namespaces/ci-4711/deployments": {"list deployments v1 apps", "ci-4711"},
		"/apis/constraints.gatekeeper.sh/v1beta1/k8spspallowprivilegeescalationcontainer": {
			"list k8spspallowprivilegeescalationcontainer v1beta1 constraints.gatekeeper.sh", "",
		},
		"/api/v1/" + bootstrap:                                    {"list ? v1", ""},
		"/api/v1/" + id:                                           {"list ? v1", ""},
		"/api/v1/" + drawn:                                        {"list ? v1", ""},
		"/apis/" + bootstrap + "/v1/pods":                         {"list pods v1 ?", ""},
		"/apis/apps/" + drawn + "/pods":                           {"list pods ? apps", ""},
		"/api/v1/namespaces/team-a/pods/x/" + id:                  {"get pods ? v1", "team-a"},
		"/api/v1/namespaces/" + bootstrap + "/pods":               {"list pods v1", "?"},
		"/api/v1/namespaces/" + id + "/pods":                      {"list pods v1", "?"},
		"/api/v1/namespaces/" + drawn + "/pods":                   {"list pods v1", "?"},
		"/api/v1/namespaces/eyJhbGciOi/pods":                      {"list pods v1", "?"},
		"/api/v1/namespaces/" + strings.Repeat("a", 64) + "/pods": {"list pods v1", "?"},
		"/" + bootstrap:                                           {"other", ""},
		"/healthz/x":                                              {"/healthz", ""},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL = &url.URL{Path: path}
		target, namespace := DescribeWithNamespace(r)
		if got := [2]string{target, namespace}; got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
}
