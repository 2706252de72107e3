package upstream

import (
	"net/http"
	"testing"

	"github.com/listproxy/listproxy/proxy/authn"
	"github.com/listproxy/listproxy/proxy/internal/authntest"
	"github.com/listproxy/listproxy/proxy/internal/proxytest"
	"github.com/listproxy/listproxy/test/expect"
)

// TestAnswered: an answer that can only be had by somebody shows that the caller was accepted. The
// token is remembered if it is what the answer was for.
func TestAnswered(t *testing.T) {
	identifier := authntest.New(t)
	token := authntest.Identify(identifier, "Bearer a")
	for _, test := range []struct {
		id         authn.Identity
		before     bool // the token is remembered
		upgrade    bool
		method     string
		code       int
		accepted   bool
		remembered bool
	}{
		{token, false, false, http.MethodGet, http.StatusOK, true, true},
		{token, false, false, http.MethodGet, http.StatusForbidden, true, true},
		{token, false, false, http.MethodGet, http.StatusUnauthorized, false, false},
		{token, true, false, http.MethodGet, http.StatusUnauthorized, false, false},
		{token, false, false, http.MethodGet, http.StatusInternalServerError, false, false},
		{token, true, false, http.MethodGet, http.StatusInternalServerError, false, true},
		{token, false, false, http.MethodOptions, http.StatusOK, false, false},
		{token, false, true, http.MethodGet, http.StatusSwitchingProtocols, true, false},
		{token, false, true, http.MethodGet, http.StatusForbidden, true, false},
		{token, true, true, http.MethodGet, http.StatusUnauthorized, false, true},
		{authn.Identity{}, false, false, http.MethodGet, http.StatusOK, false, false},
		{authn.Identity{}, false, true, http.MethodGet, http.StatusOK, false, false},
		{authn.Identity{}, false, true, http.MethodGet, http.StatusSwitchingProtocols, true, false},
	} {
		up, err := New(proxytest.StartUpstream(t, false, http.NotFound).Config())
		expect.NoError(t, err)
		if test.before {
			up.accept(test.id)
		}
		accepted := up.Answered(test.id, test.upgrade, test.method, test.code)
		if _, remembered := up.Caller(test.id, "192.0.2.1:1"); accepted != test.accepted || remembered != test.remembered {
			t.Errorf("%+v: accepted %t, remembered %t", test, accepted, remembered)
		}
	}
}
