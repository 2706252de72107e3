package proxy

import (
	"net/http"
	"testing"

	"github.com/listproxy/listproxy/proxy/authn"
)

// TestAcceptanceIsNoted where an answer can only be had by somebody.
func TestAcceptanceIsNoted(t *testing.T) {
	identifier := newIdentifier(t)
	for _, test := range []struct {
		id     authn.Identity
		method string
		code   int
		noted  bool
	}{
		{identify(identifier, "Bearer a"), http.MethodGet, http.StatusOK, true},
		{identify(identifier, "Bearer a"), http.MethodGet, http.StatusForbidden, true},
		{identify(identifier, "Bearer a"), http.MethodGet, http.StatusSwitchingProtocols, true},
		{identify(identifier, "Bearer a"), http.MethodGet, http.StatusUnauthorized, false},
		{identify(identifier, "Bearer a"), http.MethodOptions, http.StatusOK, false},
		{authn.Identity{}, http.MethodGet, http.StatusOK, false},
		{authn.Identity{}, http.MethodGet, http.StatusSwitchingProtocols, true},
	} {
		noted := false
		r, err := http.NewRequestWithContext(t.Context(), test.method, "/", nil)
		if err != nil {
			t.Fatal(err)
		}
		noteAcceptance(withAcceptance(r, func() { noted = true }), test.id, test.code)
		if noted != test.noted {
			t.Errorf("%v %s %d: %t", test.id.Known(), test.method, test.code, noted)
		}
		noteAcceptance(r, test.id, test.code) // nothing is to be done
	}
}
