package proxy

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/proxy/authn"
	"github.com/listproxy/listproxy/proxy/internal/authntest"
	"github.com/listproxy/listproxy/proxy/internal/proxytest"
)

// TestStatedUsersStayUnderThePrefix: the proxy's credentials are for the API server at its URL, which
// may be one of several behind one address.
func TestStatedUsersStayUnderThePrefix(t *testing.T) {
	var seen []string
	upstream := proxytest.StartUpstream(t, false, func(_ http.ResponseWriter, r *http.Request) { seen = append(seen, r.RequestURI) })
	config := upstream.Config()
	config.Host += "/clusters/a"
	forwarder := newForwarder(t, config)
	own := upstream.Config()
	own.Host, own.BearerToken = config.Host, "listproxy"
	if err := forwarder.up.Impersonate(own); err != nil {
		t.Fatal(err)
	}
	stated := authntest.New(t).OfUser(&user.DefaultInfo{Name: "alice", Groups: []string{user.AllAuthenticated}})
	if !mayLeavePrefix("/%zz") {
		t.Error("what cannot be read may be anything")
	}
	for target, leaves := range map[string]bool{
		"/api":                    false,
		"/api/v1/pods?a=/../b":    false,
		"/api/v1/namespaces/a..b": false,
		"/.../...":                false,
		"/./api":                  false,
		"/../b/api":               true,
		"/api/../../b":            true,
		"/..":                     true,
		"/%2e%2e/b":               true,
		"/.%2E/b":                 true,
		"/x%2f..%2f..%2fb":        true,
		"/..%5cb":                 true,
		"/..;x/b":                 true,
		"//../b":                  true,
	} {
		for _, id := range []authn.Identity{stated, forwarder.caller} {
			seen = nil
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			r.RequestURI = target
			forwarder.ServeAs(w, r, id)
			refused := len(seen) == 0 && w.Code == http.StatusBadRequest
			if want := leaves && id.Impersonated() != nil; refused != want {
				t.Errorf("%s, stated %t: refused %t (%d), want %t; the upstream saw %q", target, id.Impersonated() != nil, refused, w.Code, want, seen)
			}
		}
	}
}
