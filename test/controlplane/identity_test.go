package controlplane

import (
	"net/http"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// wantAnnounced fails if not even after its start an API server has announced itself.
func wantAnnounced(t *testing.T, cp *ControlPlane) {
	t.Helper()
	leases, err := cp.request(t.Context(), Admin, http.MethodGet, identityLeases, nil)
	expect.NoError(t, err)
	if !announcedSince(leases, cp.apiserver.started) {
		t.Errorf("it is ready and not announced: %s", leases)
	}
}
