package controlplane

import (
	"net/http"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/expect"
)

func TestAnnouncedSince(t *testing.T) {
	started := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, tt := range map[string]struct {
		leases string
		want   bool
	}{
		"none":               {`{"items":[]}`, false},
		"no list":            {`not ready`, false},
		"of the one before":  {`{"items":[{"metadata":{"name":"apiserver-a"},"spec":{"renewTime":"2026-01-02T03:04:04.999999Z"}}]}`, false},
		"a test's":           {`{"items":[{"metadata":{"name":"another"},"spec":{"renewTime":"2100-01-01T00:00:00.000000Z"}}]}`, false},
		"its own":            {`{"items":[{"metadata":{"name":"apiserver-a"},"spec":{"renewTime":"2026-01-02T03:04:05.000001Z"}}]}`, true},
		"its own and others": {`{"items":[{"metadata":{"name":"another"}},{"metadata":{"name":"apiserver-a"},"spec":{"renewTime":"2026-01-02T03:04:06.000000Z"}}]}`, true},
	} {
		if got := announcedSince([]byte(tt.leases), started); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// wantAnnounced fails if not even after its start an API server has announced itself.
func wantAnnounced(t *testing.T, cp *ControlPlane) {
	t.Helper()
	leases, err := cp.request(t.Context(), Admin, http.MethodGet, identityLeases, nil)
	expect.NoError(t, err)
	if !announcedSince(leases, cp.apiserver.started) {
		t.Errorf("it is ready and not announced: %s", leases)
	}
}
