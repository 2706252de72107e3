package upstream

import (
	"net/http"
	"testing"

	"github.com/listproxy/listproxy/proxy/authn"
	"github.com/listproxy/listproxy/proxy/internal/authntest"
)

// TestAcceptanceIsNoted where an answer can only be had by somebody.
func TestAcceptanceIsNoted(t *testing.T) {
	identifier := authntest.New(t)
	for _, test := range []struct {
		id     authn.Identity
		method string
		code   int
		noted  bool
	}{
		{authntest.Identify(identifier, "Bearer a"), http.MethodGet, http.StatusOK, true},
		{authntest.Identify(identifier, "Bearer a"), http.MethodGet, http.StatusForbidden, true},
		{authntest.Identify(identifier, "Bearer a"), http.MethodGet, http.StatusSwitchingProtocols, true},
		{authntest.Identify(identifier, "Bearer a"), http.MethodGet, http.StatusUnauthorized, false},
		{authntest.Identify(identifier, "Bearer a"), http.MethodOptions, http.StatusOK, false},
		{authn.Identity{}, http.MethodGet, http.StatusOK, false},
		{authn.Identity{}, http.MethodGet, http.StatusSwitchingProtocols, true},
	} {
		noted := false
		r, err := http.NewRequestWithContext(t.Context(), test.method, "/", nil)
		if err != nil {
			t.Fatal(err)
		}
		NoteAcceptance(WithAcceptance(r, func() { noted = true }), test.id, test.code)
		if noted != test.noted {
			t.Errorf("%v %s %d: %t", test.id.Known(), test.method, test.code, noted)
		}
		NoteAcceptance(r, test.id, test.code) // nothing is to be done
	}
}
